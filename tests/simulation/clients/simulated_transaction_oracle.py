"""What transactions promise to readers of committed records and to groups, checked as it is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bradbury.protocol.messages.fetch import PartitionData
from bradbury.protocol.messages.offset_fetch import OffsetFetchResponseGroup
from bradbury.protocol.topic_name import TRANSACTIONS_TOPIC
from bradbury.protocol.topic_partition import TopicPartitionPair

from ..world.simulated_replica import Batch, SimulatedReplica
from .simulated_log_checks import Violation

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster

Told = tuple[int, int]
"""A high watermark and a last stable offset."""


class Transaction:
    """One transaction of one producer, as the oracle keeps it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.transactional_id = name.partition(":")[0]
        self.offset: int | None = None
        """What it commits as the offset of its id's group; transactions are numbered so."""
        self.values: dict[TopicPartitionPair, list[bytes]] = {}
        """What was sent, and has to be seen if it is committed."""
        self.is_commit_asked = False
        self.is_committed = False
        """The coordinator has said so."""


class TransactionOracle:
    """What readers of committed records may see.

    T1  nothing of a transaction that nobody has asked to commit, ever
    T2  all of a committed one, once, in each of its partitions, in the order it was sent
    T3  all or nothing of one whose end nobody knows
    T4  at rest everything is stable: no transaction is open for longer than its timeout
    T5  what the first read of an offset has shown is what each later one shows
    T6  the offset of a group is that of its last committed transaction, with all its records
    T8  the last stable offset is that of the records below the high watermark told with it, and
        neither of them goes back at one replica
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._by_name: dict[bytes, Transaction] = {}
        self._shown: dict[tuple[TopicPartitionPair, int], bytes] = {}
        self._told: dict[SimulatedReplica, Told] = {}
        self._stable_ends: dict[tuple[TopicPartitionPair, int, int], int] = {}
        """By partition, high watermark and log start: counted once."""
        self.commits = 0
        self._offsets: dict[str, dict[int, Transaction]] = {}
        """By transactional id."""

    def begin(self, name: str) -> Transaction:
        transaction = self._by_name[name.encode()] = Transaction(name)
        return transaction

    def take_offset(self, transaction: Transaction) -> None:
        """Transactions of an id end in the order in which they have begun: by its epochs."""
        offsets = self._offsets.setdefault(transaction.transactional_id, {})
        transaction.offset = len(offsets) + 1
        offsets[transaction.offset] = transaction

    def least_offset(self, transactional_id: str) -> int:
        """Of what is known to be committed by now."""
        offsets = self._offsets.get(transactional_id, {})
        return max((each for each in offsets if offsets[each].is_committed), default=-1)

    def on_offset_read(self, transactional_id: str, offset: int, least: int) -> None:
        """`least`: of when it was asked for."""
        transaction = self._offsets.get(transactional_id, {}).get(offset)
        what = f"offset {offset} of {transactional_id}"
        if offset < least:
            raise Violation("T6", f"{what} is shown, {least} was committed", None)
        if offset >= 0 and (transaction is None or not transaction.is_commit_asked):
            raise Violation("T6", f"{what} is shown, nobody commits it", None)

    def _check_offset(self, transaction: Transaction, final: int, *, is_shown: bool) -> None:
        assert transaction.offset is not None
        what = f"offset {transaction.offset} of {transaction.name}"
        if transaction.is_committed and transaction.offset > final:
            raise Violation("T6", f"{what} is missing: {final}", None)
        if is_shown and transaction.offset > final:
            raise Violation("T6", f"{what} is not there, its records are: {final}", None)
        if transaction.offset == final and not is_shown:
            raise Violation("T6", f"{what} is there, its records are not", None)

    def note(self, text: str) -> None:
        self._cluster.oracle.note((TRANSACTIONS_TOPIC, 0), text)

    def on_committed(self, transaction: Transaction) -> None:
        transaction.is_committed = True
        self.commits += 1

    def on_read(self, partition_id: TopicPartitionPair, offset: int, value: bytes) -> None:
        if self.is_damaged(partition_id):
            return
        transaction = self._by_name.get(value.rpartition(b"/")[0])
        if transaction is None or value not in transaction.values.get(partition_id, ()):
            raise Violation("phantom", f"nobody has sent {value!r} there", partition_id)
        if not transaction.is_commit_asked:
            raise Violation("T1", f"{value!r} is shown, nobody commits it", partition_id)
        before = self._shown.setdefault((partition_id, offset), value)
        if before != value:
            raise Violation("T5", f"{value!r} at {offset}, before {before!r}", partition_id)

    def on_answer(self, replica: SimulatedReplica, data: PartitionData) -> None:
        """T8 of an answer to a reader of committed records, by the replica that gave it.

        What is committed stays, and so does which transactions are open below an offset of it: so
        the last stable offset follows from the high watermark, at a leader and at a follower, before
        and after an election or a restart, and it goes back only where the high watermark does. That
        is legitimate between replicas, in Kafka, too: another leader may not know yet how much is
        committed, and a follower hears of it a fetch later. At one replica it is not, from its
        opening on: it loses what is committed only where a partition is damaged.

        Where records are deleted, a transaction may have begun below the log start. A log that had
        its first record counts the log start for it; one that was copied later, the first record
        that it has, or nothing.
        """
        partition_id, start = replica.partition_id, data.log_start_offset
        high_watermark, stable = told = data.high_watermark, data.last_stable_offset
        if self._cluster.oracle.ledgers[partition_id].is_damaged:
            return
        before = self._told.get(replica, (0, 0))
        if high_watermark < before[0] or stable < before[1]:
            raise Violation(
                "T8",
                f"{replica} has high watermark and last stable offset {told}, before {before}",
                partition_id,
            )
        self._told[replica] = told
        least = max(start, self._stable_end(partition_id, high_watermark, 0))
        most = max(start, self._stable_end(partition_id, high_watermark, start))
        if not least <= stable <= most:
            raise Violation(
                "T8",
                f"{replica} calls {stable} the last stable offset below {high_watermark}, the records"
                f" {least}" + (f" to {most}" if most > least else ""),
                partition_id,
            )

    def _stable_end(self, partition_id: TopicPartitionPair, high_watermark: int, start: int) -> int:
        """By the committed records from `start` on."""
        place = partition_id, high_watermark, start
        if place not in self._stable_ends:
            committed = self._cluster.oracle.ledgers[partition_id].committed
            self._stable_ends[place] = stable_end(committed, high_watermark, start)
        return self._stable_ends[place]

    def is_damaged(self, partition_id: TopicPartitionPair) -> bool:
        """Data was lost beyond what its settings promise: of the partition, or of a coordinator."""
        ledgers = self._cluster.oracle.ledgers
        return any(
            ledgers[each].is_damaged
            for each in self._cluster.all_partitions
            if each == partition_id or each[0] == TRANSACTIONS_TOPIC
        )

    def check_end(
        self, read: dict[TopicPartitionPair, list[bytes]], offsets: dict[str, int | None]
    ) -> None:
        """`read`: all that a reader of committed records has seen at rest, by partition.

        `offsets`: of the groups at rest, by transactional id.
        """
        damaged = {each for each in read if self.is_damaged(each)}
        for transaction in self._by_name.values():
            seen = set()
            for partition_id, values in transaction.values.items():
                if partition_id in damaged:
                    continue
                own = set(values)
                found = [each for each in read[partition_id] if each in own]
                if found and found != values:
                    raise Violation(
                        "T2", f"of {transaction.name} {found}, not {values}", partition_id
                    )
                seen.add(bool(found))
                if transaction.is_committed and not found:
                    raise Violation("T2", f"{transaction.name} is missing", partition_id)
                if not transaction.is_commit_asked and found:
                    raise Violation("T1", f"{transaction.name} is shown", partition_id)
            if len(seen) > 1:
                raise Violation("T3", f"{transaction.name} is shown in part", None)
            if transaction.offset is not None and len(seen) == 1:
                final = offsets[transaction.transactional_id]
                if final is not None:
                    self._check_offset(transaction, final, is_shown=True in seen)


def stable_end(committed: list[Batch], high_watermark: int, start: int) -> int:
    """Where the first transaction begins whose marker is not below the high watermark."""
    opened: dict[int, int] = {}
    for batch in committed:
        if batch.base_offset >= high_watermark:
            break
        if batch.is_control:
            opened.pop(batch.producer_id, None)
        elif batch.is_transactional and batch.next_offset > start:
            opened.setdefault(batch.producer_id, batch.base_offset)
    return min(opened.values(), default=high_watermark)


def offset_in(found: OffsetFetchResponseGroup) -> int | None:
    """None: it is pending."""
    [partition] = found.topics[0].partitions
    return None if partition.error_code else partition.committed_offset
