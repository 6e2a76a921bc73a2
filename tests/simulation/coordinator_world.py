"""One partition of `__transaction_state` and its producers, with what a cluster has only in years.

Producer ids that run out of epochs, ids that expire, no producer id at hand, records of before
transaction.version 1; appends that are refused, late or in doubt, a log that cannot be read for a
while, or whose start moves while it is; leaders that take over at any moment. All from one seed.

It drives coordinators/ and transactions/ as actors/coordinators/ does, over a log in memory, and
nothing else of a cluster. What must hold:

    E1  no two producers have one producer id and epoch
    E2  a transaction is committed or aborted, once and for all, and as its producer was told
    E3  the end of a transaction reaches every partition that its producer was told is in it
    E4  a producer whose id another one has begun with changes nothing any more
    E5  replaying the log gives the transactions that the coordinator has
    E6  an id that expires is not in the middle of anything
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from bradbury.coordinators.coordinator_context import ContextState
from bradbury.coordinators.coordinator_effects import (
    AppendBatch,
    PendingAppend,
    ReadLog,
    UnwatchHighWatermark,
    WatchHighWatermark,
)
from bradbury.coordinators.coordinator_runtime import CoordinatorRuntime
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    CoordinatorLoadInProgress,
    CorruptMessage,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    OffsetOutOfRange,
)
from bradbury.protocol.records.record_batch import read_header, stamp
from bradbury.protocol.records.records import encode_records, iterate_records
from bradbury.steps.replies import Refuse, Reply
from bradbury.transactions.transaction_config import TransactionConfig
from bradbury.transactions.transaction_coordinator import TransactionCoordinator
from bradbury.transactions.transaction_coordinators import (
    APPEND_TIMEOUT_MS,
    TransactionContext,
    transaction_coordinators,
)
from bradbury.transactions.transaction_effects import InitializedProducer, SendMarkers
from bradbury.transactions.transaction_markers import MarkersWritten, TransactionKey
from bradbury.transactions.transaction_metadata import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
)
from bradbury.transactions.transaction_records import (
    TransactionRecord,
    decode_transaction_record,
    encode_transaction_record,
    transactions_in,
)
from bradbury.transactions.transaction_requests import TransactionRequests
from bradbury.transactions.transaction_state import TransactionState

PARTITION = 0
IDS = ("a", "b", "c")
TWINS = 2
TIMEOUT_MS = 300
CONFIG = TransactionConfig(
    transaction_max_timeout_ms=1_000,
    transactional_id_expiration_ms=3_000,
    transaction_abort_timed_out_transaction_cleanup_interval_ms=50,
    transaction_remove_expired_transaction_cleanup_interval_ms=500,
    transaction_state_log_load_buffer_size=400,
)
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
"""After which a producer begins anew; after others it asks again."""


class CoordinatorFault(AssertionError):
    """One of E1 to E6 does not hold."""


class MemoryLog:
    """Batches of one partition. Implements CoordinatorLog."""

    def __init__(self) -> None:
        self.log_start_offset = self.high_watermark = self.log_end_offset = 0
        self._batches: list[tuple[int, bytes]] = []

    def append(self, batch: bytearray, leader_epoch: int) -> int:
        """Returns the offset after it."""
        stamp(batch, base_offset=self.log_end_offset, leader_epoch=leader_epoch)
        self._batches.append((self.log_end_offset, bytes(batch)))
        self.log_end_offset = read_header(batch).next_offset
        return self.log_end_offset

    def read(self, offset: int, up_to: int, max_bytes: int) -> bytes:
        """Raises OffsetOutOfRange."""
        if offset < self.log_start_offset:
            raise OffsetOutOfRange(f"{offset} is below {self.log_start_offset}")
        data = b""
        at = max(0, bisect_right(self._batches, offset, key=lambda each: each[0]) - 1)
        for base, batch in self._batches[at:]:
            if base >= up_to or (data and len(data) + len(batch) > max_bytes):
                break
            data += batch
        return data

    def truncate(self, end: int) -> None:
        self._batches = [each for each in self._batches if each[0] < end]
        self.log_end_offset = end

    def ends(self) -> list[int]:
        """Where it may be cut: between batches, from the high watermark on."""
        bases = [base for base, _ in self._batches if base >= self.high_watermark]
        return [*bases, self.log_end_offset]

    def drop_superseded(self, *, keeps_tombstones: bool) -> None:
        """As when old segments go: their records have newer ones that are committed, or are
        tombstones, which stay for longer than any load takes (delete.retention.ms).
        """
        committed = [each for each in self._batches if each[0] < self.high_watermark]
        last: dict[str, int] = {}
        for base, batch in committed:
            for record in _records(batch):
                last[record.transactional_id] = base
        needed = [
            base
            for base, batch in committed
            for record in _records(batch)
            if last[record.transactional_id] == base
            and (keeps_tombstones or record.metadata is not None)
        ]
        start = min([*needed, self.high_watermark])
        self._batches = [each for each in self._batches if each[0] >= start]
        self.log_start_offset = max(self.log_start_offset, start)


@dataclass(slots=True)
class Client:
    """A producer. `began`: the step in which it heard that it may begin."""

    transactional_id: str
    number: int
    version: int
    producer: tuple[int, int] | None = None
    began: int = -1
    is_open: bool = False
    asked: set[tuple[str, int]] = field(default_factory=set)
    added: set[tuple[str, int]] = field(default_factory=set)
    """Partitions of its open transaction: all it asked for, and those it was told are in it."""
    ending: bool | None = None
    """It has asked for a commit, or else an abort, and has no answer that says what came of it."""
    is_waiting: bool = False


@dataclass(slots=True)
class Ticket:
    client: Client
    step: int
    answered: Callable[[Any], None]


class CoordinatorWorld:
    def __init__(self, seed: object, *, version: int) -> None:
        """`version`: the cluster's transaction.version."""
        self.random = Random(f"coordinator {seed} {version}")
        self.version = version
        self.log = MemoryLog()
        self.now_ms = 0
        self.step = 0
        self.leader_epoch = 0
        self.ends = self.rotations = self.expired = self.failovers = 0
        self._next_producer_id = 1_000
        self._in_flight: list[tuple[PendingAppend, int]] = []
        """Appended and not committed, with the offset after each, in order."""
        self._reads: list[ReadLog] = []
        self._is_watching = False
        self._markers: list[tuple[int, SendMarkers]] = []
        """To be written, with the leader epoch of who wants it."""
        self._owners: dict[tuple[int, int], Client] = {}
        self._decisions: dict[tuple[str, int, int], SendMarkers] = {}
        self._newest: dict[str, Client] = {}
        """Who began last with each id."""
        self._clients = [
            Client(each, number, self.random.choice((1, 2)) if version >= 2 else 1)
            for each in IDS
            for number in range(TWINS)
        ]
        self._write_first_records()
        self._runtime = CoordinatorRuntime(
            transaction_coordinators(CONFIG, self._take_producer_id, version)
        )
        self._lead()

    def _take_producer_id(self) -> int | None:
        if self.random.random() < 0.2:
            return None  # the controller does not answer
        self._next_producer_id += 1
        return self._next_producer_id

    def _write_first_records(self) -> None:
        """Ids that have nearly used up their epochs, written by a cluster of some version."""
        for number, transactional_id in enumerate(IDS[:2]):
            metadata = TransactionMetadata(
                number,
                TIMEOUT_MS,
                0,
                producer_epoch=MAX_EPOCH - self.random.randint(1, 6),
                state=TransactionState.EMPTY,
            )
            key, value = encode_transaction_record(
                TransactionRecord(transactional_id, metadata),
                transaction_version=self.random.choice((0, self.version)),
            )
            self.log.append(encode_records([(0, key, value, ())]), 0)
        self.log.high_watermark = self.log.log_end_offset

    def _lead(self) -> None:
        context = self._runtime.on_leader(
            PARTITION, self.leader_epoch, self.log, now_ms=self.now_ms, wall_ms=self.now_ms
        )
        assert context is not None
        self._context: TransactionContext = context
        self._requests = TransactionRequests(context)
        self._carry_out(context)

    # --- what the coordinator wants ----------------------------------------------------------------

    def _input(self, method: Callable[..., None], *values: object, **rest: Any) -> None:
        method(*values, **rest, now_ms=self.now_ms, wall_ms=self.now_ms)
        self._carry_out(self._context)

    def _carry_out(self, context: TransactionContext) -> None:
        replies: list[tuple[Ticket, Any]] = []
        while context.effects:
            effect = context.effects.pop(0)
            match effect:
                case Reply(ticket, result) | Refuse(ticket, result):
                    replies.append((ticket, result))
                case AppendBatch(pending, batch):
                    self._append(context, pending, batch)
                case ReadLog():
                    self._reads.append(effect)
                case WatchHighWatermark():
                    self._is_watching = True
                case UnwatchHighWatermark():
                    self._is_watching = False
                case SendMarkers():
                    self._on_decided(effect)
                case _:
                    raise AssertionError(effect)
        for ticket, result in replies:
            ticket.client.is_waiting = False
            ticket.answered(result)

    def _append(
        self, context: TransactionContext, pending: PendingAppend, batch: bytearray
    ) -> None:
        if self.random.random() < 0.05:
            error = self.random.choice(
                (NotEnoughReplicas("two are out"), KafkaStorageError("full"))
            )
            context.on_append_failed(pending, error, now_ms=self.now_ms, wall_ms=self.now_ms)
            return
        for record in _records(bytes(self._stamped(batch))):
            self._check_expired(record)
        self._in_flight.append((pending, self.log.append(batch, self.leader_epoch)))

    def _stamped(self, batch: bytearray) -> bytearray:
        copy = bytearray(batch)
        stamp(copy, base_offset=0, leader_epoch=0)
        return copy

    def _check_expired(self, record: TransactionRecord) -> None:
        if record.metadata is not None:
            return
        self.expired += 1
        self._newest.pop(record.transactional_id, None)  # whoever comes now begins anew
        stored = self._replayed().metadata_of(record.transactional_id)
        if stored is not None and not stored.state.may_expire:
            raise CoordinatorFault(f"E6: {record.transactional_id} expires in {stored}")

    # --- chance --------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Raises CoordinatorFault."""
        for _ in range(steps):
            self.step += 1
            self.random.choices(
                (
                    self._ask,
                    self._commit,
                    self._read,
                    self._write_markers,
                    self._let_time_pass,
                    self._stand_still,
                    self._fail_over,
                    self._doubt,
                    self._drop_superseded,
                    self._check_replay,
                ),
                (30, 30, 25, 15, 12, 0.6, 0.4, 0.3, 0.5, 1),
            )[0]()

    def _let_time_pass(self) -> None:
        self.now_ms += self.random.randint(1, 60)
        due_ms = self._context.next_deadline_ms
        if due_ms is not None and due_ms <= self.now_ms:
            self._input(self._context.on_tick)

    def _stand_still(self) -> None:
        """Long enough for appends to be late, and ids to expire."""
        self.now_ms += self.random.choice((APPEND_TIMEOUT_MS + 1, 2_000, 3_500))
        for _ in range(3):
            self._let_time_pass()

    def _commit(self) -> None:
        if self._in_flight:
            pending, end = self._in_flight.pop(0)
            self.log.high_watermark = end
            self._input(self._context.on_committed, pending)
        elif self._is_watching:
            self.log.high_watermark = self.log.log_end_offset
            self._input(self._context.on_high_watermark)

    def _doubt(self) -> None:
        """Nobody knows whether it is in the log: it is, and is read again."""
        if self._in_flight:
            pending, _ = self._in_flight[0]
            self._in_flight.clear()
            self._input(self._context.on_commit_failed, pending, OSError("an fsync failed"))

    def _read(self) -> None:
        if not self._reads:
            return
        read = self._reads.pop(0)
        if self.random.random() < 0.02:
            self._input(self._context.on_log_read_failed, read, CorruptMessage("not now"))
            return
        try:
            data = self.log.read(read.offset, read.up_to, read.max_bytes)
        except OffsetOutOfRange as error:
            self._input(self._context.on_log_read_failed, read, error)
            return
        entries, next_offset = transactions_in(data, read.offset)
        self._input(self._context.on_log_read, read, entries, max(next_offset, read.offset))

    def _drop_superseded(self) -> None:
        is_loading = self._context.state is ContextState.LOADING
        self.log.drop_superseded(keeps_tombstones=is_loading)

    def _fail_over(self) -> None:
        """Another leader, which lacks some of what was not committed."""
        self.failovers += 1
        former = self._context
        self.leader_epoch += 1
        self._in_flight.clear()
        self._is_watching = False
        self._reads.clear()
        self.log.truncate(self.random.choice(self.log.ends()))
        if self.random.random() < 0.3:
            self._runtime.on_resigned(PARTITION)
            self._check_not_led()
        self._lead()
        assert former.state is ContextState.CLOSED
        self._carry_out(former)

    def _check_not_led(self) -> None:
        try:
            self._runtime.context(PARTITION)
        except NotCoordinator:
            return
        raise CoordinatorFault("E4: who has resigned coordinates")

    # --- markers ---------------------------------------------------------------------------------------

    def _on_decided(self, markers: SendMarkers) -> None:
        key = (markers.transactional_id, markers.producer_id, markers.producer_epoch)
        known = self._decisions.get(key)
        is_final = markers.transaction_version >= 2  # before, an epoch has many transactions
        if is_final and known is not None and known != markers:
            raise CoordinatorFault(f"E2: {markers} after {known}")
        self._decisions[key] = markers
        self._markers.append((self.leader_epoch, markers))

    def _write_markers(self) -> None:
        if not self._markers:
            return
        at = self.random.randrange(len(self._markers))
        epoch, markers = self._markers[at]
        if self.random.random() < 0.9:  # now and then an answer comes twice
            del self._markers[at]
        key = TransactionKey(PARTITION, epoch, markers.transactional_id)
        self._input(self._requests.on_markers_written, MarkersWritten(key, markers))

    # --- producers ---------------------------------------------------------------------------------------

    def _ask(self) -> None:
        client = self.random.choice(self._clients)
        if client.is_waiting:
            return
        try:
            self._runtime.all_contexts()
        except CoordinatorLoadInProgress:
            assert self._runtime.loading_count == 1
            return  # and comes back
        chance = self.random.random()
        if client.producer is None:
            if client.began < 0 or chance < 0.2:  # or twins would do nothing but fence each other
                self._begin(client)
        elif chance < 0.02:
            self._begin(client)
        elif client.ending is not None:
            self._end(client)
        elif chance < (0.3 if client.is_open else 0.85):
            self._add(client)
        elif chance < 0.9 and not client.is_open:
            self._verify(client)
        else:
            self._end(client)

    def _send(
        self,
        client: Client,
        answered: Callable[[Any], None],
        method: Callable[..., None],
        *values: object,
        **rest: Any,
    ) -> None:
        client.is_waiting = True
        self._input(method, Ticket(client, self.step, answered), *values, **rest)

    def _begin(self, client: Client) -> None:
        asked_in = self.step
        recovers = client.producer is not None and self.random.random() < 0.4
        timeout_ms = TIMEOUT_MS if self.random.random() < 0.97 else 10**6

        def answered(result: Any) -> None:
            if not isinstance(result, InitializedProducer) or result.error:
                if result == InitializedProducer(ErrorCode.PRODUCER_FENCED):
                    client.producer = None  # it begins anew
                return
            if timeout_ms > CONFIG.transaction_max_timeout_ms:
                raise CoordinatorFault(f"a timeout of {timeout_ms} ms was taken")
            if recovers:
                self._check_newest(client, asked_in)
            self._own(client, result)
            self._newest[client.transactional_id] = client
            client.began = self.step
            self._end_transaction(client)

        self._send(
            client,
            answered,
            self._requests.init_producer_id,
            client.transactional_id,
            timeout_ms,
            expected=client.producer if recovers else None,
        )

    def _end_transaction(self, client: Client) -> None:
        client.is_open, client.ending = False, None
        client.asked, client.added = set(), set()

    def _own(self, client: Client, result: InitializedProducer) -> None:
        producer = (result.producer_id, result.producer_epoch)
        owner = self._owners.setdefault(producer, client)
        if owner is not client:
            raise CoordinatorFault(f"E1: {producer} is {owner}'s, and {client}'s")
        if client.producer is not None and client.producer[0] != producer[0]:
            self.rotations += 1
        client.producer = producer

    def _check_newest(self, client: Client, asked_in: int) -> None:
        """Of who was told that something of it was done."""
        newest = self._newest.get(client.transactional_id)
        if newest is not None and newest is not client and newest.began < asked_in:
            raise CoordinatorFault(f"E4: {client} goes on, after {newest} has begun")

    def _add(self, client: Client) -> None:
        assert client.producer is not None
        asked_in = self.step
        partitions = frozenset(
            (f"t{self.random.randrange(2)}", self.random.randrange(4))
            for _ in range(self.random.randint(1, 2))
        )
        client.asked |= partitions

        def answered(result: Any) -> None:
            if result is not ErrorCode.NONE:
                return
            self._check_newest(client, asked_in)
            client.is_open = True
            client.added |= partitions

        self._send(
            client,
            answered,
            self._requests.add_partitions,
            client.transactional_id,
            *client.producer,
            partitions,
            client_version=client.version,
        )

    def _verify(self, client: Client) -> None:
        """As the leader of a partition asks; it reads what is committed."""
        assert client.producer is not None
        codes = self._context.coordinator.verify_partitions(
            client.transactional_id, *client.producer, [*client.added, ("nowhere", 0)]
        )
        if codes["nowhere", 0] is ErrorCode.NONE:
            raise CoordinatorFault(f"E3: {client} may write where it has not said")

    def _end(self, client: Client) -> None:
        assert client.producer is not None
        asked_in = self.step
        is_commit = self.random.random() < 0.6 if client.ending is None else client.ending
        client.ending = is_commit
        producer_id, producer_epoch = client.producer
        added, asked, was_open = set(client.added), set(client.asked), client.is_open

        def answered(result: Any) -> None:
            if not isinstance(result, InitializedProducer) or result.error:
                if isinstance(result, InitializedProducer) and result.error in FENCED:
                    client.producer = None
                if result == InitializedProducer(ErrorCode.INVALID_TXN_STATE):
                    client.ending = None  # nothing was open
                return
            self._check_newest(client, asked_in)
            self.ends += 1
            epoch = producer_epoch + 1 if client.version >= 2 else producer_epoch
            decision = self._decisions.get((client.transactional_id, producer_id, epoch))
            if was_open and decision is None:
                raise CoordinatorFault(f"E2: nobody ends what {client} has ended")
            if decision is not None and was_open:
                if decision.is_commit is not is_commit:
                    raise CoordinatorFault(f"E2: {client} was told {is_commit}: {decision}")
                if not added <= decision.partitions <= asked:
                    raise CoordinatorFault(f"E3: {added} of {asked} end with {decision}")
            self._end_transaction(client)
            if client.version >= 2:
                self._own(client, result)

        self._send(
            client,
            answered,
            self._requests.end,
            client.transactional_id,
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            client_version=client.version,
        )

    # --- the log ---------------------------------------------------------------------------------------

    def _replayed(self) -> TransactionCoordinator:
        replayed = TransactionCoordinator(CONFIG, lambda: None, self.version)
        offset = self.log.log_start_offset
        while offset < self.log.high_watermark:
            data = self.log.read(offset, self.log.high_watermark, 10**6)
            records, offset = transactions_in(data, offset)
            for record in records:
                replayed.apply(record)
        return replayed

    def _check_replay(self) -> None:
        if self._context.state is not ContextState.ACTIVE or self._in_flight:
            return
        now, then = self._stored(self._context.coordinator), self._stored(self._replayed())
        if now != then:
            raise CoordinatorFault(f"E5: {now}, the log says {then}")

    def _stored(self, coordinator: TransactionCoordinator) -> dict[str, TransactionMetadata]:
        """What records say; fields that are in none, or in none of version 0, are left out."""
        unknown: dict[str, int] = {"last_producer_epoch": NO_EPOCH}
        if self.version == 0:
            unknown |= {"previous_producer_id": NO_PRODUCER_ID, "client_version": 0}
        return {
            transactional_id: replace(metadata, **unknown)  # type: ignore[arg-type]
            for transactional_id, metadata in coordinator
        }


def _records(batch: bytes) -> list[TransactionRecord]:
    found = [decode_transaction_record(each.key, each.value) for each in iterate_records(batch)]
    return [each for each in found if each is not None]
