"""Does a partition show exactly what was committed, on the leader and on its follower?

The model is the list of batches in the log, each with what it is; everything else is worked out from
it again each time: which transactions are open, where what is stable ends, what a reader is given.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bradbury.storage.log.aborted_transactions import find_aborted
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.logs import open_log, read_all
from bradbury.tests.support.storage.transactions import (
    end,
    read_committed,
    send,
    transaction_state,
)

pytestmark = pytest.mark.thorough

PRODUCERS = st.integers(0, 3)
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)


@dataclass
class Written:
    """A batch: `outcome` is a marker's, None for records; `transactional` is of records."""

    producer_id: int
    first_offset: int
    last_offset: int
    transactional: bool = False
    outcome: bool | None = None


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.logs = [self.open(name) for name in ("leader", "follower")]
        self.written: list[Written] = []
        self.committed = 0
        """The high watermark."""
        self.coordinator_epoch = 0

    def open(self, name: str, **options: object) -> PartitionLog:
        return open_log(f"{self.folder.name}/{name}", config=CONFIG, **options)

    def teardown(self) -> None:
        for log in self.logs:
            log.close(clean=False)
        self.folder.cleanup()

    # --- the model -------------------------------------------------------------------------------

    @property
    def leader(self) -> PartitionLog:
        return self.logs[0]

    @property
    def end(self) -> int:
        return self.written[-1].last_offset + 1 if self.written else 0

    def transactions(self) -> list[tuple[int, list[Written], Written | None]]:
        """(producer, batches with records, marker) of each transaction in the log."""
        found: list[tuple[int, list[Written], Written | None]] = []
        open_: dict[int, list[Written]] = {}
        for batch in self.written:
            if batch.outcome is not None:
                if batch.producer_id in open_:
                    found.append((batch.producer_id, open_.pop(batch.producer_id), batch))
            elif batch.transactional:
                open_.setdefault(batch.producer_id, []).append(batch)
        return found + [(producer_id, batches, None) for producer_id, batches in open_.items()]

    def stable(self, high_watermark: int) -> int:
        return min(
            [
                batches[0].first_offset
                for _, batches, marker in self.transactions()
                if marker is None or marker.last_offset >= high_watermark
            ]
            + [high_watermark]
        )

    def visible(self, below: int) -> list[int]:
        hidden = {
            offset
            for _, batches, marker in self.transactions()
            if marker is None or not marker.outcome
            for batch in batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        return [
            offset
            for batch in self.written
            if batch.outcome is None
            for offset in range(batch.first_offset, batch.last_offset + 1)
            if offset < below and offset not in hidden
        ]

    def has_open(self, producer_id: int) -> bool:
        return any(
            marker is None and each == producer_id for each, _, marker in self.transactions()
        )

    # --- what happens ----------------------------------------------------------------------------

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), transactional=st.booleans())
    def write(self, producer_id: int, count: int, transactional: bool) -> None:
        if not transactional and self.has_open(producer_id):
            transactional = True
        entry = self.leader.local.producers.entries.get(producer_id)
        sequence = 0 if entry is None else entry.last_sequence + 1
        result = send(
            self.leader, sequence, count, producer_id=producer_id, transactional=transactional
        )
        assert result.base_offset == self.end
        self.written.append(Written(producer_id, self.end, self.end + count - 1, transactional))

    @rule(producer_id=PRODUCERS, is_commit=st.booleans(), moves=st.booleans())
    def decide(self, producer_id: int, is_commit: bool, moves: bool) -> None:
        self.coordinator_epoch += moves
        end(
            self.leader,
            is_commit=is_commit,
            producer_id=producer_id,
            coordinator_epoch=self.coordinator_epoch,
        )
        self.written.append(Written(producer_id, self.end, self.end, outcome=is_commit))

    @rule(most=st.integers(100, 2000))
    def copy(self, most: int) -> None:
        """The follower fetches, and what it has is committed."""
        follower = self.logs[1]
        start = follower.log_end_offset
        if start < self.end:
            follower.append_as_follower(read_all(self.leader, start)[:most], now_ms=1000)
        self.leader.high_watermark = follower.log_end_offset
        self.committed = self.leader.high_watermark

    @rule()
    def tell(self) -> None:
        """The follower is told what is committed."""
        self.logs[1].high_watermark = self.committed

    @rule(which=st.integers(0, 1), clean=st.booleans())
    def restart(self, which: int, clean: bool) -> None:
        log = self.logs[which]
        log.close(clean=clean)
        self.logs[which] = self.open(
            ("leader", "follower")[which],
            clean=clean,
            high_watermark=log.high_watermark,
            recovery_point=log.flushing.recovery_point,
        )

    @rule(which=st.integers(0, 1))
    def flush(self, which: int) -> None:
        self.logs[which].flushing.flush()

    @rule(which=st.integers(0, 1))
    def roll(self, which: int) -> None:
        self.logs[which].local.roll(now_ms=1000)

    @precondition(lambda self: self.end > self.committed)
    @rule(data=st.data())
    def fail_over(self, data: st.DataObject) -> None:
        """The follower leads; what only the former leader had is gone."""
        follower = self.logs[1]
        self.leader.truncate_to(follower.log_end_offset)
        self.logs.reverse()
        folder = self.folder.name
        for log, name in zip(self.logs, ("leader", "follower"), strict=True):
            log.close(clean=data.draw(st.booleans()))
            _rename(folder, log.directory, name + ".moved")
        for number, name in enumerate(("leader", "follower")):
            _rename(folder, f"{folder}/{name}.moved", name)
            former = self.logs[number]
            self.logs[number] = self.open(
                name,
                high_watermark=former.high_watermark,
                recovery_point=former.flushing.recovery_point,
            )
        self.written = [
            batch for batch in self.written if batch.last_offset < self.leader.log_end_offset
        ]

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def readers_are_given_what_is_committed(self) -> None:
        for log in self.logs:
            stable = self.stable(log.high_watermark)
            assert log.last_stable_offset == stable
            assert read_committed(log) == self.visible(stable)
            if stable:
                start = stable // 2
                expected = [offset for offset in self.visible(stable) if offset >= start]
                assert read_committed(log, start) == expected

    @invariant()
    def the_index_says_which_transactions_were_aborted(self) -> None:
        aborted = [
            (producer_id, batches[0].first_offset, marker.last_offset)
            for producer_id, batches, marker in self.transactions()
            if marker is not None and not marker.outcome
        ]
        found = [each[:3] for each in find_aborted(self.leader, 0, self.end)]
        assert found == sorted(aborted, key=lambda each: each[2])

    @invariant()
    def the_same_records_are_the_same_state(self) -> None:
        leader, follower = self.logs
        if leader.log_end_offset == follower.log_end_offset:
            assert transaction_state(leader) == transaction_state(follower)


def _rename(folder: str, directory: str, name: str) -> None:
    Path(directory).rename(f"{folder}/{name}")


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
