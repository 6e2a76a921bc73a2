"""Loading of a coordinator: its log is read from start to end, and applied.

    ReadLog -> on_read: apply some entries at a time -> ReadLog ... -> the end
    the end is not committed yet -> WatchHighWatermark, on_high_watermark -> is_complete

All records in the log are applied, including those not committed yet: a new leader does not know
how far its predecessor had committed, so its own log decides. But clients see the loaded state from
then on, so all of it must be committed before any client is served: another leader could still
truncate it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ..protocol.errors import OffsetOutOfRange
from .coordinator_effects import (
    ContextEffect,
    CoordinatorLog,
    ReadLog,
    UnwatchHighWatermark,
    WatchHighWatermark,
)
from .coordinator_rules import CoordinatorRules

Effects: TypeAlias = list[ContextEffect]

ENTRIES_AT_ONCE = 500
"""Entries applied before the event loop runs other work: some 2 ms."""


class CoordinatorLoader:
    """Reads `log` into `rules`, which have to be new."""

    def __init__(
        self, log: CoordinatorLog, rules: CoordinatorRules, max_bytes: int, effects: Effects
    ) -> None:
        """`max_bytes`: bytes that are read at a time."""
        self._log = log
        self._rules = rules
        self._max_bytes = max_bytes
        self._effects = effects
        self._offset = log.log_start_offset
        """Offset up to which the log is read."""
        self._reading: ReadLog | None = None
        self._entries: list[Any] = []
        """Entries that are read and not applied yet, the next one last."""
        self._is_watching = False
        self.is_complete = False

    @property
    def has_entries(self) -> bool:
        """Whether there are entries to apply: call `apply_some` once other work has run."""
        return bool(self._entries)

    def begin(self) -> None:
        self._go_on()

    def on_read(self, read: ReadLog, entries: list[Any], next_offset: int) -> None:
        if read is not self._reading:
            return
        self._reading = None
        self._offset = next_offset
        self._entries = entries[::-1]
        self.apply_some()

    def on_read_failed(self, read: ReadLog, error: Exception) -> Exception | None:
        """Error that ends the loading; None if it continues."""
        if read is not self._reading:
            return None
        start = self._log.log_start_offset
        if isinstance(error, OffsetOutOfRange) and read.offset < start:
            # The oldest segment was deleted meanwhile. Its records were superseded, or tombstones.
            self._offset = start
            self._go_on()
            return None
        return error

    def apply_some(self) -> None:
        for _ in range(min(ENTRIES_AT_ONCE, len(self._entries))):
            self._rules.apply(self._entries.pop())
        if not self._entries:
            self._go_on()

    def on_high_watermark(self) -> None:
        if self._is_watching and self._is_committed:
            self.close()
            self.is_complete = True

    def close(self) -> None:
        """Close: the result of a read in progress is ignored."""
        self._reading = None
        self._entries.clear()
        if self._is_watching:
            self._is_watching = False
            self._effects.append(UnwatchHighWatermark())

    def _go_on(self) -> None:
        end = self._end
        if self._offset < end:
            self._reading = ReadLog(self._offset, self._max_bytes, end)
            self._effects.append(self._reading)
        elif self._is_committed:
            self.is_complete = True
        else:
            self._is_watching = True
            self._effects.append(WatchHighWatermark())

    @property
    def _end(self) -> int:
        return self._log.log_end_offset

    @property
    def _is_committed(self) -> bool:
        return self._log.high_watermark >= self._offset
