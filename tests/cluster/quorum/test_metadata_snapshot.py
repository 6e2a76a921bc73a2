"""What is in a snapshot of the metadata, when is one taken, and is a damaged one ever believed?"""

from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    ClusterRecord,
    ConfigRecord,
    DrainRecord,
    EpochRecord,
    FenceNodeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterNodeRecord,
    RemoveNodeRecord,
    TopicRecord,
    VotersRecord,
)
from bradbury.cluster.quorum.metadata_snapshot import (
    SnapshotPolicy,
    check_snapshot,
    decode_snapshot,
    encode_snapshot,
    parse_snapshot_name,
    snapshot_name,
)
from bradbury.cluster.quorum.voter import LogEnd
from bradbury.protocol.errors import CorruptMessage

NOW = 1_700_000_000_000


def image(*, partitions: int = 3) -> MetadataImage:
    topic_id = str(UUID(int=5))
    nodes = [
        RegisterNodeRecord(
            node_id=node_id,
            directory_id=f"d{node_id}",
            incarnation="i",
            roles=("broker",),
            host="h",
            port=1,
            rack=None,
            epoch=node_id,
            metadata_directory_id=f"m{node_id}",
        )
        for node_id in (1, 2, 3)
    ]
    records = [
        EpochRecord(epoch=4, owner="me"),
        ClusterRecord(cluster_id="c", voters=("m1", "m2", "m3")),
        *nodes,
        FenceNodeRecord(node_id=2, epoch=2, fenced=True),
        RemoveNodeRecord(node_id=3),
        DrainRecord(machine="x", is_draining=True),
        TopicRecord(topic_id=topic_id, name="t"),
        *(
            PartitionRecord(
                topic_id=topic_id,
                partition=index,
                replicas=(1, 2),
                isr=(1,),
                leader=1,
                leader_epoch=index,
                partition_epoch=7,
                elr=(2,),
                adding=(3,),
            )
            for index in range(partitions)
        ),
        ConfigRecord(resource="topic", name="t", key="retention.ms", value="5"),
        ConfigRecord(resource="broker", name="", key="log.retention.ms", value="6"),
        ProducerIdsRecord(next_producer_id=3000),
        VotersRecord(voters=("m1", "m2")),
    ]
    return MetadataImage().apply(records, offset=1234)


def test_it_holds_the_same_as_the_log_that_it_replaces() -> None:
    before = image()
    assert decode_snapshot(encode_snapshot(before, now_ms=NOW)) == before


def test_a_large_one_is_many_batches_and_says_the_same() -> None:
    before = image(partitions=2_500)
    data = encode_snapshot(before, now_ms=NOW)
    assert decode_snapshot(data) == before
    assert check_snapshot(data) == LogEnd(4, 1234)


@settings(deadline=None)
@given(cut=st.integers(min_value=0, max_value=3_000))
def test_the_beginning_of_one_is_none(cut: int) -> None:
    data = encode_snapshot(image(), now_ms=NOW)
    with pytest.raises(CorruptMessage):
        decode_snapshot(data[: cut % len(data)])


def test_one_that_lacks_a_whole_batch_is_none() -> None:
    data = encode_snapshot(image(partitions=2_500), now_ms=NOW)
    sizes = []
    position = 0
    while position < len(data):
        sizes.append(12 + int.from_bytes(data[position + 8 : position + 12], "big"))
        position += sizes[-1]
    assert len(sizes) == 4
    with pytest.raises(CorruptMessage):
        check_snapshot(data[: -sizes[-1]])
    with pytest.raises(CorruptMessage):
        check_snapshot(data[sizes[0] :])


@settings(deadline=None)
@given(position=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
def test_one_with_a_flipped_bit_is_none_or_says_the_same(position: int, bit: int) -> None:
    before = image()
    data = bytearray(encode_snapshot(before, now_ms=NOW))
    data[position % len(data)] ^= 1 << bit
    try:
        assert decode_snapshot(bytes(data)) == before  # offset and epoch are outside of the CRC
    except CorruptMessage:
        pass


@given(garbage=st.binary(max_size=200))
def test_garbage_is_none(garbage: bytes) -> None:
    with pytest.raises(CorruptMessage):
        check_snapshot(garbage)


def test_its_name_has_its_end_offset_and_epoch_as_kafkas_has() -> None:
    name = snapshot_name(LogEnd(7, 368769))
    assert name == "00000000000000368769-0000000007.checkpoint"
    assert parse_snapshot_name(name) == LogEnd(7, 368769)
    for other in (name + ".tmp", "00000000000000000000.log", "a-b.checkpoint", "1.checkpoint"):
        assert parse_snapshot_name(other) is None


def test_one_is_due_when_there_is_enough_to_drop_or_when_time_is_up() -> None:
    policy = SnapshotPolicy(max_bytes=1000, max_interval_ms=60)
    assert policy.is_due(log_bytes=1000, age_ms=0)
    assert policy.is_due(log_bytes=1, age_ms=60)
    assert not policy.is_due(log_bytes=999, age_ms=59)
    assert not policy.is_due(log_bytes=0, age_ms=10_000), "nothing has changed"
    assert not SnapshotPolicy(max_bytes=9, max_interval_ms=0).is_due(log_bytes=8, age_ms=10**9)
