"""A topic is deleted and created again under a consumer: are its new records read from the first one?

Its log may be shorter than the consumer's position. By the leader epochs alone that looks like a log
that was truncated, at whose end a consumer would go on: the records before it are new ones here.
"""

import time

import pytest

import bradbury
from bradbury.protocol.errors import OffsetOutOfRange

OLD, NEW = 100, 10
PATIENCE_S = 60


def fill(servers: str, topic: str, word: str, count: int) -> None:
    with bradbury.Producer(servers) as producer:
        producer.send_batch(topic, [f"{word} {number}".encode() for number in range(count)])


def read(consumer: bradbury.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} records, then none"
        found += consumer.poll(500)["value"].to_pylist()
    return found


def recreate(servers: str, topic: str) -> None:
    with bradbury.Admin(servers) as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic)


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("is_member", [True, False], ids=["in a group", "alone"])
def test_its_records_are_read_from_the_first_one(
    bootstrap: str, isolation_level: str, is_member: bool
) -> None:
    topic = f"recreated-{isolation_level}-{is_member}"
    with bradbury.Admin(bootstrap) as admin:
        admin.create_topic(topic)
    fill(bootstrap, topic, "old", OLD)
    with bradbury.Consumer(
        topic,
        bootstrap=bootstrap,
        group=topic if is_member else None,
        auto_offset_reset="earliest",
        isolation_level=isolation_level,
    ) as consumer:
        assert len(read(consumer, OLD)) == OLD
        recreate(bootstrap, topic)
        fill(bootstrap, topic, "new", NEW)
        assert read(consumer, NEW) == [b"new %d" % number for number in range(NEW)]
        assert consumer.poll(200).num_rows == 0


def test_without_a_reset_policy_the_consumer_says_so(bootstrap: str) -> None:
    topic = "recreated-none"
    with bradbury.Admin(bootstrap) as admin:
        admin.create_topic(topic)
    fill(bootstrap, topic, "old", OLD)
    with bradbury.Consumer(bootstrap=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 0)
        assert len(read(consumer, OLD)) == OLD
        recreate(bootstrap, topic)
        fill(bootstrap, topic, "new", NEW)
        with pytest.raises(OffsetOutOfRange):
            read(consumer, NEW)
        consumer.seek((topic, 0), 0)
        assert read(consumer, NEW) == [b"new %d" % number for number in range(NEW)]
