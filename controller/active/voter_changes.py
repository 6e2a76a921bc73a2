"""Additions and removals of voters: each waits until the log is replicated far enough.

An addition: the new voter is found, formatted if it never was a voter, and sent the log; when it
has all committed entries the change is decided. A removal waits until enough of the remaining
voters have them.

Source: raft/.../internals/AddVoterHandler.java, RemoveVoterHandler.java in apache/kafka (KIP-853).
"""

from __future__ import annotations

from typing import Any

from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.metadata.metadata_records import EpochRecord, MetadataRecord, VotersRecord
from ...protocol.errors import InvalidRequest, RequestTimedOut
from ...steps.replies import Refuse, Reply
from ..controller_calls import ChangeVoter
from ..controller_effects import AskVoter, Instant
from ..metadata_leader import MetadataLeader
from ..quorum_times import QuorumTimes
from ..voter_requests import FormatVoter
from ..voter_survey import Survey, VoterSurvey
from .change_queue import ChangeQueue


class VoterChanging:
    """A step object: one request, until it is answered."""

    def __init__(
        self,
        ticket: Any,
        call: ChangeVoter,
        changes: ChangeQueue,
        leader: MetadataLeader,
        effects: list[Any],
        times: QuorumTimes,
        now: Instant,
    ) -> None:
        """Begin. Raises what VoterChange.directory raises."""
        self._ticket = ticket
        self._change = call.change
        self._changes = changes
        self._leader = leader
        self._effects = effects
        self._times = times
        self._deadline_ms = now.now_ms + call.timeout_ms
        self._name = call.change.directory(changes.image)
        self._target = 0
        self._survey: VoterSurvey | None = None
        self._look_at_ms: int | None = None
        self.is_over = False
        # A voter that has this new entry was alive a moment ago. Otherwise the remaining voters, or
        # the new one, might be dead unnoticed, and nothing could be committed after the change.
        record = EpochRecord(epoch=changes.me.epoch, owner=changes.me.owner)
        changes.submit(lambda image: ([record], None), self._on_confirmed, now)

    @property
    def next_deadline_ms(self) -> int | None:
        return self._look_at_ms if self._survey is None else self._survey.next_deadline_ms

    def on_tick(self, now: Instant) -> None:
        if self._survey is not None:
            self._survey.on_tick(now)
        if self._look_at_ms is not None and now.now_ms >= self._look_at_ms:
            self._check_caught_up(now)

    def close(self, error: Exception) -> None:
        """Refuse the request: the controller has ended."""
        if not self.is_over:
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        self.is_over, self._look_at_ms = True, None
        if self._survey is not None:
            self._survey.close()
        self._effects.append(Refuse(self._ticket, error))

    def _on_confirmed(self, answer: Exception | None, now: Instant) -> None:
        if answer is not None:
            self.close(answer)
            return
        self._target = self._leader.committed
        if self._change.is_addition and self._name:
            self._survey = VoterSurvey(self._effects, self._times, self._on_survey)
        else:
            self._check_caught_up(now)

    def _on_survey(self, survey: Survey, now: Instant) -> None:
        self._survey = None
        found = survey.find(self._name)
        if found is None:
            self._refuse(
                RequestTimedOut(f"the broker of voter {self._name} does not answer; try again")
            )
        elif found.state.is_voter:
            self._on_formatted(None, now)
        else:
            image = self._changes.image
            request = FormatVoter(image.cluster_id, image.voters)
            timeout_ms = self._times.fetch_ms
            self._effects.append(AskVoter(found.voter, request, timeout_ms, self._on_formatted))

    def _on_formatted(self, answer: Exception | None, now: Instant) -> None:
        if self.is_over:
            return
        if answer is not None:
            self._refuse(answer)
            return
        self._leader.catch_up(self._name, now)
        self._check_caught_up(now)

    def _check_caught_up(self, now: Instant) -> None:
        """Check whether all voters that have to catch up have done so."""
        self._look_at_ms = None
        try:
            self._voters(self._changes.image)
        except (RequestTimedOut, InvalidRequest) as error:
            if now.now_ms < self._deadline_ms:
                self._look_at_ms = now.now_ms + self._times.catch_up_ms
                return
            if self._name not in self._changes.image.voters:
                self._leader.forget(self._name)
            self._refuse(error)
        except Exception as error:  # noqa: BLE001 -- it is the answer
            self._refuse(error)
        else:
            self._changes.submit(self._decide, self._on_changed, now)

    def _voters(self, image: MetadataImage) -> tuple[str, ...]:
        return self._change.voters(image, self._leader.acknowledged, self._target)

    def _decide(self, image: MetadataImage) -> tuple[list[MetadataRecord], Any]:
        voters = self._voters(image)
        return [VotersRecord(voters=voters)] if voters != image.voters else [], voters

    def _on_changed(self, answer: Any, now: Instant) -> None:
        if isinstance(answer, Exception):
            self.close(answer)
        elif not self.is_over:
            self.is_over = True
            self._effects.append(Reply(self._ticket, answer))
