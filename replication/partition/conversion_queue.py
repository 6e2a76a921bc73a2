"""Batches that a topic stores in another form than they came in: which are converted, and in which
order they reach the log.

Message sets of magic 0 and 1, batches of another codec than the topic's, and batches whose records
have to be checked take milliseconds, so they are converted outside of the event loop, several of
one partition side by side. They are appended in the order in which they came, on all connections:

    - a batch that is converted early waits for those before it;
    - while any batch waits, one that needs no conversion waits behind it: an idempotent producer
      has five batches in flight, and their sequence numbers must reach the log in order; batches of
      older producers have no sequence numbers by which a wrong order could be detected;
    - when a leadership ends, all waiting batches are refused and none of them is appended later:
      in the next epoch their producers may have sent them again;
    - a batch that cannot be converted is refused alone.

Invariants:
    every accepted batch is answered, once;
    a batch counts in ConversionMemory until no thread works on it any more, whether it is appended
    or not, so the node's memory is bounded also when leaderships change.

Not here: how records are converted (storage/log/batch_conversion), the threads that do it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from ...protocol.errors import KafkaError, RequestTimedOut
from ...protocol.records.compression import TooLarge
from ...protocol.records.record_batch import CODEC_MASK, read_record_count
from ...steps.replies import Refuse
from ...storage.log.batch_conversion import convert_batch, convert_message_set, target_codec
from ...storage.log.batch_validation import open_batch
from ...storage.log.partition_log import AppendResult, PartitionLog
from ...storage.producers.verification_guard import VerificationGuard
from ..effects import Effects

MOST_BYTES_OPENED_AT_ONCE: Final = 8 * 1024
"""Maximum size of a batch whose records are checked on the event loop."""
MOST_BYTES: Final = 128 * 1024**2
"""Maximum bytes of batches in all conversion queues of one node."""
LEAST_RECORDS: Final = 16
"""Minimum number of records of a batch for which the compiled check pays: for fewer it saves a few
us of the hundred that a request costs.
"""
CODEC_POSITION: Final = 22

Convert = Callable[[bytearray], bytearray]


class ConversionMemory:
    """Memory of all conversion queues of one node, in bytes of the batches as they came."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.reserved = 0
        self._most_bytes = most_bytes

    def reserve(self, size: int) -> None:
        """Reserve memory. Raises RequestTimedOut, which producers retry: too much is reserved."""
        if self.reserved and self.reserved + size > self._most_bytes:
            raise RequestTimedOut("the broker has too many records to convert; try again")
        self.reserved += size

    def release(self, size: int) -> None:
        self.reserved -= size


class Conversion:
    """One batch on its way into the log. Work for a thread, see storage_work.Work."""

    __slots__ = (
        "batch",
        "convert",
        "failure",
        "guard",
        "is_converted",
        "is_void",
        "new_ticket",
        "size",
        "ticket",
    )

    def __init__(
        self,
        batch: bytearray | memoryview,
        convert: Convert | None,
        guard: VerificationGuard | None,
    ) -> None:
        """`convert` None: the batch is appended unchanged."""
        self.batch = batch
        self.convert = convert
        self.guard = guard
        self.size = len(batch)
        self.is_converted = convert is None
        self.is_void = False
        """Whether it was refused before it was converted: nobody needs the result."""
        self.failure: Exception | None = None
        self.ticket: Any = None
        self.new_ticket: Any = None

    def run(self) -> None:
        """Convert the batch. Raises what the conversion raises."""
        if self.convert is not None and not self.is_void:
            assert isinstance(self.batch, bytearray)
            self.batch = self.convert(self.batch)


class BatchAppended(NamedTuple):
    """A batch that had to wait is appended. `committed`: ticket that is answered when it is
    committed; None: it is.
    """

    ticket: Any
    result: AppendResult
    committed: Any


class RecordsCheckedSlowly(NamedTuple):
    """Records are checked in plain Python, LEAST_RECORDS or more of them: the compiled check may be
    worth loading, see protocol/kernel_loading.
    """

    record_count: int


class AppendingReplica(Protocol):
    """Replica as its conversion queue needs it; see replica.Replica."""

    log: PartitionLog

    def check_produce(self, *, acks_all: bool) -> None: ...
    def append(
        self,
        batch: bytearray | memoryview,
        *,
        opened: bool,
        now_ms: int,
        wall_ms: int,
        guard: VerificationGuard | None = None,
    ) -> AppendResult: ...
    def when_committed(self, last_offset: int, new_ticket: Callable[[], Any]) -> Any: ...


