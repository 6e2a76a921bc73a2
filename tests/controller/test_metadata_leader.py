"""What a controller does about voters that do not answer."""

from __future__ import annotations

from typing import Any

from bradbury.cluster.quorum.voter import Candidate
from bradbury.controller.controller_effects import AskVoter, Instant
from bradbury.controller.metadata_leader import MetadataLeader
from bradbury.controller.quorum_times import QuorumTimes
from bradbury.controller.voter_requests import FormatVoter
from bradbury.protocol.errors import KafkaStorageError
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import encode_records
from bradbury.tests.simulation.world.controllers.simulated_voter import ask_at_once, open_voter
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

TIMES = QuorumTimes()
START = Instant(0, 0)


class Cluster:
    """One controller that has appended an entry, and three voters that have not answered it yet."""

    def __init__(self) -> None:
        self.voters = {name: open_voter(MemoryFileSystem(), name, name) for name in "abc"}
        for voter in self.voters.values():
            ask_at_once(*voter, FormatVoter("c", tuple(self.voters)))
        self._effects: list[Any] = []
        self.leader = MetadataLeader(
            Candidate(epoch=1, owner="me"), tuple(self.voters), self._effects, TIMES
        )
        self.leader.lead({name: name for name in self.voters})
        while self.leader.adopted is None:
            self.answer(START)
        batch = encode_records([(0, None, b"1", ())])
        stamp(batch, base_offset=0, leader_epoch=1)
        self.leader.append(bytes(batch), 1, START)

    def answer(self, now: Instant) -> None:
        """Whoever is asked answers."""
        effects, self._effects[:] = self._effects[:], []
        for effect in effects:
            assert isinstance(effect, AskVoter)
            effect.then(ask_at_once(*self.voters[effect.voter], effect.request), now)

    def refuse(self, error: Exception, now: Instant) -> None:
        """Whoever is asked cannot write."""
        effects, self._effects[:] = self._effects[:], []
        for effect in effects:
            assert isinstance(effect, AskVoter)
            effect.then(error, now)


def test_a_controller_that_no_majority_answers_ends() -> None:
    leader = Cluster().leader
    leader.on_tick(Instant(TIMES.commit_ms - 1, 0))
    assert leader.end_reason is None
    leader.on_tick(Instant(TIMES.commit_ms, 0))
    assert leader.end_reason == "no majority of the voters answered for 10 s"


def test_it_says_what_voters_refused_the_log_for() -> None:
    cluster = Cluster()
    cluster.refuse(KafkaStorageError("No space left on device"), START)
    cluster.leader.on_tick(Instant(TIMES.commit_ms, 0))
    reason = cluster.leader.end_reason
    assert reason is not None
    assert "answered for 10 s" in reason
    assert f"{next(iter(cluster.voters))}: No space left on device" in reason


def test_a_controller_that_stood_still_reads_first_what_voters_have_answered() -> None:
    cluster = Cluster()
    later = Instant(30_000, 0)
    cluster.leader.on_tick(later)
    assert cluster.leader.end_reason is None
    cluster.answer(later)
    cluster.answer(later)
    assert cluster.leader.committed == 1
    assert not cluster.leader.is_appending


def test_a_controller_that_stood_still_ends_when_nobody_answers_then_either() -> None:
    leader = Cluster().leader
    leader.on_tick(Instant(30_000, 0))
    assert leader.next_deadline_ms is not None
    leader.on_tick(Instant(30_000 + TIMES.answer_ms, 0))
    assert leader.end_reason is not None
