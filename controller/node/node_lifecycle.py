"""Life cycle of a node with the controller: it registers, follows the metadata, and sends
heartbeats.

    register  until a controller answers; the node's identity is on the disk before it serves
    follow    poll for metadata, apply it, poll again; the poll is the heartbeat, too
    leave     report the shutdown, so that others lead at once; nothing is polled from then on
    fenced    a newer incarnation of the node is registered, or the node is not registered: it ends

Answers of a former controller that has not noticed its successor are ignored. Applying may take
longer than a session (many partitions to open): separate polls keep the node in service meanwhile.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from ...cluster.control.controller_state import NodeRegistration
from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.metadata.metadata_records import decode_metadata_record
from ...protocol.errors import (
    BrokerIdNotRegistered,
    ConnectionFailed,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    KafkaError,
    NotController,
    StaleBrokerEpoch,
)
from ...steps.replies import Refuse, Reply
from ..controller_calls import (
    ControlledShutdown,
    MetadataUpdate,
    PollMetadata,
    RegisterBroker,
    Registered,
)
from ..controller_effects import ApplyMetadata, AskController, Fenced, Instant, StoreIdentity

logger = logging.getLogger(__name__)

RETRY_MS = 100
LEAVE_MS = 5_000
HEARTBEATS_PER_SESSION = 3


class BrokerIncarnation(NamedTuple):
    """One run of a node: its random incarnation id, and its session timeout."""

    incarnation: str
    session_ms: int


class NodeLifecycle:
    """A step object: `register`, `follow`, and at the end `leave` and `stop`; inputs are `on_done`
    and `on_tick`.
    """

    def __init__(
        self, life: BrokerIncarnation, effects: list[Any], *, retry_ms: int = RETRY_MS
    ) -> None:
        self._life = life
        self._effects = effects
        self._retry_ms = retry_ms
        self.node_id = -1
        self.controller_epoch = -1
        """Epoch of the newest controller that has answered."""
        self.image = MetadataImage()
        """Image that was applied last."""
        self._registration: NodeRegistration | None = None
        self._ticket: Any = None
        self._asks_at_ms: int | None = None
        self._heartbeat_at_ms: int | None = None
        self._is_over = False
        self._is_following = False
        """Whether an image was applied: before that it has nothing to hand over."""
        self._leaving: list[Any] = []
        """Tickets of callers that wait until it has left."""
        self._leave_by_ms: int | None = None
        self._is_new = False
        """Whether its directory was new at registration."""
        self._refused_since_ms: int | None = None
        """Time since which registration is refused, as another directory of its name is in service;
        None: it is not.
        """

    # --- inputs ----------------------------------------------------------------------------------

    def register(self, ticket: Any, registration: NodeRegistration) -> None:
        """Register; answered when the node knows that it is registered, refused with the
        controller's error.
        """
        self._ticket, self._registration = ticket, registration
        self._is_over = False  # its directory may have been another process's for a while
        self._ask()

    def follow(self, ticket: Any) -> None:
        """Follow the metadata; answered when the first image is applied, and continues then."""
        self._ticket, self._registration = ticket, None
        self._ask()

    def leave(self, ticket: Any, now: Instant) -> None:
        """Stop, and have others elected as leaders; answered with False if no controller has
        confirmed that.

        It may be called again then. If it is not, others lead when the node's session has expired.
        """
        if not self._is_following:
            self._effects.append(Reply(ticket, True))
            return
        self.stop()  # or it would register again
        self._leaving.append(ticket)
        self._leave_by_ms = now.now_ms + LEAVE_MS
        shutdown = ControlledShutdown(self.node_id, self._life.incarnation)
        self._effects.append(AskController(shutdown, self._on_left))

    def _on_left(self, answer: object, now: Instant) -> None:
        """A refusal is an answer, too: the node was out of service already."""
        del now
        is_refused = isinstance(answer, KafkaError) and not isinstance(
            answer, NotController | ConnectionFailed
        )
        self._answer_leavers(is_heard=is_refused or not isinstance(answer, Exception))

    def _answer_leavers(self, *, is_heard: bool) -> None:
        self._leave_by_ms = None
        self._effects.extend(Reply(ticket, is_heard) for ticket in self._leaving)
        self._leaving = []

    def stop(self) -> None:
        """Stop: nothing more is sent."""
        self._is_over = True
        self._asks_at_ms = self._heartbeat_at_ms = None
        self._answer_leavers(is_heard=False)

    def on_done(self, effect: Any, result: Any, now: Instant) -> None:
        """Called with the result, or the exception, of an effect that has a `then`."""
        if not self._is_over or effect.then == self._on_left:
            effect.then(result, now)

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = (self._asks_at_ms, self._heartbeat_at_ms, self._leave_by_ms)
        return min((each for each in deadlines if each is not None), default=None)

    def on_tick(self, now: Instant) -> None:
        if self._asks_at_ms is not None and now.now_ms >= self._asks_at_ms:
            self._asks_at_ms = None
            self._ask()
        if self._heartbeat_at_ms is not None and now.now_ms >= self._heartbeat_at_ms:
            # The controller answers at once, as our offset is old; the records are polled again.
            self._effects.append(AskController(self._question(), lambda result, now: None))
            self._beat_later(now)
        if self._leave_by_ms is not None and now.now_ms >= self._leave_by_ms:
            self._answer_leavers(is_heard=False)

    # --- asking ----------------------------------------------------------------------------------

    def _ask(self) -> None:
        if self._registration is not None:
            self._effects.append(
                AskController(RegisterBroker(self._registration), self._on_registered)
            )
        else:
            self._effects.append(AskController(self._question(), self._on_update))

    def _question(self) -> PollMetadata:
        return PollMetadata(self.node_id, self._life.incarnation, self.image.offset)

    def _ask_later(self, now: Instant) -> None:
        self._asks_at_ms = now.now_ms + self._retry_ms

    def _refuse(self, error: Exception) -> None:
        ticket, self._ticket = self._ticket, None
        self._effects.append(Refuse(ticket, error))

    def _answer(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._effects.append(Reply(ticket, None))

    # --- registering -----------------------------------------------------------------------------

    def _on_registered(self, answer: Registered | Exception, now: Instant) -> None:
        is_taken = isinstance(answer, DuplicateBrokerRegistration)
        if isinstance(answer, NotController | ConnectionFailed) or (
            is_taken and self._waits_longer(now)
        ):
            self._ask_later(now)
        elif isinstance(answer, Exception):
            self._refuse(answer)
        else:
            assert self._registration is not None
            self._is_new = self._registration.node_id is None
            self.node_id = answer.node_id
            self.controller_epoch = max(self.controller_epoch, answer.controller_epoch)
            self._effects.append(StoreIdentity(answer, self._on_stored))

    def _waits_longer(self, now: Instant) -> bool:
        """Whether to wait: if its directory was lost, the session of its former incarnation may not
        have expired yet.
        """
        if self._refused_since_ms is None:
            self._refused_since_ms = now.now_ms
            logger.warning(
                "the node's former directory is still registered; waiting for its session to expire"
            )
        return now.now_ms - self._refused_since_ms <= 2 * self._life.session_ms

    def _on_stored(self, failure: Exception | None, now: Instant) -> None:
        del now
        if failure is not None:
            self._refuse(failure)
        else:
            self._answer()

    # --- following -------------------------------------------------------------------------------

    def _on_update(self, answer: MetadataUpdate | Exception, now: Instant) -> None:
        if isinstance(answer, Exception):
            self._on_failure(answer, now)
        elif answer.controller_epoch < self.controller_epoch:
            self._ask_later(now)  # a former controller that has not noticed its successor
        else:
            self.controller_epoch = answer.controller_epoch
            if answer.offset == self.image.offset:
                self._is_following = True
                self._answer()
                self._ask()
                return
            base = MetadataImage() if answer.whole else self.image
            records = [decode_metadata_record(value) for value in answer.records]
            image = base.apply(records, offset=answer.offset)
            if self._is_new:
                self._is_new = False
                self._log_lost_partitions(image)

            def applied(failure: Exception | None, now: Instant) -> None:
                self._on_applied(image, failure, now)

            self._beat_later(now)
            self._effects.append(ApplyMetadata(image, applied))

    def _log_lost_partitions(self, image: MetadataImage) -> None:
        """Log an error if the directory is new though the node has partitions: their records were
        in another directory.
        """
        here = [
            f"{topic.name}-{index}"
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if self.node_id in partition.replicas
        ]
        if here:
            logger.error(
                "node %d has a new data directory: the records that its former one had of %d "
                "partitions (%s, ...) are fetched from other replicas; otherwise lost",
                self.node_id,
                len(here),
                here[0],
            )

    def _on_applied(self, image: MetadataImage, failure: Exception | None, now: Instant) -> None:
        self._heartbeat_at_ms = None
        if failure is not None:
            self._on_failure(failure, now)
            return
        self.image = image
        self._is_following = True
        self._answer()
        self._ask()

    def _beat_later(self, now: Instant) -> None:
        self._heartbeat_at_ms = now.now_ms + self._life.session_ms // HEARTBEATS_PER_SESSION

    def _on_failure(self, error: Exception, now: Instant) -> None:
        if isinstance(error, NotController | ConnectionFailed):
            self._ask_later(now)
        elif self._ticket is not None:
            self._refuse(error)  # the caller that waits for the first image decides
        elif isinstance(error, BrokerIdNotRegistered | InconsistentClusterId | StaleBrokerEpoch):
            self.stop()
            self._effects.append(Fenced(str(error)))
        else:
            is_expected = isinstance(error, KafkaError)
            logger.log(
                logging.WARNING if is_expected else logging.ERROR,
                "node %d cannot follow the metadata: %s",
                self.node_id,
                error,
                exc_info=None if is_expected else error,
            )
            self._ask_later(now)
