"""Is a checksum the same for the same records however they are batched, and another for others?"""

import numpy as np
import pyarrow as pa
from hypothesis import assume, given, strategies as st

from bradbury.pipelines.migrations.record_checksums import Checksum, LatestPerKey, RecordChecksum
from bradbury.protocol.columns.columns import HEADERS_TYPE, DecodedBatches

Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
content = st.none() | st.binary(max_size=4)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 5),
        content,
        content,
        st.lists(st.tuples(st.sampled_from(["a", "bb"]), content), max_size=2),
    ),
    max_size=12,
)


def decoded(records: list[Record]) -> DecodedBatches:
    headers = [[{"key": key, "value": value} for key, value in one[3]] for one in records]
    return DecodedBatches(
        topic="t",
        partition=0,
        offsets=np.arange(len(records), dtype=np.int64),
        timestamps=np.array([one[0] for one in records], np.int64),
        timestamp_types=np.zeros(len(records), np.int32),
        keys=pa.array([one[1] for one in records], pa.binary()),
        values=pa.array([one[2] for one in records], pa.binary()),
        headers=pa.array(headers, HEADERS_TYPE) if any(headers) else None,
        next_offset=len(records),
        consumed_bytes=0,
        needed_bytes=0,
    )


def checksum(
    batches: list[list[Record]], kind: type[RecordChecksum | LatestPerKey] = RecordChecksum
) -> Checksum:
    total = kind()
    for batch in batches:
        total.add(decoded(batch))
    return total.result()


@given(RECORDS, st.lists(st.integers(0, 12), max_size=4))
def test_batches_do_not_count(records: list[Record], cuts: list[int]) -> None:
    ends = [0, *sorted(min(one, len(records)) for one in cuts), len(records)]
    parts = [records[start:end] for start, end in zip(ends, ends[1:], strict=False)]
    assert checksum(parts) == checksum([records])
    assert checksum(parts, LatestPerKey) == checksum([records], LatestPerKey)


@given(RECORDS, RECORDS)
def test_other_records_have_another_sum(one: list[Record], other: list[Record]) -> None:
    assume(one != other)
    assert checksum([one]) != checksum([other])


@given(RECORDS)
def test_what_compaction_throws_out_does_not_count(records: list[Record]) -> None:
    keyed = [one for one in records if one[1] is not None]
    latest = {one[1]: one for one in keyed}
    compacted = [one for one in keyed if latest[one[1]] is one and one[2] is not None]
    assert checksum([keyed], LatestPerKey) == checksum([compacted], LatestPerKey)
    assert checksum([keyed], LatestPerKey).records == len({one[1] for one in compacted})
