"""What a controller does about voters that do not answer."""

from __future__ import annotations

from typing import Any

import pytest

from bradbury.cluster.quorum.voter import Candidate
from bradbury.controller.controller_effects import AskVoter, FindVoters, FoundVoters, Instant
from bradbury.controller.metadata_leader import MetadataLeader
from bradbury.controller.quorum_times import QuorumTimes
from bradbury.controller.voter_requests import FormatVoter, VoteRequest
from bradbury.protocol.errors import ConnectionFailed, FencedLeaderEpoch, KafkaStorageError
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

    @property
    def asked(self) -> bool:
        """Whether a request to a voter has not been answered."""
        return bool(self._effects)

    @property
    def asks(self) -> set[str]:
        """The voters that are asked for something now."""
        return {effect.voter for effect in self._effects}

    def answer(self, now: Instant, absent: str = "") -> None:
        """Answer all requests; the `absent` voters cannot be reached."""
        effects, self._effects[:] = self._effects[:], []
        for effect in effects:
            if isinstance(effect, FindVoters):
                present = [name for name in self.voters if name not in absent]
                effect.then(FoundVoters(present, "0" * 32), now)
                continue
            assert isinstance(effect, AskVoter)
            if effect.voter in absent:
                effect.then(ConnectionFailed("connection refused"), now)
                continue
            answer: Any
            try:
                answer = ask_at_once(*self.voters[effect.voter], effect.request)
            except FencedLeaderEpoch as error:
                answer = error
            effect.then(answer, now)

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
    leader.on_tick(Instant(TIMES.commit_ms + TIMES.answer_ms - 1, 0))
    assert leader.end_reason is None
    leader.on_tick(Instant(TIMES.commit_ms + TIMES.answer_ms, 0))
    assert leader.end_reason == "no majority of the voters answered for 10 s"


def test_it_says_what_voters_refused_the_log_for() -> None:
    cluster = Cluster()
    cluster.refuse(KafkaStorageError("No space left on device"), START)
    cluster.leader.on_tick(Instant(TIMES.commit_ms, 0))
    cluster.leader.on_tick(Instant(TIMES.commit_ms + TIMES.answer_ms, 0))
    reason = cluster.leader.end_reason
    assert reason is not None
    assert "answered for 10 s" in reason
    assert f"{next(iter(cluster.voters))}: No space left on device" in reason


@pytest.mark.parametrize("now_ms", [TIMES.commit_ms, TIMES.commit_ms + 500, 30_000])
def test_a_controller_that_stood_still_reads_first_what_voters_have_answered(now_ms: int) -> None:
    """For a part of the time, or for longer than all of it."""
    cluster = Cluster()
    later = Instant(now_ms, 0)
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


def idle() -> Cluster:
    """A cluster whose controller has nothing to write: all voters have its entry."""
    cluster = Cluster()
    while cluster.leader.is_appending or cluster.asked:
        cluster.answer(START)
    assert cluster.leader.next_deadline_ms == TIMES.confirm_ms
    return cluster


def test_an_idle_controller_ends_when_a_voter_has_voted_for_another() -> None:
    cluster = idle()
    cluster.leader.on_tick(Instant(TIMES.confirm_ms - 1, 0))
    assert not cluster.asked
    ask_at_once(*cluster.voters["b"], VoteRequest(Candidate(epoch=2, owner="other")))
    now = Instant(TIMES.confirm_ms, 0)
    cluster.leader.on_tick(now)
    cluster.answer(now)
    assert cluster.leader.end_reason is not None
    assert "newer controller" in cluster.leader.end_reason


def test_an_idle_controller_stays_as_long_as_a_majority_confirms_it() -> None:
    cluster = idle()
    for second in range(1, 61):
        now = Instant(second * 1000, 0)
        cluster.leader.on_tick(now)
        cluster.answer(now, absent="a")
        assert cluster.leader.end_reason is None


def test_an_idle_controller_ends_when_no_majority_confirms_it() -> None:
    cluster = idle()
    silence_ms = TIMES.commit_ms + TIMES.confirm_ms
    for now_ms in range(TIMES.confirm_ms, silence_ms, 500):
        cluster.leader.on_tick(Instant(now_ms, 0))
        cluster.answer(Instant(now_ms, 0), absent="ab")
        assert cluster.leader.end_reason is None
    cluster.leader.on_tick(Instant(silence_ms, 0))
    assert cluster.leader.end_reason is None
    cluster.leader.on_tick(Instant(silence_ms + TIMES.answer_ms, 0))
    reason = cluster.leader.end_reason
    assert reason is not None
    assert "no majority of the voters answered for 12 s" in reason
    assert "a: connection refused" in reason


def test_a_voter_that_goes_gets_the_entry_that_says_so_and_no_other() -> None:
    cluster = idle()

    def append(value: bytes, offset: int, voters: tuple[str, ...] | None = None) -> None:
        batch = encode_records([(0, None, value, ())])
        stamp(batch, base_offset=offset, leader_epoch=1)
        cluster.leader.append(bytes(batch), 1, START, voters=voters)

    append(b"1", 1)
    while cluster.leader.is_appending or cluster.asked:
        cluster.answer(START)
    append(b"2", 2, ("a", "b"))
    assert cluster.asks == {"a", "b", "c"}
    while cluster.leader.is_appending or cluster.asked:
        cluster.answer(START)
    append(b"3", 3)
    assert cluster.asks == {"a", "b"}
    while cluster.leader.is_appending or cluster.asked:
        cluster.answer(START)
    assert cluster.leader.committed == 4
