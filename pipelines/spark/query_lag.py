"""`offsets_behind`: the lag of a streaming query, from its progress.

    query = spark.readStream.format("bradbury")...start()
    [behind] = offsets_behind(query.lastProgress)      # {("flights", 0): 120, ...}
    print(sum(behind.values()), max(behind.values()))

Spark's Kafka connector has these numbers in sources[i].metrics (min-, max- and
avgOffsetsBehindLatest). Sources in Python can set no metrics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...protocol.topic_partition import TopicPartition

Behind = dict[TopicPartition, int]


def offsets_behind(progress: Mapping[str, Any] | None) -> list[Behind | None]:
    """Offsets that are available but not processed, by partition, for each source of a query.

    progress: a query's lastProgress or one of its recentProgress, or the progress of an event of
        StreamingQueryListener; None, as lastProgress is before the first micro-batch: no sources.

    The sources are in the order of progress["sources"]. None in place of one: it is not known, as
    of the first progress of a query, or of a source that is no topic's.
    """
    return [] if progress is None else [_behind(source) for source in progress["sources"]]


def _behind(source: Mapping[str, Any]) -> Behind | None:
    latest, done = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
    if latest is None or done is None:
        return None
    return {key: max(0, end - done.get(key, 0)) for key, end in latest.items()}


def _offsets(given: Any) -> Behind | None:
    try:
        content = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return None  # text of a source that is no topic's
    if not isinstance(content, Mapping):
        return None
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in content.items()
        if not topic.startswith("@") and isinstance(partitions, Mapping)
        for partition, offset in partitions.items()
    }
