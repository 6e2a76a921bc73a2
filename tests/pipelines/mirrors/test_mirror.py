"""Are a source's records in the target once, whole, in order, whatever ended the mirrors before?"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.pipelines.mirrors.mirror_settings import MirrorFailed, MirrorProgress
from bradbury.pipelines.ranges.partition_range import DataLoss
from bradbury.protocol.errors import ConnectionFailed, ProducerFenced
from bradbury.tests.support.killed_program import kill_at
from tests.pipelines.mirrors.mirror_scene import Continuous, rows, send, values


def test_records_are_what_they_were_and_batches_go_undecoded(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str
) -> None:
    send(source.bootstrap_servers, topic, range(30_000), compression_type="lz4")
    done = bradbury.mirror(
        topic, source.bootstrap_servers, alias=alias, bootstrap_servers=bootstrap
    )
    assert (done.topics, done.records, done.behind) == (1, 30_000, 0)
    assert done.batches > 0
    copied = rows(bootstrap, f"{alias}.{topic}")
    assert copied == rows(source.bootstrap_servers, topic)
    assert len(copied) == 30_000
    with bradbury.Admin(bootstrap) as admin:
        assert admin.describe_configs(f"{alias}.{topic}")["retention.ms"].value == "86400000"


def test_the_next_one_adds_what_is_new(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str
) -> None:
    options: dict[str, Any] = {"alias": alias, "bootstrap_servers": bootstrap}
    send(source.bootstrap_servers, topic, range(100))
    assert bradbury.mirror(topic, source.bootstrap_servers, **options).records == 100
    assert bradbury.mirror(topic, source.bootstrap_servers, **options).commits == 0
    send(source.bootstrap_servers, topic, range(100, 250))
    seen: list[MirrorProgress] = []
    done = bradbury.mirror(
        topic,
        source.bootstrap_servers,
        **options,
        commit_records=50,
        on_progress=seen.append,
    )
    assert done.records == 150
    assert done == seen[-1]
    assert done.commits >= 3
    assert values(bootstrap, f"{alias}.{topic}") == list(range(250))


def test_records_go_that_the_source_itself_would_not_take_any_more(
    source: bradbury.LocalCluster, bootstrap: str, alias: str
) -> None:
    """Its bounds are for producers; what is in it has grown old meanwhile."""
    any_time, now = str(2**63 - 1), time.time_ns() // 1_000_000
    bounds = {f"message.timestamp.{side}.max.ms": "1000" for side in ("before", "after")}
    with source.admin() as admin, bradbury.Producer(source.bootstrap_servers) as producer:
        admin.create_topic("bounded", 1, configs=dict.fromkeys(bounds, any_time))
        for at in (now - 100_000_000, now + 100_000_000):
            producer.send("bounded", b"x", timestamp_ms=at).result()
        admin.alter_configs("bounded", bounds)
    done = bradbury.mirror(
        "bounded", source.bootstrap_servers, alias=alias, bootstrap_servers=bootstrap
    )
    assert done.records == 2
    assert rows(bootstrap, f"{alias}.bounded") == rows(source.bootstrap_servers, "bounded")


def test_of_transactions_only_what_is_committed_goes(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str
) -> None:
    options: dict[str, Any] = {"alias": alias, "bootstrap_servers": bootstrap}
    with bradbury.Producer(source.bootstrap_servers, transactional_id=alias) as producer:
        for number in range(10):
            producer.begin()
            producer.send(topic, value=b"%d" % number, partition=0)
            if number % 2:
                producer.commit()
            else:
                producer.flush()
                producer.abort()
        producer.begin()
        producer.send(topic, value=b"11", partition=0).result(60)
        assert bradbury.mirror(topic, source.bootstrap_servers, **options).records == 5
        producer.commit()
    assert bradbury.mirror(topic, source.bootstrap_servers, **options).records == 1
    assert values(bootstrap, f"{alias}.{topic}") == [1, 3, 5, 7, 9, 11]


PROGRAM = """
import sys
import bradbury

