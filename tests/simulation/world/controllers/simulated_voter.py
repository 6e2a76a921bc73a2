"""A node's voter in the simulation: drives the shipped MetadataVoter over the node's disk.

What is to be done on the disk takes a while; whether it is done at once and told later, or done
late, is chance's. A process that dies in between may have done it and told nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from bradbury.controller.controller_effects import Instant, RunInThread
from bradbury.controller.metadata_voter import MetadataVoter
from bradbury.controller.voter_files.voter_directory import VoterDirectory
from bradbury.controller.voter_requests import QuorumRequest
from bradbury.steps.replies import Refuse, Reply
from bradbury.storage.disk.file_system import FileSystem

from ..simulated_network import Answer, Process, VirtualClock

DATA = "/voter"


class SimulatedVoter:
    """One life of it. The directory is opened at once."""

    def __init__(
        self, name: str, directory_id: str, disk: FileSystem, process: Process, random: Random
    ) -> None:
        self._process = process
        self._random = random
        self._effects: list[Any] = []
        self.disk_ms = 1
        self.step = MetadataVoter(name, VoterDirectory(DATA, disk), self._effects)
        self.step.open(directory_id=directory_id, now_ms=process.clock.now_ms)

    @property
    def voters(self) -> tuple[str, ...]:
        """As its log says."""
        return self.step.state.voters

    def ask(self, request: QuorumRequest[Any], answer: Answer) -> None:
        self.step.handle(answer, request, now_ms=self._process.clock.now_ms)
        self._perform()

    def close(self, answer: Answer) -> None:
        """A clean stop."""
        self.step.close(answer)
        self._perform()

    def _perform(self) -> None:
        effects, self._effects[:] = self._effects[:], []
        for effect in effects:
            match effect:
                case Reply(answer, result) | Refuse(answer, result):
                    answer(result)
                case RunInThread():
                    self._begin(effect)

    def _begin(self, effect: RunInThread) -> None:
        done: list[Any] = []

        def tell() -> None:
            if not done:
                done.append(result_of(effect.work))
            self.step.on_done(effect, done[0], Instant(self._process.clock.now_ms, 0))
            self._perform()

        if self._random.random() < 0.5:
            done.append(result_of(effect.work))
        self._process.after(self._random.randint(1, self.disk_ms), tell)


def result_of(work: Callable[[], Any]) -> Any:
    """What it returns, or raises: as a thread's is told to the step."""
    try:
        return work()
    except Exception as error:
        return error


def ask_at_once(
    voter: MetadataVoter, effects: list[Any], request: QuorumRequest[Any], *, now_ms: int = 0
) -> Any:
    """The answer of a voter whose disk takes no time; raises what it is refused with."""
    found: list[Any] = []
    voter.handle(found.append, request, now_ms=now_ms)
    while effects:
        match effects.pop(0):
            case RunInThread() as effect:
                voter.on_done(effect, result_of(effect.work), Instant(now_ms, now_ms))
            case Reply(answer, result) | Refuse(answer, result):
                answer(result)
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def open_voter(
    disk: FileSystem, name: str, directory_id: str, clock: VirtualClock | None = None
) -> tuple[MetadataVoter, list[Any]]:
    """One for `ask_at_once`, and its effects."""
    effects: list[Any] = []
    voter = MetadataVoter(name, VoterDirectory(DATA, disk), effects)
    voter.open(directory_id=directory_id, now_ms=0 if clock is None else clock.now_ms)
    return voter, effects