class ConversionQueue:
    """Batches of one partition on their way into the log.

    Inputs: `produce` for each batch, `begin` if it has to wait, `on_converted` after each
    ConvertRecords, `abandon` when the leadership ends. Times: see replica.Replica.
    """

    def __init__(
        self, replica: AppendingReplica, effects: Effects, memory: ConversionMemory
    ) -> None:
        self._replica = replica
        self._effects = effects
        self._memory = memory
        self._waiting: deque[Conversion] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def produce(
        self,
        batch: memoryview,
        *,
        is_message_set: bool,
        acks_all: bool,
        is_check_loaded: Callable[[], bool],
        now_ms: int,
        wall_ms: int,
        guard: VerificationGuard | None = None,
    ) -> AppendResult | Conversion:
        """Append a batch of a producer, or return the conversion for which it has to wait: then
        pass that to `begin`.

        is_check_loaded: whether records are checked by a compiled loop.

        Raises:
            KafkaError: nothing was, or will be, appended.
        """
        replica = self._replica
        replica.check_produce(acks_all=acks_all)
        is_next = not self._waiting
        convert: Convert | None
        if is_message_set:
            convert = partial(convert_message_set, config=replica.log.config, now_ms=wall_ms)
        else:
            convert = self._conversion(batch, is_check_loaded, wall_ms, is_next=is_next)
        if convert is None and is_next:
            try:
                return replica.append(
                    batch, opened=False, guard=guard, now_ms=now_ms, wall_ms=wall_ms
                )
            except TooLarge:
                convert = partial(open_batch, config=replica.log.config)
        return Conversion(batch, convert, guard)

    def _conversion(
        self,
        batch: memoryview,
        is_check_loaded: Callable[[], bool],
        wall_ms: int,
        *,
        is_next: bool,
    ) -> Convert | None:
        """Conversion that a batch needs in a thread; None: none.

        is_next: no batch of this partition waits at the moment. Behind another batch the records
        are opened in a thread, too: their rules do not depend on the order of batches.
        """
        local = self._replica.log.local
        rules, config = local.batch_rules, local.config
        codec = batch[CODEC_POSITION] & CODEC_MASK
        is_large = len(batch) > MOST_BYTES_OPENED_AT_ONCE
        if not rules.keeps_codec and target_codec(codec, config) != codec:
            return partial(convert_batch, config=config, now_ms=wall_ms)
        if rules.opens_records:
            if codec or is_large or not is_next:
                return partial(convert_batch, config=config, now_ms=wall_ms)
            return None
        if not (rules.opens_compressed if codec else rules.opens_uncompressed):
            return None
        if is_check_loaded():
            takes_long = codec != 0 and is_large
        else:
            record_count = read_record_count(batch)
            if record_count >= LEAST_RECORDS:
                self._effects.append(RecordsCheckedSlowly(record_count))
            takes_long = is_large
        return partial(open_batch, config=config) if takes_long or not is_next else None

    def begin(self, conversion: Conversion, ticket: Any, new_ticket: Callable[[], Any]) -> None:
        """Have a batch wait for its conversion and for those before it.

        Args:
            ticket: answered by BatchAppended, or refused.
            new_ticket: makes the ticket that is answered when the batch is committed.

        Raises:
            RequestTimedOut: too much memory is reserved; the batch is not accepted.
        """
        self._memory.reserve(conversion.size)
        conversion.batch = bytearray(conversion.batch)  # the receive buffer is reused
        conversion.ticket, conversion.new_ticket = ticket, new_ticket
        self._waiting.append(conversion)
        if conversion.convert is not None:
            self._effects.append(ConvertRecords(self, conversion))

    def on_converted(
        self, conversion: Conversion, failure: Exception | None, *, now_ms: int, wall_ms: int
    ) -> None:
        """Called when `conversion.run` has returned, has raised `failure`, or is not run at all."""
        conversion.is_converted, conversion.failure = True, failure
        if conversion.is_void:
            self._memory.release(conversion.size)
            return
        while self._waiting and self._waiting[0].is_converted:
            self._append(self._waiting.popleft(), now_ms, wall_ms)

    def _append(self, conversion: Conversion, now_ms: int, wall_ms: int) -> None:
        self._memory.release(conversion.size)
        try:
            if conversion.failure is not None:
                raise conversion.failure
            result = self._replica.append(
                conversion.batch,
                opened=True,
                guard=conversion.guard,
                now_ms=now_ms,
                wall_ms=wall_ms,
            )
        except Exception as error:  # noqa: BLE001 -- the caller that awaits the answer judges it
            self._effects.append(Refuse(conversion.ticket, error))
            return
        committed = self._replica.when_committed(result.last_offset, conversion.new_ticket)
        self._effects.append(BatchAppended(conversion.ticket, result, committed))

    def abandon(self, error: KafkaError) -> None:
        """Refuse all waiting batches with `error`; none of them is appended later."""
        while self._waiting:
            conversion = self._waiting.popleft()
            if conversion.is_converted:
                self._memory.release(conversion.size)
            conversion.is_void = True  # a thread may be at work on it
            self._effects.append(Refuse(conversion.ticket, error))


# Below the classes of its fields: compiled code looks those up where the tuple is defined.
class ConvertRecords(NamedTuple):
    """Run `conversion` in a thread, begun in the order of the effects; then queue.on_converted."""

    queue: ConversionQueue
    conversion: Conversion
