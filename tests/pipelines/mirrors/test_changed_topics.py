"""What does a mirror do when topics change under it: new partitions, deleted ones, other names?"""

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import bradbury
from bradbury.pipelines.mirrors.mirror_settings import MirrorFailed
from bradbury.pipelines.mirrors.record_copier import RecordCopier
from bradbury.pipelines.ranges.partition_range import DataLoss, PartitionRange
from bradbury.protocol.errors import KafkaError

_numbers = count()


@pytest.fixture(scope="module")
def source() -> Iterator[str]:
    with bradbury.local() as running:
        yield running.bootstrap_servers


@pytest.fixture
def topic(source: str) -> str:
    name = f"changed-{next(_numbers)}"
    make(source, name)
    return name


def make(servers: str, topic: str, partitions: int = 2) -> None:
    with bradbury.Admin(servers) as admin:
        admin.create_topic(topic, partitions)


def delete(servers: str, topic: str) -> None:
    with bradbury.Admin(servers) as admin:
        admin.delete_topics([topic])


def send(servers: str, topic: str, partition: int, numbers: range) -> None:
    with bradbury.Producer(servers) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=partition)


def values(servers: str, topic: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    with bradbury.Admin(servers) as admin:
        partitions = range(len(admin.describe_topics([topic])[0].partitions))
        ends = admin.list_offsets([(topic, partition) for partition in partitions])
    with bradbury.Consumer(
        bootstrap=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(list(ends))
        while any(consumer.position(key) < ends[key].offset for key in ends):
            table = consumer.poll(timeout_ms=500)
            pairs = zip(
                table.column("partition").to_pylist(),
                table.column("value").to_pylist(),
                strict=True,
            )
            for partition, value in pairs:
                found.setdefault(partition, []).append(int(value))
    return found


def mirror(topic: str, source: str, target: str, **options: Any) -> Any:
    return bradbury.mirror(
        topic, source, alias=options.pop("alias", topic), bootstrap_servers=target, **options
    )


def test_a_partition_that_is_added_may_be_empty_for_long(
    source: str, bootstrap: str, topic: str
) -> None:
    send(source, topic, 0, range(10))
    mirror(topic, source, bootstrap)
    with bradbury.Admin(source) as admin:
        admin.create_partitions(topic, 3)
    send(source, topic, 1, range(10, 20))
    assert mirror(topic, source, bootstrap).records == 10
    send(source, topic, 2, range(20, 30))
    assert mirror(topic, source, bootstrap).records == 10
    assert values(bootstrap, f"{topic}.{topic}") == {
        partition: list(range(10 * partition, 10 * partition + 10)) for partition in range(3)
    }


def test_latest_begins_with_what_comes_after_it_and_added_partitions_whole(
    source: str, bootstrap: str, topic: str
) -> None:
    send(source, topic, 0, range(10))
    assert mirror(topic, source, bootstrap, start_offset="latest").records == 0
    send(source, topic, 0, range(10, 20))
    with bradbury.Admin(source) as admin:
        admin.create_partitions(topic, 3)
    send(source, topic, 2, range(30, 40))
    assert mirror(topic, source, bootstrap, start_offset="latest").records == 20
    assert values(bootstrap, f"{topic}.{topic}") == {0: [*range(10, 20)], 2: [*range(30, 40)]}


def test_a_topic_made_again_is_a_loss_or_copied_behind_the_former_one_whole(
    source: str, bootstrap: str, topic: str
) -> None:
    for partition in range(2):
        send(source, topic, partition, range(10))
    mirror(topic, source, bootstrap)
    delete(source, topic)
    make(source, topic)
    send(source, topic, 0, range(100, 105))
    with pytest.raises(DataLoss, match="recreated"):
        mirror(topic, source, bootstrap)
    assert mirror(topic, source, bootstrap, fail_on_data_loss=False).records == 5
    # Its other partition had nothing then; the former topic's position must not count for it.
    send(source, topic, 1, range(200, 220))
    assert mirror(topic, source, bootstrap).records == 20
    assert values(bootstrap, f"{topic}.{topic}") == {
        0: [*range(10), *range(100, 105)],
        1: [*range(10), *range(200, 220)],
    }


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_topic_may_be_made_again_between_a_look_and_what_is_said_of_it(
    source: str,
    bootstrap: str,
    topic: str,
    exactly_once: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send(source, topic, 0, range(10))
    options = {"exactly_once": exactly_once, "fail_on_data_loss": False}
    look = RecordCopier._new_ranges
    looks = []

    def made_again_after_the_first(copier: RecordCopier) -> list[PartitionRange]:
        found = look(copier)
        looks.append(found)
        if len(looks) == 1:
            delete(source, topic)
            make(source, topic)
            send(source, topic, 0, range(100, 105))
        return found

    monkeypatch.setattr(RecordCopier, "_new_ranges", made_again_after_the_first)
    assert mirror(topic, source, bootstrap, **options).records == 5
    assert len(looks) > 1
    assert values(bootstrap, f"{topic}.{topic}") == {0: [*range(100, 105)]}


def test_a_topic_made_again_while_it_is_copied_is_a_loss(
    source: str, bootstrap: str, topic: str
) -> None:
    send(source, topic, 0, range(500))
    seen = []

    def make_again(progress: Any) -> None:
        seen.append(progress.records)
        if len(seen) == 1:
            delete(source, topic)
            make(source, topic)
            send(source, topic, 0, range(1_000, 2_000))

    with pytest.raises((DataLoss, KafkaError)):
        mirror(topic, source, bootstrap, commit_records=100, on_progress=make_again)
    with pytest.raises(DataLoss, match="recreated"):
        mirror(topic, source, bootstrap)
    assert max(values(bootstrap, f"{topic}.{topic}")[0]) < 500


def test_a_target_topic_that_was_deleted_is_a_loss_or_filled_again(
    source: str, bootstrap: str, topic: str
) -> None:
    send(source, topic, 0, range(10))
    mirror(topic, source, bootstrap)
    delete(bootstrap, f"{topic}.{topic}")
    for _ in range(2):
        with pytest.raises(
            DataLoss, match=r"of the target was deleted.*copy it again.*--allow-data-loss"
        ):
            mirror(topic, source, bootstrap)
    assert mirror(topic, source, bootstrap, fail_on_data_loss=False).records == 10
    assert values(bootstrap, f"{topic}.{topic}") == {0: list(range(10))}


def test_an_alias_keeps_its_policy(source: str, bootstrap: str, topic: str) -> None:
    send(source, topic, 0, range(10))
    mirror(topic, source, bootstrap)
    with pytest.raises(MirrorFailed, match="use the former policy, or another alias"):
        mirror(topic, source, bootstrap, policy="identity")
    with bradbury.Admin(bootstrap) as admin:
        assert topic not in admin.list_topics()


def test_retention_during_a_copy_is_a_loss_or_passed_over(
    source: str, bootstrap: str, topic: str
) -> None:
    send(source, topic, 0, range(500))
    seen = []

    def take_away(progress: Any) -> None:
        seen.append(progress.records)
        if len(seen) == 1:
            with bradbury.Admin(source) as admin:
                admin.delete_records({(topic, 0): 400})

    options: dict[str, Any] = {"commit_records": 100, "on_progress": take_away}
    with pytest.raises(DataLoss, match="was deleted"):
        mirror(topic, source, bootstrap, **options)
    mirror(topic, source, bootstrap, fail_on_data_loss=False)
    assert values(bootstrap, f"{topic}.{topic}") == {0: [*range(100), *range(400, 500)]}


def test_many_aborted_records_take_few_transactions(
    source: str, bootstrap: str, topic: str
) -> None:
    with bradbury.Producer(source, transactional_id=topic) as producer:
        producer.begin()
        for number in range(20_000):
            producer.send(topic, b"%d" % number, partition=0)
        producer.abort()
        with producer.transaction():
            producer.send(topic, b"1", partition=0)
    done = mirror(topic, source, bootstrap)
    assert (done.records, done.behind) == (1, 0)
    assert done.commits < 10
    assert done.bytes < 4_000_000, "what is fetched again is not counted, and not fetched"


def test_both_ways_with_all_topics_makes_nothing_of_each_others(bootstrap: str) -> None:
    with bradbury.local() as other:
        there = other.bootstrap_servers
        make(there, "from-there")
        send(there, "from-there", 0, range(10))
        for _ in range(3):
            mirror(".*there", there, bootstrap, alias="there")
            with pytest.raises(MirrorFailed, match="form a cycle"):
                mirror("there.*there", bootstrap, there, alias="here")
            with bradbury.Admin(there) as admin:
                names = [name for name in admin.list_topics() if not name.endswith(".internal")]
            assert names == ["from-there"]
        send(there, "from-there", 0, range(10, 20))
        assert mirror(".*there", there, bootstrap, alias="there").records == 10


def test_groups_and_new_topics_are_looked_at_during_a_long_copy(
    source: str, bootstrap: str, topic: str
) -> None:
    send(source, topic, 0, range(3_000))
    with bradbury.Admin(source) as admin:
        admin.alter_group_offsets(f"group-{topic}", {(topic, 0): 5})
    stop = threading.Event()
    found = threading.Event()

    def look(progress: Any) -> None:
        with bradbury.Admin(bootstrap) as admin:
            if admin.group_offsets(f"group-{topic}"):
                found.set()
        if found.is_set() or progress.behind < 100:
            stop.set()

    mirror(
        topic,
        source,
        bootstrap,
        continuous=True,
        stop=stop,
        commit_records=10,
        groups=f"group-{topic}",
        sync_groups_interval_s=0.1,
        on_progress=look,
    )
    assert found.is_set(), "before the copy came to its end"
