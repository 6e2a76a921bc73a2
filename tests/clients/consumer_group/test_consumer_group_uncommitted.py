"""Is an output ever written with an offset that does not cover it? Whatever ends in whatever order."""

import random as random_module
import threading

import pyarrow as pa
from hypothesis import given, settings, strategies as st

from bradbury.clients.consumer_group.group_output import outputs_of
from bradbury.clients.consumer_group.processing.batch import Batch, BatchMaker, Order
from bradbury.clients.consumer_group.processing.function import CallOutcome
from bradbury.clients.consumer_group.processing.group_progress import Progress
from bradbury.clients.consumer_group.processing.uncommitted import BatchEvents, Uncommitted
from bradbury.clients.wire.interceptors import ProducerRecord
from bradbury.protocol.topic_partition import TopicPartition

KEYS = [TopicPartition("t", 0), TopicPartition("t", 1)]


class Member:
    """A member's batches, and what is in the log of the group: offsets, and rows that were written."""

    def __init__(self, order: Order, stored: dict[TopicPartition, int]) -> None:
        self.progress = Progress()
        self.maker = BatchMaker(order, 3, apart=True)
        self.open: list[Batch] = []
        self.failed: list[Batch] = []
        self.positions = dict(stored)
        self.uncommitted = Uncommitted(
            threading.Condition(),
            self.progress,
            BatchEvents(
                finished=lambda batch: self.progress.on_finished(batch.spans),
                failed=self._on_failed,
                again=self.open.append,
            ),
        )
        for key in KEYS:
            self.progress.on_assigned(key, stored[key])

    def _on_failed(self, batch: Batch, outcome: CallOutcome) -> None:
        self.failed.append(batch)

    def poll(self, counts: list[int]) -> None:
        rows = []
        for key, count in zip(KEYS, counts, strict=True):
            start = self.positions[key]
            rows += [(key.topic, key.partition, offset) for offset in range(start, start + count)]
            self.positions[key] += count
        table = pa.table(
            {
                "topic": [row[0] for row in rows],
                "partition": pa.array([row[1] for row in rows], pa.int32()),
                "offset": pa.array([row[2] for row in rows], pa.int64()),
                "key": pa.array([b"%d" % (row[2] % 7) for row in rows], pa.binary()),
            }
        )
        for batch in self.maker.cut(table):
            self.progress.on_read(batch.spans)
            self.open.append(batch)


def rows_of(batch: Batch) -> list[tuple[int, int]]:
    table = batch.table
    return list(
        zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
    )


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), order=st.sampled_from([None, "key", "partition"]))
def test_rows_below_the_stored_offsets_are_written_once_and_others_never(
    seed: int, order: Order
) -> None:
    random = random_module.Random(seed)
    stored = dict.fromkeys(KEYS, 0)
    written: list[tuple[int, int]] = []
    for _ in range(3):  # members, one after the other; each dies with what it has
        member = Member(order, stored)
        for _ in range(25):
            choice = random.random()
            if choice < 0.3:
                member.poll([random.randrange(6), random.randrange(6)])
            elif choice < 0.7 and member.open:
                batch = member.open.pop(random.randrange(len(member.open)))
                member.uncommitted.put(batch, None)
            else:
                writable = member.uncommitted.writable(few=random.random() < 0.3)
                if random.random() < 0.2:
                    continue  # aborted
                written += [row for one in writable.batches for row in rows_of(one.batch)]
                stored.update(writable.offsets)
                member.uncommitted.on_written(writable)
                member.progress.on_committed(writable.offsets)
            below = [(key.partition, n) for key in KEYS for n in range(stored[key])]
            assert sorted(written) == below


def test_what_cannot_be_written_is_a_batch_that_failed_and_holds_up_what_comes_after_it() -> None:
    member = Member(None, dict.fromkeys(KEYS, 0))
    for _ in range(2):
        member.poll([3, 0])
    for batch in list(member.open):
        member.uncommitted.put(batch, None)
    first = member.uncommitted.writable(few=True)
    assert first.offsets == {KEYS[0]: 3}
    member.uncommitted.on_refused(first.batches[0], CallOutcome(ValueError()))
    assert len(member.failed) == 1
    assert member.uncommitted.writable().offsets == {}
    member.progress.on_finished(member.failed[0].spans)  # the holder of the group has dealt with it
    assert member.uncommitted.writable().offsets == {KEYS[0]: 6}


def test_a_batch_of_a_revoked_partition_is_kept_until_it_has_another_owner() -> None:
    member = Member(None, dict.fromkeys(KEYS, 0))
    member.poll([3, 3])
    for batch in list(member.open):
        member.uncommitted.put(batch, None)
    member.progress.suspend(KEYS)
    assert member.uncommitted.writable().offsets == {}
    member.progress.on_assigned(KEYS[0], 0)
    member.progress.drop_suspended()
    member.uncommitted.drop_lost()
    assert member.uncommitted.writable().offsets == {KEYS[0]: 3}


def test_a_function_returns_tables_by_topic_records_or_nothing() -> None:
    assert outputs_of(None) == []
    assert outputs_of({"t": [b"1"]}) == [("t", [b"1"])]
    records = [ProducerRecord("t", b"1", None, None, None, None)]
    assert outputs_of(iter(records)) == records
    for wrong in (b"t", 3, [b"1"], {1: []}):
        try:
            outputs_of(wrong)
        except TypeError as error:
            assert "the function" in str(error)
        else:
            raise AssertionError(wrong)
