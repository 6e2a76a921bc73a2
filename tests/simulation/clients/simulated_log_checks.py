"""What must hold of each log of the simulation by itself: L3 and L7 of simulated_oracle; and what
its other checks need.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import TYPE_CHECKING

from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.producers.producer_state import REMEMBERED_BATCHES

from ..world.simulated_network import VirtualClock
from ..world.simulated_replica import Batch, SimulatedReplica, read_batches

if TYPE_CHECKING:
    from .simulated_ledger import Ledger

LATE_MS = 500


class Violation(AssertionError):
    """Something that must always hold did not. `partition_id` if it is about one."""

    def __init__(
        self, invariant: str, text: str, partition_id: TopicPartitionPair | None = None
    ) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant, self.partition_id = invariant, partition_id


class FormerReplicas:
    """Which nodes had a replica a moment ago: so old may be what a leader tells a reader."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._until_ms: dict[tuple[TopicPartitionPair, int], int] = {}

    def note(self, partition_id: TopicPartitionPair, node_ids: Iterable[int]) -> None:
        """They have none any more."""
        for node_id in node_ids:
            self._until_ms[partition_id, node_id] = self._clock.now_ms

    def was(self, partition_id: TopicPartitionPair, node_id: int) -> bool:
        until_ms = self._until_ms.get((partition_id, node_id), -LATE_MS)
        return until_ms > self._clock.now_ms - LATE_MS


def check_log(log: PartitionLog, partition_id: TopicPartitionPair) -> None:
    if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
        raise Violation(
            "L3",
            f"start {log.log_start_offset}, high watermark {log.high_watermark}, "
            f"end {log.log_end_offset}",
            partition_id,
        )
    if log.flushing.recovery_point > log.log_end_offset:
        raise Violation("L3", f"recovery point {log.flushing.recovery_point}", partition_id)


def check_has_all(replica: SimulatedReplica, ledger: Ledger) -> None:
    """R3: its log has everything committed."""
    log, partition_id = replica.log, replica.partition_id
    if log.log_end_offset < ledger.committed_end:
        raise Violation(
            "R3",
            f"{replica} ends at {log.log_end_offset}, committed is everything "
            f"below {ledger.committed_end}",
            partition_id,
        )
    if ledger.is_compacted:
        ledger.check_compacted(log, str(replica), partition_id)
        return
    found = read_batches(log, log.log_start_offset, log.log_end_offset)
    kept = [each for each in ledger.committed if each.next_offset > log.log_start_offset]
    for mine, committed in zip_longest(found[: len(kept)], kept):
        if mine != committed:
            raise Violation("R3", f"{replica} has {mine}, committed is {committed}", partition_id)


def has_all(replica: SimulatedReplica, ledger: Ledger) -> bool:
    """Whether its log has everything committed; not where a start has marked a loss."""
    try:
        check_has_all(replica, ledger)
    except Violation:
        return False
    return True


def check_derived(log: PartitionLog, found: list[Batch], partition_id: TopicPartitionPair) -> None:
    """Epochs, producers and open transactions are those of the records."""
    epochs: list[tuple[int, int]] = []
    last: dict[int, list[int]] = {}
    epoch_of: dict[int, int] = {}
    transactions: dict[int, int] = {}
    start = log.log_start_offset
    for batch in found:
        if not epochs or epochs[-1][0] != batch.leader_epoch:
            epochs.append((batch.leader_epoch, max(batch.base_offset, start)))
        if batch.producer_id < 0:
            continue
        if epoch_of.get(batch.producer_id) != batch.producer_epoch:
            epoch_of[batch.producer_id] = batch.producer_epoch
            last.pop(batch.producer_id, None)
        if batch.is_control:
            transactions.pop(batch.producer_id, None)
            continue
        if batch.is_transactional:
            transactions.setdefault(batch.producer_id, batch.base_offset)
        last.setdefault(batch.producer_id, []).append(batch.base_offset)
    known = log.epochs.entries
    if [entry for entry in known if entry[1] < log.log_end_offset] != epochs:
        raise Violation("L7", f"epochs {known}, the records say {epochs}", partition_id)
    # Of what is deleted producers may be remembered, or not.
    first = found[0].base_offset if found else start
    producers = {
        name: offsets
        for name, entry in log.local.producers.entries.items()
        if (offsets := [each.base_offset for each in entry.batches if each.base_offset >= first])
    }
    expected = {name: offsets[-REMEMBERED_BATCHES:] for name, offsets in last.items()}
    if producers != expected:
        raise Violation("L7", f"producers {producers}, the records say {expected}", partition_id)
    opened = log.local.producers.open_transactions
    if start == 0 and opened != transactions:
        raise Violation(
            "L7", f"transactions {opened}, the records say {transactions}", partition_id
        )


def check_sequences(partition_id: TopicPartitionPair, log: list[Batch], deleted: int) -> None:
    """X1. What is sent again when its first copy is deleted may be there: who begins behind that
    copy knows nothing of it, in Kafka, too.
    """
    expected: dict[int, int] = {}
    first: dict[tuple[int, int], int] = {}
    for batch in log:
        if batch.producer_id < 0:
            continue
        copy = first.setdefault((batch.producer_id, batch.base_sequence), batch.base_offset)
        is_again = copy < batch.base_offset and copy < deleted
        if batch.base_sequence != expected.get(batch.producer_id, 0) and not is_again:
            raise Violation(
                "X1",
                f"{batch} comes where sequence {expected.get(batch.producer_id, 0)} belongs",
                partition_id,
            )
        count = batch.next_offset - batch.base_offset
        expected[batch.producer_id] = batch.base_sequence + count
