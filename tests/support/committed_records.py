"""What a topic has for good."""

from typing import Any

import bradbury


def committed_records(bootstrap: str, topic: str) -> list[Any]:
    """All committed records of a topic as it is now, by partition and offset."""
    with bradbury.Admin(bootstrap) as admin:
        (described,) = admin.describe_topics([topic])
    keys = [bradbury.TopicPartition(topic, n) for n in range(len(described.partitions))]
    found: list[Any] = []
    with bradbury.Consumer(bootstrap=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(keys)
        ends = consumer.end_offsets(*keys)
        consumer.seek_to_beginning()
        while any(consumer.position(key) < end for key, end in ends.items()):
            found += consumer.records(timeout_ms=100)
    return sorted(found, key=lambda each: (each.partition, each.offset))
