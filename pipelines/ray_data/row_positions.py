"""Offsets to commit, from the rows that a pipeline has output, in order.

Invariants:
    An offset is returned only after all rows before it, except those filtered out, were seen:
    rows come in order, which is checked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.topic_partition import TopicPartition


class RowPositions:
    """Next offsets of the rows seen so far.

    topics: topics that are read; if there is only one, rows need no column `topic`.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics
        self._next: dict[TopicPartition, int] = {}

    def advance(self, rows: pa.Table) -> dict[TopicPartition, int]:
        """Next offset of each partition that has rows in `rows`.

        Raises:
            ValueError: a column is missing, or offsets of a partition do not ascend.
        """
        if not len(rows):
            return {}
        partitions = self._column(rows, "partition")
        offsets = self._column(rows, "offset")
        topics = self._topics_of(rows)
        advanced: dict[TopicPartition, int] = {}
        for topic in np.unique(topics):
            of_topic = topics == topic
            for partition in np.unique(partitions[of_topic]):
                key = TopicPartition(self._topics[int(topic)], int(partition))
                found = offsets[of_topic & (partitions == partition)]
                self._check(key, found)
                self._next[key] = advanced[key] = int(found[-1]) + 1
        return advanced

    def _check(self, key: TopicPartition, offsets: np.ndarray) -> None:
        before = self._next.get(key, 0) - 1
        steps = np.diff(offsets, prepend=before)
        if (wrong := np.flatnonzero(steps <= 0)).size:
            at = int(wrong[0])
            previous = before if at == 0 else int(offsets[at - 1])
            raise ValueError(
                f"offset {int(offsets[at])} of {key} comes after {previous}: the rows of a "
                "continuous Dataset that is committed must stay in order, and none may become "
                "several; remove sort, shuffle and flat_map, or output one row for each"
            )

    def _column(self, rows: pa.Table, name: str) -> np.ndarray:
        if name not in rows.column_names:
            raise ValueError(
                f"there is no column {name!r}: the rows of a continuous Dataset that is committed "
                "need the columns partition and offset, and topic if there are several; there are "
                f"{', '.join(rows.column_names)}"
            )
        return np.asarray(rows.column(name).to_numpy()).astype(np.int64, copy=False)

    def _topics_of(self, rows: pa.Table) -> np.ndarray:
        """Index in `topics` of each row's topic."""
        if len(self._topics) == 1:
            return np.zeros(len(rows), np.int64)
        if "topic" not in rows.column_names:
            self._column(rows, "topic")  # raises
        found = pc.index_in(rows.column("topic"), value_set=pa.array(self._topics))
        if found.null_count:
            raise ValueError("the column topic names topics that are not read")
        return np.asarray(found.to_numpy())
