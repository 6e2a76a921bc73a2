"""What does a group of consumer actors do with the records of a topic?"""

import os
import time
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
import ray
from rich.console import Console

import bradbury
from bradbury.protocol.errors import InvalidConfig, UnknownTopicOrPartition
from bradbury.tests.support.groups.group_shares import wait_until_shared
from bradbury.tests.support.storage.numbered import fill, numbers_in

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_a_function_is_mapped_over_all_that_is_there(topic: str) -> None:
    fill(topic, 2000)
    with bradbury.ConsumerGroup(
        topic, topic, actors=2, batch_records=50, auto_offset_reset="earliest"
    ) as group:
        results = group.map(numbers_in, stop_at_end=True)
        found = list(next(results))
        wait_until_shared(group)
        found += [n for result in results for n in result]
        status = group.status()
    assert sorted(found) == list(range(2000))
    assert status.lag == 0
    assert sorted(len(member.partitions) for member in status.members) == [2, 2]
    assert sum(member.records for member in status.members) == 2000


@pytest.mark.long  # a second group; test_client_actors.py goes on so
def test_the_next_group_goes_on_where_the_last_one_committed(topic: str) -> None:
    fill(topic, 500)
    with bradbury.ConsumerGroup(topic, topic, auto_offset_reset="earliest") as group:
        first = [n for result in group.map(numbers_in, stop_at_end=True) for n in result]
    fill(topic, 500, start=500)
    with bradbury.ConsumerGroup(topic, topic, auto_offset_reset="earliest") as group:
        second = [n for result in group.map(numbers_in, stop_at_end=True) for n in result]
    assert sorted(first) == list(range(500))
    assert sorted(second) == list(range(500, 1000))


@pytest.mark.long  # one more way to be used; a group is made for it
def test_a_class_is_made_once_in_each_actor_and_gets_records_if_it_likes(topic: str) -> None:
    class Counter:
        def __init__(self, prefix: str) -> None:
            self.prefix = prefix
            self.calls = 0

        def __call__(self, records: list[Any], suffix: str) -> tuple[int, int, list[str]]:
            self.calls += 1
            texts = [f"{self.prefix}{record.value.decode()}{suffix}" for record in records]
            return os.getpid(), self.calls, texts

    with bradbury.ConsumerGroup(
        topic, topic, actors=2, batch_records=50, auto_offset_reset="earliest"
    ) as group:
        mapped = group.map(
            Counter, batch_format="records", fn_args=["!"], fn_constructor_args=["n"]
        )
        wait_until_shared(group)  # before there are records: joining may cost a batch its commit
        fill(topic, 2000)
        results = [next(mapped)]
        while sum(len(texts) for _, _, texts in results) < 2000:
            results.append(next(mapped))
    calls: dict[int, list[int]] = {}
    for pid, number, _ in results:
        calls.setdefault(pid, []).append(number)
    assert len(calls) == 2
    for numbers in calls.values():
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert sorted(text for _, _, texts in results for text in texts) == sorted(
        f"n{number}!" for number in range(2000)
    )


@pytest.mark.long  # one more way to be used; a group is made for it
def test_a_function_may_take_longer_than_the_poll_interval(topic: str) -> None:
    def slowly(table: pa.Table) -> list[int]:
        time.sleep(3)  # the work, not a wait
        return numbers_in(table)

    fill(topic, 100)
    with bradbury.ConsumerGroup(
        topic,
        topic,
        batch_records=50,
        auto_offset_reset="earliest",
        max_poll_interval_ms=1_000,
        revoke_timeout_ms=500,
    ) as group:
        results = group.map(slowly, stop_at_end=True)
        found = list(next(results))
        generation = group.status().members[0].generation
        found += [n for result in results for n in result]
        assert group.status().members[0].generation == generation
    assert sorted(found) == list(range(100))


@pytest.mark.long  # one more way to be used; a group is made for it
def test_results_that_are_not_taken_stop_the_reading(topic: str) -> None:
    fill(topic, 1000)
    with bradbury.ConsumerGroup(
        topic, topic, batch_records=10, max_in_flight=3, auto_offset_reset="earliest"
    ) as group:
        results = group.map(numbers_in)
        found = list(next(results))  # and not dealt with until the next one is asked for
        member = group.status().members[0]
        while member.to_be_taken < 3:
            member = group.status().members[0]
        for _ in range(20):
            member = group.status().members[0]
            assert member.running + member.waiting + member.to_be_taken <= 4
        while len(found) < 1000:
            found += next(results)
    assert sorted(found) == list(range(1000))


def test_tables_are_polled_by_handle_and_committed_by_it(topic: str) -> None:
    fill(topic, 600)

    @ray.remote(num_cpus=0)
    def work(poll: Any) -> list[int]:
        return numbers_in(ray.get(poll.remote(timeout_ms=500)))

    group = bradbury.ConsumerGroup(
        topic, topic, actors=2, batch_records=100, auto_offset_reset="earliest"
    )
    assert group.poll is not None, "it begins"
    while any(len(member.partitions) != 2 for member in group.status().members):
        time.sleep(0.1)  # what is polled before both have joined may come again
    found: list[int] = []
    while len(found) < 300:
        found += numbers_in(ray.get(group.poll.remote()))
    while len(found) < 400:
        found += ray.get(work.remote(group.poll), timeout=60)
    ray.get(group.commit.remote())
    assert sum(one.committed for m in group.status().members for one in m.partitions) == len(found)
    group.stop()
    with bradbury.ConsumerGroup(topic, topic, auto_offset_reset="earliest") as group:
        found += [n for result in group.map(numbers_in, stop_at_end=True) for n in result]
    assert sorted(found) == list(range(600))


