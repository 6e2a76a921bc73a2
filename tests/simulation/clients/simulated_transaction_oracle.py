"""What must always hold of transactions in the simulation; see TransactionOracle."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from bradbury.cluster.topic_name import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from bradbury.protocol.topic_partition import TopicPartition

from .simulated_log_checks import Violation

if TYPE_CHECKING:
    from ..world.simulated_cluster import SimulatedCluster


def group_of(transactional_id: str) -> str:
    """The group whose offsets the transactions of this id commit."""
    return f"group-of-{transactional_id}"


class Transaction:
    """One transaction of one producer, as the oracle keeps it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[TopicPartition, list[bytes]] = {}
        """What was sent, and has to be seen if it is committed."""
        self.is_commit_asked = False
        self.is_committed = False
        """The coordinator has said so."""
        self.has_offsets = False
        self.offset: int | None = None
        """What its group's committed offset is after it; no other transaction has this one."""


class TransactionOracle:
    """What readers of committed records may see.

    T1  nothing of a transaction that nobody has asked to commit, ever
    T2  all of a committed one, once, in each of its partitions, in the order it was sent
    T3  all or nothing of one whose end nobody knows
    T4  at rest everything is stable: no transaction is open for longer than its timeout
    T5  what the first read of an offset has shown is what each later one shows
    T6  a group's offset is that of the last transaction with offsets that is shown
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._by_name: dict[bytes, Transaction] = {}
        self._shown: dict[tuple[TopicPartition, int], bytes] = {}
        self.commits = 0
        self._offsets = itertools.count(1)

    def new_offset(self) -> int:
        return next(self._offsets)

    def begin(self, name: str) -> Transaction:
        transaction = self._by_name[name.encode()] = Transaction(name)
        return transaction

    def note(self, text: str) -> None:
        self._cluster.oracle.note((TRANSACTIONS_TOPIC, 0), text)

    def on_committed(self, transaction: Transaction) -> None:
        transaction.is_committed = True
        self.commits += 1

    def on_read(self, partition_id: TopicPartition, offset: int, value: bytes) -> None:
        if self._is_damaged(partition_id):
            return
        transaction = self._by_name.get(value.rpartition(b"/")[0])
        if transaction is None or value not in transaction.values.get(partition_id, ()):
            raise Violation("phantom", f"nobody has sent {value!r} there", partition_id)
        if not transaction.is_commit_asked:
            raise Violation("T1", f"{value!r} is shown, nobody commits it", partition_id)
        before = self._shown.setdefault((partition_id, offset), value)
        if before != value:
            raise Violation("T5", f"{value!r} at {offset}, before {before!r}", partition_id)

    def _is_damaged(self, partition_id: TopicPartition) -> bool:
        """Data was lost beyond what its settings promise: of the partition, or of a coordinator."""
        ledgers = self._cluster.oracle.ledgers
        return any(
            ledgers[each].is_damaged
            for each in self._cluster.all_partitions
            if each == partition_id or each[0] in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC)
        )

    def check_end(
        self, read: dict[TopicPartition, list[bytes]], offsets: dict[str, int | None]
    ) -> None:
        """`read`: all that a reader of committed records has seen at rest, by partition. `offsets`:
        what the group of each transactional id has committed.
        """
        damaged = {each for each in read if self._is_damaged(each)}
        expected: dict[str, int] = {}
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
            if True in seen and transaction.offset is not None:
                transactional_id = transaction.name.partition(":")[0]
                expected[transactional_id] = max(
                    transaction.offset, expected.get(transactional_id, 0)
                )
        if damaged:
            return
        for transactional_id, offset in offsets.items():
            if offset != expected.get(transactional_id):
                text = f"{group_of(transactional_id)} is at {offset}, not at"
                raise Violation("T6", f"{text} {expected.get(transactional_id)}", None)
