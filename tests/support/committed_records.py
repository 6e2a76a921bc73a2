"""What a topic has for good."""

import time
from typing import Any

import bradbury

READ_SECONDS = 120
"""Far above what it takes; more is an answer that never comes, and the test should say so."""


def committed_records(bootstrap: str, topic: str, **security: Any) -> list[Any]:
    """All committed records of a topic as it is now, by partition and offset."""
    with bradbury.Admin(bootstrap, **security) as admin:
        (described,) = admin.describe_topics([topic])
    keys = [bradbury.TopicPartition(topic, n) for n in range(len(described.partitions))]
    found: list[Any] = []
    with bradbury.Consumer(
        bootstrap=bootstrap, isolation_level="read_committed", **security
    ) as consumer:
        consumer.assign(keys)
        ends = consumer.end_offsets(*keys)
        consumer.seek_to_beginning()
        until = time.monotonic() + READ_SECONDS
        while any(consumer.position(key) < end for key, end in ends.items()):
            found += consumer.records(timeout_ms=100)
            if time.monotonic() > until:
                fetcher = consumer._fetcher  # what no public figure says
                states = [repr(each) for each in fetcher.states().values()]
                raise AssertionError(
                    f"read {len(found)} records of {bootstrap} in {READ_SECONDS} s, "
                    f"not up to {ends}: {states}, busy {fetcher._busy}, {consumer.metrics()}"
                )
    return sorted(found, key=lambda each: (each.partition, each.offset))
