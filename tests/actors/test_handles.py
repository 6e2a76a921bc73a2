"""Which controller does a node believe, when two answer, or one does not?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bradbury.actors.controller.controller_handle import ControllerHandle
from bradbury.cluster.quorum.candidacy import INACTIVE_MS
from bradbury.controller.controller_calls import MetadataUpdate, PollMetadata
from bradbury.protocol.errors import ConnectionFailed, NotController


class Answered(ControllerHandle):
    """Without Ray: what is asked is answered, or fails, as a test says."""

    def __init__(self, *answers: Any) -> None:
        nobody: Any = None
        super().__init__(nobody)
        self._answers = list(answers)

    async def _ask_once(self, asked: Any) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def epoch(number: int) -> MetadataUpdate:
    return MetadataUpdate(number, 10, whole=False, records=[])


def is_due(handle: ControllerHandle) -> bool:
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    return handle.candidacy.is_due(now_ms=now_ms + INACTIVE_MS, voters_before=0)


def test_a_deposed_controller_that_does_not_know_it_is_not_believed() -> None:
    async def scenario() -> None:
        handle = Answered(epoch(3), epoch(2), epoch(3))
        await handle.ask(PollMetadata(1, "i", 0))
        assert not is_due(handle)
        with pytest.raises(NotController):
            await handle.ask(PollMetadata(1, "i", 0))
        assert is_due(handle)
        await handle.ask(PollMetadata(1, "i", 0))
        assert not is_due(handle)

    asyncio.run(scenario())


def test_a_controller_that_is_gone_is_not_believed_until_another_answers() -> None:
    async def scenario() -> None:
        handle = Answered(epoch(3), ConnectionFailed("gone"), epoch(4))
        await handle.ask(PollMetadata(1, "i", 0))
        with pytest.raises(ConnectionFailed):
            await handle.ask(PollMetadata(1, "i", 0))
        assert is_due(handle)
        await handle.ask(PollMetadata(1, "i", 0))
        assert not is_due(handle)

    asyncio.run(scenario())
