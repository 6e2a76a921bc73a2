"""Which voters does a log name that grows, is truncated, and begins after a snapshot?"""

from bradbury.cluster.metadata.metadata_records import (
    ClusterRecord,
    ConfigRecord,
    EpochRecord,
    MetadataRecord,
    VotersRecord,
    encode_metadata_record,
)
from bradbury.cluster.quorum.voter_history import VoterHistory
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import encode_records

FIRST, SECOND = ("a",), ("a", "b")


def batch(offset: int, *records: MetadataRecord) -> bytes:
    made = encode_records([(0, None, encode_metadata_record(each), ()) for each in records])
    stamp(made, base_offset=offset, leader_epoch=1)
    return bytes(made)


def history() -> VoterHistory:
    made = VoterHistory(("formatted",))
    made.append(
        batch(0, EpochRecord(epoch=1, owner="o"))
        + batch(1, ClusterRecord(cluster_id="c", voters=FIRST))
    )
    made.append(batch(2, EpochRecord(epoch=2, owner="o"), VotersRecord(voters=SECOND)))
    return made


def test_the_formatted_voters_count_until_the_log_names_others() -> None:
    assert VoterHistory(("formatted",)).newest == ("formatted",)
    assert history().newest == SECOND


def test_what_is_cut_takes_its_voters_with_it() -> None:
    made = history()
    made.truncate(3)
    assert made.newest == FIRST
    made.truncate(0)
    assert made.newest == ("formatted",)


def test_a_log_that_begins_later_still_says_who_voted_there() -> None:
    made = history()
    made.compact(3)
    made.truncate(3)
    assert made.newest == FIRST
    made.restart(("x", "y"))
    assert made.newest == ("x", "y")


def test_what_only_looks_like_it_is_not_accepted() -> None:
    made = history()
    value = '{"type":"VotersRecord","voters":["evil"]}'
    made.append(batch(4, ConfigRecord(resource="topic", name="t", key="k", value=value)))
    assert made.newest == SECOND
