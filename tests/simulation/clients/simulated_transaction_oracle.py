"""What transactions promise to readers of committed records and to groups, checked as it is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bradbury.protocol.messages.offset_fetch import OffsetFetchResponseGroup
from bradbury.protocol.topic_name import TRANSACTIONS_TOPIC
from bradbury.protocol.topic_partition import TopicPartitionPair

from .simulated_log_checks import Violation

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster


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
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._by_name: dict[bytes, Transaction] = {}
        self._shown: dict[tuple[TopicPartitionPair, int], bytes] = {}
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


def offset_in(found: OffsetFetchResponseGroup) -> int | None:
    """None: it is pending."""
    [partition] = found.topics[0].partitions
    return None if partition.error_code else partition.committed_offset
