"""One partition's log in one log directory, through many lives, and what may be read of it.

It is written as a leader's and as a follower's, with producers and transactions, truncated, rolled,
flushed, given up from its start, compacted, read and searched; its process dies at any operation on
the disk, the machine loses power, the disk is full or fails, files are flipped, cut and deleted.
All from one seed. It drives storage/ over a disk in memory, and nothing else of a node.

What must hold:

    P1  what is read is what was appended, in order, without a gap that nobody mentions
    P2  what was flushed is there after any death, and all of it after one that leaves the disk
    P3  what a file has lost is said, when the log is opened or where it is read; what is sound
        beside it can be read
    P4  no offset is given twice, unless it was truncated, or it is said that records are lost
    P5  a look-up by time finds the first record that is as late, also in a log that goes on
    P6  readers of committed records get those, and none of an aborted transaction
    P7  a batch that comes again is known, and one that is missing is missed
    P8  compaction leaves the last record of each key
    P9  leader epochs begin and end where the batches say
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from uuid import UUID

from bradbury.protocol.errors import (
    KafkaStorageError,
)
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.disk.storage_failure import StorageFailure
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log.timestamp_search import TimestampSearch
from bradbury.storage.log_config import LogConfig

from ..world.simulated_disk import SimulatedDisk
from .log_checks import LogChecks
from .log_files import DIRECTORY, KEY, damage, find_files
from .log_maintenance import LogMaintenance
from .log_model import (
    LogFault,
    LogModel,
    StoredBatch,
)
from .log_reading import LogReading
from .log_refusals import LogRefusals
from .log_writing import LogWriting

TOPIC_ID = UUID(int=7)
Killed = type("Killed", (BaseException,), {"__doc__": "The process ends here."})


class LogWorld:
    """See `run`. The counters are for those who run many."""

    def __init__(self, seed: object, *, compacts: bool) -> None:
        self.random = random = Random(f"log {seed} {compacts}")
        self.disk = SimulatedDisk()
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_names("/")
        self.compacts = compacts
        self.config = LogConfig(
            segment_bytes=random.choice([600, 1500, 4000]),
            index_interval_bytes=random.choice([64, 300]),
            retention_ms=random.choice([-1, 300]),
            retention_bytes=random.choice([-1, 3000]),
            cleanup_policy="compact" if compacts else "delete",
            delete_retention_ms=1_000_000,
            file_delete_delay_ms=random.choice([0, 50]),
            min_cleanable_dirty_ratio=0.0,
            bradbury_damaged_segment=random.choice(["error", "skip"]),
            message_timestamp_before_max_ms=2**63 - 1,
            message_timestamp_after_max_ms=2**63 - 1,
        )
        self.now_ms = 10_000
        self.model = LogModel()
        self.epoch = 0
        self.safe = 0
        self.maybe: list[StoredBatch] = []
        """What was under way when the process died."""
        self.least_end: int | None = None
        """Where a truncation that was under way would have ended."""
        self.cleaned_to = 0
        self.is_said_damaged = self.is_doubtful = False
        self.cut_off: list[StoredBatch] = []
        self.damages: list[str] = []
        self.is_refused = self.was_clean = False
        self.is_exact = self.knows_all = self.knows_aborted = True
        """knows_all: nothing has become of the log that the model does not know of."""
        self.first_base = 0
        self.searches: list[tuple[TimestampSearch, int, int | None, int | None]] = []
        self.deletions = 0
        self.flushing: Any = None
        self.unread = 0
        self.deaths = self.damaged = self.healed = self.cut = 0
        self.reading, self.writing = LogReading(self), LogWriting(self)
        self.refusals = LogRefusals(self, seed)
        self.maintenance, self.checks = LogMaintenance(self), LogChecks(self)
        self.directory: LogDirectory = self._open()
        self.log: PartitionLog = self.directory.create_log(
            *KEY, TOPIC_ID, self.config, now_ms=self.now_ms
        )

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self._work()
            self._stop()
            if not self.compacts and self.random.random() < 0.4:
                self._damage()
            self._start()
        self.refusals.offer()

    # --- a life ----------------------------------------------------------------------------------

    def _work(self) -> None:
        random = self.random
        actions: list[tuple[Callable[[], None], int]] = [
            (self.writing.append, 12),
            (self.writing.append_as_follower, 3),
            (self.writing.append_transactional, 4),
            (self.writing.end_transaction, 3),
            (self.writing.append_again, 2),
            (self.writing.truncate, 1),
            (self.maintenance.roll, 1),
            (self.maintenance.begin_flush, 2),
            (self.maintenance.complete_flush, 3),
            (self.maintenance.checkpoint, 2),
            (self.maintenance.commit, 5),
            (self.maintenance.delete_records, 1),
            (self.maintenance.retain, 1),
            (self.maintenance.delete_old_files, 1),
            (self.maintenance.clean, 2 if self.compacts else 0),
            (self.reading.search, 2),
            (self.reading.read_somewhere, 3),
            (self.reading.read_committed, 1),
            (self.maintenance.heal, 2 if self.log.damage.ranges else 0),
        ]
        chosen = random.choices(
            [each for each, _ in actions],
            [weight for _, weight in actions],
            k=random.randint(1, 40),
        )
        with self._dying(0.3), contextlib.suppress(StorageFailure):
            for action in chosen:
                self.now_ms += random.choice([0, 1, 5, 40])
                self.disk.full = {DIRECTORY} if random.random() < 0.03 else set()
                if not self.compacts and random.random() < 0.003:
                    self.disk.failing = {DIRECTORY}
                try:
                    action()
                except OSError as error:
                    if not (self.disk.full or self.disk.failing):
                        raise
                    # Who asks in a thread says so: see log_cleaner, log_scrubber, list_offsets.
                    self.unread += str(error) != ""
                except StorageFailure as error:
                    if not (self.disk.failed or self.disk.full):
                        raise LogFault(f"a disk that works is said to fail: {error}") from error
                    raise
                except KafkaStorageError:
                    if not (self.disk.full or self.log.damage.suspects or self.log.damage.ranges):
                        raise
                self.maybe = []
        self.disk.full = set()

    @contextlib.contextmanager
    def _dying(self, chance: float) -> Iterator[None]:
        """With that chance the process ends at one of the next operations on the disk."""
        left = self.random.randrange(120) if self.random.random() < chance else -1

        def before(operation: str, path: str) -> None:
            nonlocal left
            if operation != "read":
                left -= 1
            if left == 0:
                raise Killed

        if left > 0:
            self.disk.before = before
        try:
            yield
        except Killed:
            self.deaths += 1
            self.is_refused = True
        finally:
            self.disk.before = lambda operation, path: None

    def _stop(self) -> None:
        random = self.random
        failed = bool(self.disk.failed or self.disk.failing)
        is_dead, self.is_refused = self.is_refused or failed, False
        self.was_clean = False
        if not is_dead and random.random() < 0.4:
            with self._dying(0.2), contextlib.suppress(KafkaStorageError):
                self.directory.close(clean=True)
                self.was_clean = self.directory.is_closed_cleanly
            is_dead, self.is_refused = self.is_refused, False
        if self.was_clean:
            self.safe = self.log.log_end_offset
        if failed:
            self.disk = self.disk.repaired(random)
        elif is_dead or not self.was_clean:
            self.disk.after_death()
        self.is_exact = not failed
        self.first_base = self.log.segments[0].base_offset
        if not self.compacts and random.random() < 0.3:
            self.disk = self.disk.lose_power(random)
            self.is_exact = self.was_clean
        self.disk.after_death()
        self.searches = []
        self.flushing = None

    def _damage(self) -> None:
        has_gaps = self.log.damage.has_gaps
        for _ in range(self.random.choice([1, 1, 1, 2, 4])):
            done = damage(self.disk, self.random, has_gaps=has_gaps)
            if done:
                self.damages.append(done)
                # Without the list nobody knows that an index of aborted transactions is gone.
                self.knows_aborted = self.knows_aborted and "closed-segments" not in done
                self.damaged += 1

    def _open(self) -> LogDirectory:
        directory = LogDirectory.open(
            self.disk, DIRECTORY, directory_id="d", cluster_id="c", node_id=1
        )
        directory.load_logs(
            lambda topic: self.config,
            now_ms=self.now_ms,
            on_damaged=self._on_damaged,
            keeps_places=True,
        )
        return directory

    def _on_damaged(self) -> None:
        self.is_said_damaged = True

    def _start(self) -> None:
        self.is_said_damaged = False
        found = find_files(self.disk, self.model.batches)
        before = self.model.end
        while True:
            self.is_refused = False
            with self._dying(0.15):
                self.directory = self._open()
            if not self.is_refused:
                break
            self.disk.after_death()
            if not self.compacts and self.random.random() < 0.3:
                self.disk = self.disk.lose_power(self.random)
                self.is_exact = False
                found = find_files(self.disk, self.model.batches)
            found = found._replace(is_clean=False)
        if KEY not in self.directory.logs:
            self._replace_log()
            return
        self.log = self.directory.logs[KEY]
        self.checks.check_end(found, before)
        self.checks.examine_all()
        self.checks.check_all(found)
        self.checks.check_epochs()
        self.checks.check_producers()
        self.damages = []
        if not self.damages and not self.model.lost:
            self.log.high_watermark = self.log.log_end_offset
            self.reading.read_committed()

    def _replace_log(self) -> None:
        """It cannot be opened: as a replica that is made again."""
        reason = self.directory.unopened.get(KEY, "")
        if not self.damages or not reason:
            raise LogFault(f"P3: the log is not opened: {reason or 'it is gone'}")
        raise LogFault(f"P3: {self.damages}: {reason}")
