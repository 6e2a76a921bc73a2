"""A led partition in a file of its own, whose commits the test decides: for what sits on replicas."""

import asyncio
import os
import tempfile
from itertools import pairwise
from typing import NamedTuple

from bradbury.handlers.ports.replica_port import Appended
from bradbury.protocol.errors import OffsetOutOfRange
from bradbury.protocol.records.record_batch import read_header, stamp
from bradbury.protocol.records.records import ControlType, encode_control_batch
from bradbury.replication.partition.delayed_fetches import FetchWaiter
from bradbury.storage.disk.file_system import OsFile


class Slice(NamedTuple):
    file: object
    position: int
    size: int


class MemoryReplica:
    """Commits at once; after `hold()` each append waits for `commit()` or `fail()`."""

    leader_epoch = 1
    log_start_offset = 0

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._file = OsFile(os.dup(file.fileno()))
        self._batches: list[tuple[int, int, int]] = []  # (base offset, position, size)
        self._size = 0
        self._holds = False
        self.refuse_with: Exception | None = None
        self.waiting: list[asyncio.Future[None]] = []
        self.guards: list[object] = []
        """Of each append."""
        self.verifications: dict[tuple[int, int], object] = {}
        self.log_end_offset = 0
        self.lag = 0
        """Records at the end that are not committed."""
        self.parked: set[FetchWaiter] = set()

    @property
    def log(self) -> "MemoryReplica":
        """It is its own log."""
        return self

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset - self.lag

    last_stable_offset = high_watermark

    @property
    def record_counts(self) -> list[int]:
        """The batches' record counts, in order."""
        starts = [base_offset for base_offset, _, _ in self._batches]
        return [end - start for start, end in pairwise([*starts, self.log_end_offset])]

    def hold(self) -> None:
        self._holds = True

    def commit(self) -> None:
        self.waiting.pop(0).set_result(None)

    def fail(self, error: Exception) -> None:
        self.waiting.pop(0).set_exception(error)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, *, supports_epoch_bump: bool
    ) -> object:
        """Asked for once for each producer: then its transaction is open."""
        guard = self.verifications.setdefault((producer_id, producer_epoch), object())
        return None if guard in self.guards else guard

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Appended:
        batch = encode_control_batch(
            ControlType.COMMIT if is_commit else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=0,
        )
        return self.append(memoryview(batch))

    def append(self, batch: memoryview, *, guard: object = None) -> Appended:
        self.guards.append(guard)
        if self.refuse_with is not None:
            raise self.refuse_with
        base_offset = self.log_end_offset
        stamp(batch, base_offset=base_offset, leader_epoch=self.leader_epoch)
        self._file.write_at(batch, self._size)
        self._batches.append((base_offset, self._size, len(batch)))
        self._size += len(batch)
        self.log_end_offset += read_header(batch).record_count
        committed = None
        if self._holds:
            committed = asyncio.get_running_loop().create_future()
            self.waiting.append(committed)
        return Appended(base_offset, -1, 0, committed)

    def read(self, fetch_offset: int, *, max_bytes: int, up_to: int, min_one_batch: bool) -> Slice:
        """One batch at a time, so that a reader has to come again."""
        if not self.log_start_offset <= fetch_offset <= self.log_end_offset:
            raise OffsetOutOfRange(f"{fetch_offset} is not in the log")
        found = [batch for batch in self._batches if batch[0] <= fetch_offset]
        _, position, size = found[-1]
        return Slice(self._file, position, size)

    def park(
        self, waiter: FetchWaiter, *, is_follower: bool = False, is_committed: bool = False
    ) -> None:
        self.parked.add(waiter)

    def unpark(self, waiter: FetchWaiter) -> None:
        self.parked.discard(waiter)