topic, source, alias, target = sys.argv[1:]
bradbury.mirror(
    topic,
    source,
    alias=alias,
    bootstrap_servers=target,
    commit_records=500,
    on_progress=lambda progress: print(progress.records, flush=True),
)
print("done", flush=True)
"""


@pytest.mark.long  # killed again and again
@pytest.mark.slow
def test_killed_again_and_again_each_record_is_there_once(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str
) -> None:
    send(source.bootstrap_servers, topic, range(20_000), batch_size=2_000)
    arguments = [topic, source.bootstrap_servers, alias, bootstrap]
    assert kill_at(PROGRAM, arguments, (1, 3, 6, 1_000)) == 3
    assert rows(bootstrap, f"{alias}.{topic}") == rows(source.bootstrap_servers, topic)


def test_a_second_mirror_of_the_alias_ends_the_first(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str
) -> None:
    send(source.bootstrap_servers, topic, range(3_000), batch_size=2_000)
    options: dict[str, Any] = {"alias": alias, "bootstrap_servers": bootstrap}

    def another(_: object) -> None:
        bradbury.mirror(topic, source.bootstrap_servers, **options)

    with pytest.raises(ProducerFenced, match="another mirror of this alias"):
        bradbury.mirror(
            topic, source.bootstrap_servers, **options, commit_records=100, on_progress=another
        )
    assert values(bootstrap, f"{alias}.{topic}") == list(range(3_000))


def test_it_follows_records_partitions_and_topics(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str
) -> None:
    with (
        source.admin() as admin,
        Continuous(
            f"{topic}.*", source.bootstrap_servers, alias=alias, bootstrap_servers=bootstrap
        ) as mirror,
    ):
        send(source.bootstrap_servers, topic, range(10))
        mirror.wait_for(10)
        admin.create_partitions(topic, 5)
        admin.create_topic(f"{topic}-more", 3)
        send(source.bootstrap_servers, topic, range(10, 60), partitions=5)
        send(source.bootstrap_servers, f"{topic}-more", range(40))
        mirror.wait_for(100)
    assert mirror.failure is None
    assert rows(bootstrap, f"{alias}.{topic}") == rows(source.bootstrap_servers, topic)
    assert values(bootstrap, f"{alias}.{topic}-more") == list(range(40))


@pytest.mark.parametrize("which", ["source", "target"])
def test_brokers_that_come_back_are_waited_for(tmp_path: Path, alias: str, which: str) -> None:
    with bradbury.local(data_dir=tmp_path / "other") as other:
        restarted = bradbury.local(data_dir=tmp_path / "restarted")
        address = restarted.bootstrap_servers
        port = int(address.rpartition(":")[2])
        source = address if which == "source" else other.bootstrap_servers
        target = address if which == "target" else other.bootstrap_servers
        with bradbury.Admin(source) as admin:
            admin.create_topic("flights", 3)
        send(source, "flights", range(10))
        with Continuous("flights", source, alias=alias, bootstrap_servers=target) as mirror:
            mirror.wait_for(10)
            restarted.close()
            with bradbury.local(data_dir=tmp_path / "restarted", port=port):
                send(source, "flights", range(10, 30))
                mirror.wait_for(30)
                assert values(target, f"{alias}.flights") == list(range(30))
        assert mirror.failure is None


def read_on(bootstrap: str, topic: str, group: str, most: int) -> list[int]:
    """What a member of the group gets, until `most` records are there; it commits them."""
    found: list[int] = []
    with bradbury.Consumer(
        topic,
        group=group,
        bootstrap=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        max_poll_records=10,
    ) as consumer:
        deadline = time.monotonic() + 60
        while len(found) < most:
            assert time.monotonic() < deadline, found
            found += map(int, consumer.poll(timeout_ms=500)["value"].to_pylist())
        consumer.commit()
    return found


def test_a_group_goes_on_in_the_target(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str
) -> None:
    options: dict[str, Any] = {
        "alias": alias,
        "bootstrap_servers": bootstrap,
        "groups": f"{alias}.*",
    }
    copied, group = f"{alias}.{topic}", f"{alias}-group"
    send(source.bootstrap_servers, topic, range(300), batch_size=1_000)
    before = read_on(source.bootstrap_servers, topic, group, 120)
    bradbury.mirror(topic, source.bootstrap_servers, **options, commit_records=50)
    after = read_on(bootstrap, copied, group, 300 - len(before))
    assert sorted(before + after) == list(range(300))
    # Where it is now is further than in the source: it is not thrown back.
    send(source.bootstrap_servers, topic, range(300, 310))
    bradbury.mirror(topic, source.bootstrap_servers, **options)
    assert sorted(read_on(bootstrap, copied, group, 10)) == list(range(300, 310))


def test_checkpoints_are_mirror_makers(
    source: bradbury.LocalCluster, bootstrap: str, alias: str
) -> None:
    with source.admin() as admin:
        admin.create_topic(f"t-{alias}", 1)
        send(source.bootstrap_servers, f"t-{alias}", range(10), partitions=1)
        admin.alter_group_offsets(f"g-{alias}", {(f"t-{alias}", 0): 7})
    bradbury.mirror(
        f"t-{alias}",
        source.bootstrap_servers,
        alias=alias,
        groups=f"g-{alias}",
        bootstrap_servers=bootstrap,
    )
    with bradbury.Consumer(bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(f"{alias}.checkpoints.internal", 0)])
        table = consumer.poll(timeout_ms=30_000)
    name, to = f"g-{alias}".encode(), f"{alias}.t-{alias}".encode()
    assert table["key"].to_pylist()[0] == (
        bytes([0, len(name)]) + name + bytes([0, len(to)]) + to + bytes(4)
    )
    assert table["value"].to_pylist()[0] == (
        bytes([0, 0]) + (7).to_bytes(8) + (7).to_bytes(8) + bytes([0, 0])
    )


def test_two_sources_into_one_topic(
    source: bradbury.LocalCluster,
    cluster: bradbury.LocalCluster,
    bootstrap: str,
    new_topic: Callable[..., str],
    alias: str,
) -> None:
    topic = new_topic(3)
    send(bootstrap, topic, range(10))
    with bradbury.local() as third, third.admin() as admin:
        admin.create_topic(topic, 3)
        send(third.bootstrap_servers, topic, range(10, 20))
        for of, where in ((cluster, "near"), (third, "far")):
            done = bradbury.mirror(
                topic,
                of.bootstrap_servers,
                alias=f"{alias}-{where}",
                policy="identity",
                bootstrap_servers=source.bootstrap_servers,
            )
            assert done.records == 10
        assert values(source.bootstrap_servers, topic) == list(range(20))


@pytest.mark.parametrize("policy", ["identity", "prefix"])
def test_what_came_from_the_target_does_not_go_back(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str, policy: Any
) -> None:
    send(source.bootstrap_servers, topic, range(10))
    bradbury.mirror(
        topic, source.bootstrap_servers, alias=alias, policy=policy, bootstrap_servers=bootstrap
    )
    name = topic if policy == "identity" else f"{alias}.{topic}"
    with pytest.raises(MirrorFailed, match="cycle"):
        bradbury.mirror(
            name,
            bootstrap,
            alias=f"{alias}-back",
            policy=policy,
            bootstrap_servers=source.bootstrap_servers,
        )
    assert values(source.bootstrap_servers, topic) == list(range(10))


def test_a_topic_that_was_made_again_is_not_taken_for_the_former_one(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str
) -> None:
    options: dict[str, Any] = {"alias": alias, "bootstrap_servers": bootstrap}
    send(source.bootstrap_servers, topic, range(10))
    bradbury.mirror(topic, source.bootstrap_servers, **options)
    with source.admin() as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, 3)
    send(source.bootstrap_servers, topic, range(10, 30))
    with pytest.raises(DataLoss, match="recreated.* false .the option --allow-data-loss"):
        bradbury.mirror(topic, source.bootstrap_servers, **options)
    bradbury.mirror(topic, source.bootstrap_servers, **options, fail_on_data_loss=False)
    assert values(bootstrap, f"{alias}.{topic}") == list(range(30))


def test_what_retention_took_is_an_error_or_passed_over(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str
) -> None:
    options: dict[str, Any] = {"alias": alias, "bootstrap_servers": bootstrap}
    send(source.bootstrap_servers, topic, range(30))
    bradbury.mirror(topic, source.bootstrap_servers, **options)
    send(source.bootstrap_servers, topic, range(30, 60))
    with source.admin() as admin:
        admin.delete_records({(topic, 0): 15})
    with pytest.raises(DataLoss, match="log begins at 15.* --allow-data-loss"):
        bradbury.mirror(topic, source.bootstrap_servers, **options)
    bradbury.mirror(topic, source.bootstrap_servers, **options, fail_on_data_loss=False)
    assert len(values(bootstrap, f"{alias}.{topic}")) == 55


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alias": "a.b"}, "alias is 'a.b'"),
        ({"policy": "other"}, "policy is 'other'"),
        ({"commit_records": 0}, "commit_records=0"),
        ({"topics": "("}, "not a valid regular expression"),
        ({"topics": []}, "topics is empty"),
        ({"groups": "("}, "not a valid regular expression"),
        ({"sync_groups_interval_s": 0}, "sync_groups_interval_s=0"),
        ({"sync_configs_interval_s": -1}, "sync_configs_interval_s=-1"),
    ],
)
def test_arguments_that_cannot_be(bootstrap: str, options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"topics": "x", "source": "127.0.0.1:1", "alias": "a"}
    with pytest.raises(ValueError, match=message):
        bradbury.mirror(**{**given, **options}, bootstrap_servers=bootstrap)


def test_no_topic_and_no_source(source: bradbury.LocalCluster, bootstrap: str, alias: str) -> None:
    options: dict[str, Any] = {"alias": alias, "bootstrap_servers": bootstrap}
    with pytest.raises(MirrorFailed, match="no topic of .* matches"):
        bradbury.mirror("absent", source.bootstrap_servers, **options)
    with pytest.raises(ConnectionFailed):
        bradbury.mirror("absent", "127.0.0.1:1", **options)
