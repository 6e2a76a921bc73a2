"""Of which cluster is a copy of the metadata log?"""

from __future__ import annotations

import pytest

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    ClusterRecord,
    EpochRecord,
    MetadataRecord,
    encode_metadata_record,
)
from bradbury.cluster.quorum.metadata_snapshot import encode_snapshot
from bradbury.cluster.quorum.voter import LogEnd
from bradbury.controller.voter_files.metadata_copies import MetadataCopy, SoundBatch
from bradbury.controller.voter_files.replicated_log import FoundSnapshot
from bradbury.protocol.records.records import encode_records

NO_SNAPSHOT = FoundSnapshot(LogEnd(-1, 0), b"", ())


def batch(offset: int, *records: MetadataRecord) -> SoundBatch:
    encoded = [(0, None, encode_metadata_record(each), ()) for each in records]
    return SoundBatch(offset, offset + len(records), 1, bytes(encode_records(encoded)))


def snapshot_of(cluster_id: str) -> FoundSnapshot:
    image = MetadataImage().apply([ClusterRecord(cluster_id=cluster_id, voters=("d",))], offset=1)
    return FoundSnapshot(LogEnd(1, 1), encode_snapshot(image, now_ms=0), ())


EPOCH = EpochRecord(epoch=1, owner="c")
NAMED = ClusterRecord(cluster_id="of-log", voters=("d",))


@pytest.mark.parametrize(
    ("snapshot", "records", "cluster_id"),
    [
        (NO_SNAPSHOT, (), ""),
        (NO_SNAPSHOT, (EPOCH,), ""),
        (NO_SNAPSHOT, (NAMED, EPOCH), "of-log"),
        (snapshot_of("of-snapshot"), (EPOCH,), "of-snapshot"),
        (snapshot_of("of-snapshot"), (NAMED,), "of-log"),
    ],
)
def test_that_of_its_newest_record_or_else_of_its_snapshot(
    snapshot: FoundSnapshot, records: tuple[MetadataRecord, ...], cluster_id: str
) -> None:
    batches = [batch(10 + number, each) for number, each in enumerate(records)]
    copy = MetadataCopy("/log", snapshot, batches, LogEnd(-1, 0), 20)
    assert copy.cluster_id == cluster_id
