"""Effects of one event of a classic group, collected in order until the event's end."""

from __future__ import annotations

from ...coordinators.rules_effects import Append, CancelTimer, Respond, StartTimer
from ...protocol.error_code import ErrorCode
from ...protocol.messages.sync_group import SyncGroupResponse
from ...protocol.schema import Message
from ..group_effects import Effect, Report, TimerKey, TimerKind
from .group_view import refused_join


class GroupEffects:
    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._effects: list[Effect] = []

    def take(self) -> list[Effect]:
        """Take all effects of the event."""
        effects, self._effects = self._effects, []
        return effects

    def append(self, append: Append) -> None:
        self._effects.append(append)

    def report(self, text: str) -> None:
        self._effects.append(Report(self._group_id, text))

    # --- answers ---------------------------------------------------------------------------------

    def reply(self, request_id: int, response: Message) -> None:
        self._effects.append(Respond(request_id, response))

    def refuse_join(self, request_id: int, error: ErrorCode, member_id: str) -> None:
        self.reply(request_id, refused_join(error, member_id))

    def refuse_sync(self, request_id: int, error: ErrorCode) -> None:
        self.reply(request_id, SyncGroupResponse(error_code=error))

    # --- timers ----------------------------------------------------------------------------------

    def start_session(self, member_id: str, timeout_ms: int) -> None:
        key = TimerKey(TimerKind.SESSION, self._group_id, member_id)
        self._effects.append(StartTimer(key, timeout_ms))

    def end_session(self, member_id: str) -> None:
        self._effects.append(CancelTimer(TimerKey(TimerKind.SESSION, self._group_id, member_id)))

    def start_timer(self, kind: TimerKind, after_ms: int) -> None:
        self._effects.append(StartTimer(TimerKey(kind, self._group_id), after_ms))

    def cancel_timer(self, kind: TimerKind) -> None:
        self._effects.append(CancelTimer(TimerKey(kind, self._group_id)))