def test_a_member_of_another_client_has_its_share(topic: str, cluster: bradbury.Cluster) -> None:
    other = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
        }
    )
    other.subscribe([topic])
    group = bradbury.ConsumerGroup(
        topic,
        topic,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
        revoke_timeout_ms=500,  # what is polled last is not committed when the other one leaves
    )
    seen: dict[str, list[int]] = {"ours": [], "theirs": []}

    def poll() -> None:
        seen["theirs"] += [int(each.value()) for each in other.consume(500, 0.1)]
        seen["ours"] += numbers_in(ray.get(group.poll.remote(timeout_ms=100), timeout=60))

    poll()
    while not len(other.assignment()) == len(group.status().members[0].partitions) == 2:
        poll()
    fill(topic, 400)
    while len(seen["ours"]) + len(seen["theirs"]) < 400:
        poll()
    assert sorted(seen["ours"] + seen["theirs"]) == list(range(400))
    assert all(seen.values())
    other.close()
    fill(topic, 400, start=400)
    while len(seen["ours"]) + len(seen["theirs"]) < 800:
        seen["ours"] += numbers_in(ray.get(group.poll.remote(timeout_ms=100), timeout=60))
    assert sorted(seen["ours"] + seen["theirs"]) == list(range(800))
    assert group.stop() == []


def test_stopping_leaves_the_group_at_once(topic: str, cluster: bradbury.Cluster) -> None:
    fill(topic, 10)
    group = bradbury.ConsumerGroup(topic, topic, actors=2, auto_offset_reset="earliest")
    run = group.for_each(numbers_in, stop_at_end=True)
    run.wait(60)
    with cluster.admin() as admin:
        while len(admin.describe_groups([topic])[0].members) < 2:
            pass  # one may have read it all before the other has joined
        assert group.stop() == []
        assert admin.describe_groups([topic])[0].members == ()
        assert sum(one.offset for one in admin.group_offsets(topic).values()) == 10


def test_a_failure_names_its_batch_and_leaves_it_uncommitted(topic: str) -> None:
    def picky(table: pa.Table) -> list[int]:
        if 33 in numbers_in(table):
            raise ValueError("no 33 here")
        return numbers_in(table)

    fill(topic, 100)
    found: list[int] = []
    with bradbury.ConsumerGroup(
        topic, topic, batch_records=10, auto_offset_reset="earliest"
    ) as group:
        with pytest.raises(bradbury.BatchFailed, match="no 33 here") as caught:
            for result in group.map(picky):
                found += result
        failed = caught.value
    assert isinstance(failed.__cause__, ValueError)
    assert 33 in numbers_in(failed.table)
    assert sum(span.last - span.first + 1 for span in failed.spans) == failed.table.num_rows
    with bradbury.ConsumerGroup(topic, topic, auto_offset_reset="earliest") as group:
        again = [n for result in group.map(numbers_in, stop_at_end=True) for n in result]
    assert 33 in again
    assert sorted({*found, *again}) == list(range(100))


@pytest.mark.long  # one more way to be used; a group is made for it
def test_a_failed_batch_is_dealt_with_by_going_on(topic: str) -> None:
    def picky(table: pa.Table) -> list[int]:
        if 33 in numbers_in(table):
            raise ValueError("no 33 here")
        return numbers_in(table)

    fill(topic, 100)
    with bradbury.ConsumerGroup(
        topic, topic, batch_records=10, auto_offset_reset="earliest"
    ) as group:
        results = group.map(picky, stop_at_end=True)
        found: list[int] = []
        while True:
            try:
                found += next(results)
            except bradbury.BatchFailed as failed:
                found += numbers_in(failed.table)
            except StopIteration:
                break
    assert sorted(found) == list(range(100))


@pytest.mark.long  # one more way to be used; a group is made for it
def test_a_class_that_cannot_be_made_says_so(topic: str) -> None:
    class Broken:
        def __init__(self) -> None:
            raise OSError("no model here")

        def __call__(self, table: pa.Table) -> None: ...

    for workers in (0, 1):
        with (
            bradbury.ConsumerGroup(topic, topic, workers=workers) as group,
            pytest.raises(OSError, match="no model here"),
        ):
            next(group.map(Broken))


def test_status_is_a_table_for_people(topic: str) -> None:
    fill(topic, 10)
    with bradbury.ConsumerGroup(topic, topic, auto_offset_reset="earliest") as group:
        group.for_each(numbers_in, stop_at_end=True).wait(60)
        console = Console(width=200, record=True, file=open(os.devnull, "w"))
        console.print(group.status())
    text = console.export_text()
    assert f"{topic}-0" in text
    assert "0 1 2 3" in text
    assert "lag 0" in text


def test_mistakes_raise_before_anything_starts(topic: str) -> None:
    for wrong in (
        {"actors": 0},
        {"actors": 3, "workers": 2},
        {"guarantee": "exactly_once"},
        {"order": "value"},
        {"enable_auto_commit": True},
        {"no_such_setting": 1},
        {"revoke_timeout_ms": 300_000},
    ):
        with pytest.raises(InvalidConfig):
            bradbury.ConsumerGroup(topic, topic, **wrong)
    with pytest.raises(UnknownTopicOrPartition):
        bradbury.ConsumerGroup("no-such-topic", topic).map(numbers_in)
