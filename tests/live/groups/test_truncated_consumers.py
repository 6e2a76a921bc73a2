"""After an unclean election: does a consumer see that records it has read are gone (KIP-320)?"""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.protocol.errors import OffsetOutOfRange
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from bradbury.tests.support.ray.three_nodes import ThreeNodes, until
from bradbury.tests.support.wire.raw_client import RawClient

T0 = ("t", 0)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ThreeNodes]:
    with ThreeNodes(tmp_path) as nodes:
        nodes.create("t")
        yield nodes


class Trouble:
    """Records 0 and 1, of which the next leader has the first only; then two others."""

    def __init__(self, nodes: ThreeNodes) -> None:
        self.nodes = nodes
        self.leader, *self.others = nodes.partition("t").replicas
        with bradbury.Producer(nodes.servers) as producer:
            producer.send("t", b"0").result(30)
            until(lambda: set(nodes.ends("t").values()) == {1})
            for node in self.others:
                nodes.stop_fetching(node)
            producer.send("t", b"1").result(60)

    def begin(self) -> None:
        nodes = self.nodes
        # Not before: a machine that stands still for a session would elect uncleanly by itself.
        with bradbury.Admin(nodes.servers) as admin:
            admin.alter_configs("t", {"unclean.leader.election.enable": "true"})
        nodes.kill(self.leader)
        until(lambda: nodes.leader("t") != self.leader)
        for node in self.others:
            nodes.fetch_again(node)
        until(lambda: nodes.leader("t") in self.others)
        with bradbury.Producer(nodes.servers) as producer:
            for value in (b"other", b"third"):
                producer.send("t", value).result(60)


def values(consumer: bradbury.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def is_enough() -> bool:
        found.extend(consumer.poll(200)["value"].to_pylist())
        return len(found) >= count

    until(is_enough)
    return found


def test_one_without_a_reset_policy_raises_and_goes_on_where_it_seeks_to(
    nodes: ThreeNodes,
) -> None:
    trouble = Trouble(nodes)
    with bradbury.Consumer(bootstrap=nodes.servers, auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert values(consumer, 2) == [b"0", b"1"]
        trouble.begin()
        for _ in range(2):  # until it is sought
            with pytest.raises(OffsetOutOfRange, match="truncated to offset 1, below"):
                values(consumer, 1)
        consumer.seek(T0, 1)
        assert values(consumer, 2) == [b"other", b"third"]


def test_one_with_a_reset_policy_goes_on_where_the_logs_part(
    nodes: ThreeNodes, caplog: pytest.LogCaptureFixture
) -> None:
    trouble = Trouble(nodes)
    with bradbury.Consumer(bootstrap=nodes.servers, auto_offset_reset="latest") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert values(consumer, 2) == [b"0", b"1"]
        with caplog.at_level(logging.WARNING, "bradbury.clients.fetch.fetch_responses"):
            trouble.begin()
            assert values(consumer, 2) == [b"other", b"third"]
        assert "t-0: the log was truncated to offset 1, below the fetch offset 2" in caplog.text


@pytest.mark.parametrize("by_record", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_commit_carries_it_to_the_next_consumer(nodes: ThreeNodes, by_record: bool) -> None:
    trouble = Trouble(nodes)
    with bradbury.Consumer(
        "t", bootstrap=nodes.servers, group="g", auto_offset_reset="earliest"
    ) as consumer:
        if by_record:
            records = consumer.records(60_000)
            assert [next(records).value for _ in range(2)] == [b"0", b"1"]
            assert consumer.poll(500).num_rows == 0
        else:
            assert values(consumer, 2) == [b"0", b"1"]
        consumer.commit()
    with bradbury.Admin(nodes.servers) as admin:
        assert admin.group_offsets("g")[T0].offset == 2
        assert admin.group_offsets("g")[T0].leader_epoch in ((-1, 0) if by_record else (0,))
    trouble.begin()
    if by_record:
        return
    with bradbury.Consumer(
        "t", bootstrap=nodes.servers, group="g", auto_offset_reset="none"
    ) as consumer:
        with pytest.raises(OffsetOutOfRange, match="truncated to offset 1"):
            values(consumer, 1)


def test_on_the_wire_a_fetch_with_its_last_epoch_is_answered_where_the_logs_diverge(
    nodes: ThreeNodes,
) -> None:
    trouble = Trouble(nodes)
    trouble.begin()
    leader = nodes.cluster.controller.image.nodes[nodes.leader("t")]

    def ask(offset: int, last_epoch: int) -> tuple[int, int, int]:
        wanted = FetchPartition(
            partition=0, fetch_offset=offset, last_fetched_epoch=last_epoch, partition_max_bytes=1
        )
        request = FetchRequest(max_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])])
        with RawClient(f"{leader.host}:{leader.port}") as client:
            (topic,) = client.call(request, FetchResponse, 12).responses
        (answer,) = topic.partitions
        parted = answer.diverging_epoch
        assert bool(answer.records) == (parted.end_offset < 0)
        return answer.error_code, parted.epoch, parted.end_offset

    epoch = nodes.partition("t").leader_epoch
    assert ask(2, 0) == (0, 0, 1)
    assert ask(1, 0) == (0, -1, -1)
    assert ask(2, epoch) == (0, -1, -1)
    assert ask(2, -1) == (0, -1, -1)  # who does not say it, is not told
