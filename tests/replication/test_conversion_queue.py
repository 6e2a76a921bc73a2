"""In which order do batches reach the log when some of them have to be converted first?

The step alone: the test says when a conversion has ended.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from bradbury.cluster.metadata.metadata_image import PartitionImage
from bradbury.protocol.errors import (
    InvalidRecord,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from bradbury.protocol.records.legacy_messages import MAGIC_POSITION, convert_down
from bradbury.protocol.records.records import encode_records, iterate_records
from bradbury.replication.partition.conversion_queue import (
    LEAST_RECORDS,
    MOST_BYTES_OPENED_AT_ONCE,
    BatchAppended,
    Conversion,
    ConversionMemory,
    ConvertRecords,
    RecordsCheckedSlowly,
)
from bradbury.replication.partition.replica import Replica
from bradbury.steps.replies import Refuse, Reply
from bradbury.storage.log_config import LogConfig
from bradbury.storage.segments.batch_scan import walk_headers
from bradbury.tests.support.storage.logs import open_log


class Leader:
    """Node 1 leads t-0, which is in sync at node 2 as well if `replicas` says so."""

    node_id = 1

    def __init__(
        self,
        folder: Path,
        *,
        replicas: tuple[int, ...] = (1,),
        most_bytes: int = 1 << 20,
        **log: Any,
    ) -> None:
        self.effects: list[Any] = []
        self.changed: dict[Replica, None] = {}
        self.conversion_memory = ConversionMemory(most_bytes)
        self.log = open_log(folder, config=LogConfig(**log))
        self.replica = Replica("t", 0, self.log, self)
        self.replicas = replicas
        self.epoch = -1
        self.queue = self.replica.conversions
        self.lead()

    def on_follower_caught_up(self, replica: Replica) -> None: ...
    def on_storage_failure(self) -> None: ...

    def lead(self) -> None:
        """In the next epoch."""
        self.epoch += 1
        self.log.local.assign_epoch(self.epoch)
        state = PartitionImage(self.replicas, self.replicas, 1, self.epoch, self.epoch)
        self.replica.become_leader(state, 0)

    def produce(
        self, name: str, data: bytes | bytearray, *, is_loaded: bool = True, acks_all: bool = False
    ) -> bool:
        """Produce under a name; returns whether it was appended at once."""
        result = self.queue.produce(
            memoryview(data),
            is_message_set=data[MAGIC_POSITION] < 2,
            acks_all=acks_all,
            is_check_loaded=lambda: is_loaded,
            now_ms=0,
            wall_ms=1_000,
        )
        if isinstance(result, Conversion):
            self.queue.begin(result, name, lambda: f"{name} is committed")
            return False
        return True

    def take(self, kind: type) -> list[Any]:
        """The effects of a kind, which are carried out by this."""
        found = [each for each in self.effects if isinstance(each, kind)]
        self.effects[:] = [each for each in self.effects if not isinstance(each, kind)]
        return found

    def convert(self, effect: ConvertRecords) -> None:
        """A thread has carried out this one."""
        failure = None
        try:
            effect.conversion.run()
        except InvalidRecord as error:
            failure = error
        effect.queue.on_converted(effect.conversion, failure, now_ms=5, wall_ms=1_005)

    @property
    def values(self) -> list[str]:
        found: list[str] = []
        for segment in self.log.segments:
            for position, header in walk_headers(segment.file, 0, segment.size):
                content = segment.file.read_at(header.size, position)
                found += [bytes(each.value or b"").decode() for each in iterate_records(content)]
        return found


def batch(value: str, **given: Any) -> bytearray:
    return encode_records([(1_000, None, value.encode(), ())], **given)


def old(value: str, magic: int = 1) -> bytearray:
    """A message set."""
    return bytearray(convert_down(bytes(batch(value)), magic, fetch_offset=0, limit=1 << 20))


def answered(leader: Leader) -> list[str]:
    return [each.ticket for each in leader.take(BatchAppended)]


def test_what_is_converted_first_waits_for_those_before_it(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    for name in ("a", "b", "c"):
        assert not leader.produce(name, old(name))
    first, second, third = leader.take(ConvertRecords)
    leader.convert(third)
    leader.convert(second)
    assert (leader.values, answered(leader), len(leader.queue)) == ([], [], 3)
    leader.convert(first)
    assert (leader.values, answered(leader)) == (["a", "b", "c"], ["a", "b", "c"])
    assert (len(leader.queue), leader.conversion_memory.reserved) == (0, 0)


def test_a_batch_that_needs_no_conversion_waits_behind_one_that_does(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    assert leader.produce("at once", batch("at once"))
    leader.produce("old", old("old", magic=0))
    assert not leader.produce("new", batch("new"))
    converting, opening = leader.take(ConvertRecords)
    leader.convert(opening)
    assert leader.values == ["at once"]
    leader.convert(converting)
    assert leader.values == ["at once", "old", "new"]
    assert leader.produce("again at once", batch("again at once"))


def test_a_batch_that_cannot_be_converted_is_refused_alone(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    damaged = old("a")
    damaged[-1] ^= 1  # and with it the checksum
    leader.produce("a", damaged)
    leader.produce("b", old("b"))
    first, second = leader.take(ConvertRecords)
    leader.convert(second)
    effect_failure = InvalidRecord("its checksum is wrong")
    first.queue.on_converted(first.conversion, effect_failure, now_ms=5, wall_ms=1_005)
    [refused] = leader.take(Refuse)
    assert (refused.ticket, refused.error) == ("a", effect_failure)
    assert (leader.values, answered(leader)) == (["b"], ["b"])


def test_nothing_that_waits_is_appended_in_a_later_epoch(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.produce("a", old("a"))
    leader.produce("b", batch("b"))
    converting, _ = leader.take(ConvertRecords)
    leader.lead()
    refused = leader.take(Refuse)
    assert [each.ticket for each in refused] == ["a", "b"]
    assert all(isinstance(each.error, NotLeaderOrFollower) for each in refused)
    assert leader.produce("b", batch("b")), "it is sent again, and waits for nobody"
    leader.convert(converting)
    assert leader.values == ["b"]
    assert leader.take(BatchAppended) == leader.take(Refuse) == []


def test_a_replica_that_resigns_refuses_what_waits_before_its_log_is_closed(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.produce("a", old("a"))
    [converting] = leader.take(ConvertRecords)
    leader.replica.resign()
    assert [each.ticket for each in leader.take(Refuse)] == ["a"]
    leader.log.close(clean=True)
    leader.convert(converting)
    assert leader.effects == []


def test_a_batch_that_is_abandoned_counts_until_no_thread_has_it(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    converted, waiting = old("a"), batch("b")
    leader.produce("a", converted)
    leader.produce("b", waiting)
    assert leader.conversion_memory.reserved == len(converted) + len(waiting)
    converting, opening = leader.take(ConvertRecords)
    leader.queue.on_converted(opening.conversion, None, now_ms=5, wall_ms=1_005)
    leader.replica.resign()
    assert leader.conversion_memory.reserved == len(converted)
    converting.conversion.run()
    assert converting.conversion.batch == converted, "nobody needs it: it is not converted"
    leader.convert(converting)
    assert leader.conversion_memory.reserved == 0


def test_memory_is_bounded_and_a_single_large_batch_always_fits(tmp_path: Path) -> None:
    leader = Leader(tmp_path, most_bytes=10)
    leader.produce("a", old("a"))
    with pytest.raises(RequestTimedOut):
        leader.produce("b", old("b"))
    assert len(leader.queue) == 1, "what is refused is not taken"
    leader.convert(*leader.take(ConvertRecords))
    leader.produce("c", old("c"))
    leader.convert(*leader.take(ConvertRecords))
    assert leader.values == ["a", "c"]


def test_acks_all_waits_from_the_append_on_for_the_followers(tmp_path: Path) -> None:
    leader = Leader(tmp_path, replicas=(1, 2))
    leader.produce("a", old("a"), acks_all=True)
    leader.convert(*leader.take(ConvertRecords))
    [appended] = leader.take(BatchAppended)
    assert (appended.ticket, appended.committed) == ("a", "a is committed")
    assert leader.take(Reply) == []
    leader.replica.resign()
    assert [each.ticket for each in leader.take(Refuse)] == ["a is committed"]


def test_a_batch_that_needs_too_many_in_sync_is_not_taken(tmp_path: Path) -> None:
    leader = Leader(tmp_path, replicas=(1, 2), min_insync_replicas=2)
    leader.replica.on_isr((1,), partition_epoch=1)
    with pytest.raises(NotEnoughReplicas):
        leader.produce("a", old("a"), acks_all=True)
    assert leader.effects == []


def test_a_batch_of_another_codec_than_the_topics_is_converted(tmp_path: Path) -> None:
    leader = Leader(tmp_path, compression_type="gzip")
    assert not leader.produce("a", batch("a"))
    leader.convert(*leader.take(ConvertRecords))
    assert leader.produce("b", batch("b", codec=1)), "it has the topic's codec"
    assert leader.values == ["a", "b"]


@pytest.mark.parametrize("is_large", [False, True])
def test_keys_of_a_large_batch_are_looked_at_in_a_thread(tmp_path: Path, *, is_large: bool) -> None:
    leader = Leader(tmp_path, cleanup_policy="compact")
    value = bytes(MOST_BYTES_OPENED_AT_ONCE if is_large else 1)
    keyed = encode_records([(1_000, b"key", value, ())])
    assert leader.produce("keyed", keyed) is not is_large
    assert len(leader.take(ConvertRecords)) == is_large


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_large_batch_is_opened_in_a_thread_and_a_small_one_at_once(
    tmp_path: Path, *, is_loaded: bool
) -> None:
    leader = Leader(tmp_path)
    value = Random(7).randbytes(MOST_BYTES_OPENED_AT_ONCE)
    large = encode_records([(1_000, None, value, ())], codec=3 if is_loaded else 0)
    assert leader.produce("small", batch("small"), is_loaded=is_loaded)
    assert not leader.produce("large", large, is_loaded=is_loaded)
    assert leader.take(RecordsCheckedSlowly) == [], "the compiled check does not pay for so few"
    many = encode_records([(1_000, None, b"v", ())] * LEAST_RECORDS)
    leader.produce("many", many, is_loaded=is_loaded)
    slow = [each.record_count for each in leader.take(RecordsCheckedSlowly)]
    assert slow == ([] if is_loaded else [LEAST_RECORDS])
