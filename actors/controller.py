"""The controller: the one process that changes the cluster's metadata. Stateless but for its image.

Ray (or local()) decides which process starts; that alone proves nothing, so on the way up it takes
the next controller epoch with a voter majority's promise, adopts their log, and writes an
EpochRecord (see metadata_log). From then on every change is: decide on the newest image
(cluster/controller_state), append on a majority, fsynced, apply, publish, answer. A rejected append
means a newer controller exists: this one ends at once.

Nodes learn of changes by asking (`poll`): a question is parked until there is news or POLL_SECONDS
have gone by. The question doubles as the node's heartbeat and says how far it has applied.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from ..cluster import controller_state
from ..cluster.cluster_health import ClusterHealth, health_of
from ..cluster.concerned_nodes import concerned_nodes
from ..cluster.controller_request import ControllerRequest
from ..cluster.controller_state import NodeRegistration, Sessions
from ..cluster.metadata_image import MetadataImage, TopicImage
from ..cluster.metadata_records import (
    ClusterRecord,
    EpochRecord,
    MetadataRecord,
    VotersRecord,
    encode_metadata_record,
    voters_in,
)
from ..cluster.metadata_snapshot import SnapshotPolicy, encode_snapshot, end_of
from ..cluster.partition_control import SettleLeaders, may_be_unclean, min_insync_replicas
from ..cluster.poll_times import PollTimes
from ..cluster.voter import Promise
from ..cluster.voter_change import VoterChange
from ..controller.voter_requests import DescribeVoter, FormatVoter, VoterState
from ..handlers.config_rules import ServerConfigRules
from ..handlers.context import QuorumState
from ..handlers.server_config import ServerConfig
from ..protocol.errors import (
    ConnectionFailed,
    InconsistentClusterId,
    InvalidRequest,
    NotController,
    RequestTimedOut,
    StaleControllerEpoch,
)
from ..protocol.record_batch import stamp
from ..protocol.records import encode_records
from . import voter_survey
from .carry_through import carry_through, within
from .metadata_log import ANSWER_SECONDS, MetadataLog, Superseded
from .peer_connection import is_port_closed
from .voter_host import Voter

logger = logging.getLogger("bradbury.controller")

A = TypeVar("A")
POLL_SECONDS = 2.0
KEPT_CHANGES = 10_000
TICK_SECONDS = 0.5
CATCH_UP_SECONDS = 0.02
UNCLEAN_SECONDS = 5.0
"""How often leaderless partitions of topics with unclean.leader.election.enable are looked for."""


class Registered(NamedTuple):
    node_id: int
    cluster_id: str
    controller_epoch: int


class MetadataUpdate(NamedTuple):
    """Encoded records that lead from the asked offset (or, if whole, from nothing) to `offset`."""

    controller_epoch: int
    offset: int
    whole: bool
    records: list[bytes]


class Decision(NamedTuple, Generic[A]):
    """Records to write, none if nothing changes, and what to answer when they are durable."""

    records: Sequence[MetadataRecord]
    answer: A


class Controller:
    """Create, then `start`. One event loop; changes are serialised by a lock."""

    def __init__(
        self,
        voters: Callable[[], Sequence[Voter]],
        server: ServerConfig,
        *,
        now_ms: Callable[[], int],
        on_superseded: Callable[[], None],
        name: str = "controller",
    ) -> None:
        """`name`: of the actor that it runs in; voters tell it to those who look for it."""
        self._name = name
        self._find_voters = voters
        self._server = server
        self._config = server.broker
        self._rules = ServerConfigRules(server)
        self._now_ms = now_ms
        self._on_superseded = on_superseded
        self._me = Promise()
        self._log: MetadataLog | None = None
        self._image = MetadataImage()
        self._changes: deque[tuple[int, list[bytes]]] = deque(maxlen=KEPT_CHANGES)
        self._writing = asyncio.Lock()
        self._news = asyncio.Event()
        self._applied: dict[int, int] = {}
        self._polls = PollTimes()
        self._progress = asyncio.Event()
        # A question is a heartbeat, too: several in a session.
        self._poll_seconds = min(POLL_SECONDS, server.broker.broker_session_timeout_ms / 3000)
        self._probing: set[int] = set()
        self._sessions = Sessions(server.broker.broker_session_timeout_ms)
        self._snapshots = SnapshotPolicy(
            max_bytes=self._config.metadata_log_max_record_bytes_between_snapshots,
            max_interval_ms=self._config.metadata_log_max_snapshot_interval_ms,
        )
        self._log_bytes = 0
        self._snapshot_taken_ms = 0
        self._snapshotting: asyncio.Task[None] | None = None
        self._active = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None
        self.waiting_for: str | None = "its voters"

    @property
    def image(self) -> MetadataImage:
        return self._image

    @property
    def voters(self) -> dict[str, int]:
        """Directory ids of the voters, and up to which offset each has the metadata log."""
        known = {} if self._log is None else self._log.acknowledged
        return {name: known.get(name, 0) for name in self._image.voters}

    @property
    def me(self) -> Promise:
        """What it asks of voters, since it began to become active."""
        return self._me

    @property
    def is_active(self) -> bool:
        return self._active.is_set()

    # --- becoming active -------------------------------------------------------------------------

    async def start(self) -> None:
        """Return when active. Retries for ever what can come right by itself: absent voters.

        May be called again once it was superseded; it then begins anew, in a newer epoch.

        Raises:
            Superseded: a newer controller was faster.
        """
        await self._leave()
        while not await self._try_to_start():
            await asyncio.sleep(0.1)
        self.waiting_for = None
        self._active.set()
        self._ticking = asyncio.create_task(self._tick())
        logger.info(
            "Becoming the active controller of cluster %s at epoch %d, next write offset %d, "
            "%d topics.",
            self._image.cluster_id,
            self._me.epoch,
            self._image.offset,
            len(self._image.topics),
        )

    async def _leave(self) -> None:
        """What a former epoch has left."""
        self._active.clear()
        if self._ticking is not None:
            self._ticking.cancel()
        if self._snapshotting is not None:
            self._snapshotting.cancel()
            await asyncio.gather(self._snapshotting, return_exceptions=True)
        if self._log is not None:
            await self._log.close()
        async with self._writing:  # the change that was under way has been told
            self._log = None
        self._changes.clear()
        self._applied.clear()
        self._polls.clear()

    async def _find_voter(self, directory_id: str) -> Voter | None:
        return await voter_survey.find(self._find_voters, directory_id)

    async def _try_to_start(self) -> bool:
        formation = voter_survey.form(await voter_survey.ask(self._find_voters()))
        if isinstance(formation, str):
            self.waiting_for = formation
            return False
        cluster_id = formation.cluster_id or uuid.uuid4().hex[:22]
        try:
            # Formatting is done again after a crash in the middle of it: whoever is named a voter
            # and has no log never had one, as a directory that was lost comes back with a new id.
            # In order of name: of two who format at once the second is refused by the first voter.
            for voter, state in formation.holders.values():
                if not state.is_voter:
                    await voter.ask(FormatVoter(cluster_id, formation.voters))
            holders = {name: voter for name, (voter, _) in formation.holders.items()}
            await self._lead(cluster_id, formation.voters, holders)
        except (ConnectionFailed, InconsistentClusterId) as error:
            self.waiting_for = str(error)
            return False
        return True

    async def _lead(
        self, cluster_id: str, voters: tuple[str, ...], holders: dict[str, Voter]
    ) -> None:
        """Take the next epoch with the voters' promise, adopt the best log, open the epoch."""
        states = await asyncio.gather(
            *(within(ANSWER_SECONDS, voter.ask(DescribeVoter())) for voter in holders.values()),
            return_exceptions=True,
        )
        known = [state for state in states if isinstance(state, VoterState)]
        epoch = max((max(state.promise.epoch, state.last_epoch) for state in known), default=-1) + 1
        self._me = Promise(epoch=epoch, owner=f"{self._name} {secrets.token_hex(8)}")
        self._log = MetadataLog(self._me, voters, self._find_voter, on_ended=self.end)
        adopted = await self._log.lead(holders)
        self._image = await asyncio.to_thread(adopted.image)
        self._log_bytes = self._log.size_in_bytes
        self._snapshot_taken_ms = _clock_ms()
        try:
            await self._write([EpochRecord(epoch=epoch, owner=self._me.owner)])
            if not self._image.cluster_id:
                # A new cluster, or one whose first controller died right after formatting.
                await self._write([ClusterRecord(cluster_id=cluster_id, voters=voters)])
        except NotController as error:
            raise Superseded(str(error)) from None

    def end(self, reason: str) -> None:
        """Somebody else is the controller now, or nobody can know: no change is made any more."""
        was_active = self.is_active
        if was_active:
            logger.warning(
                "Renouncing the leadership due to a metadata log event. We were the active "
                "controller at epoch %d: %s. Reverting to last committed offset %d.",
                self._me.epoch,
                reason,
                self._image.offset,
            )
        self._active.clear()
        self.waiting_for = "its successor"
        self._news.set()  # whoever waits for news shall look for the next controller
        if was_active:
            self._on_superseded()

    def resign(self, reason: str) -> None:
        """It ends without being asked to by voters: no change is made any more."""
        if self.is_active:
            logger.info(
                "Resigned as the active controller at epoch %d: %s.", self._me.epoch, reason
            )
        self._active.clear()

    # --- changing --------------------------------------------------------------------------------

    async def _decide_and_write(self, decide: Callable[[MetadataImage], Decision[A]]) -> A:
        """What `decide` answers, once its records are durable, applied and published.

        Whoever asked may go away at any moment (a client hangs up, its request is cancelled); a
        change that was begun is carried through all the same. Were it not, the voters would have
        records that the image has not, and the next change could not join on.
        """

        async def carry_out() -> A:
            async with self._writing:
                records, answer = decide(self._image)
                await self._write(records)
                return answer

        return await carry_through(carry_out())

    async def _write(self, records: Sequence[MetadataRecord]) -> None:
        """Make the records durable on a majority, then apply and publish them."""
        if not records:
            return
        encoded = [encode_metadata_record(record) for record in records]
        now = self._now_ms()
        batch = encode_records([(now, None, value, ()) for value in encoded])
        stamp(batch, base_offset=self._image.offset, leader_epoch=self._me.epoch)
        assert self._log is not None, "start() comes first"
        try:
            await self._log.append(bytes(batch), len(records), voters=voters_in(records))
        except Superseded as error:
            raise NotController(f"the controller has ended: {error}") from None
        offset = self._image.offset + len(records)
        self._log_bytes += len(batch)
        self._changes.append((self._image.offset, encoded))
        self._image = self._image.apply(records, offset=offset)
        self._news.set()
        self._news = asyncio.Event()
        self._maybe_snapshot()

    def _maybe_snapshot(self) -> None:
        """Begin a snapshot if one is due and none is under way."""
        age_ms = _clock_ms() - self._snapshot_taken_ms
        if self._snapshotting is None and self._snapshots.is_due(
            log_bytes=self._log_bytes, age_ms=age_ms
        ):
            self._snapshotting = asyncio.create_task(self._take_snapshot())

    async def _take_snapshot(self) -> None:
        """Of the image of now. Changes go on meanwhile."""
        image, log, log_bytes = self._image, self._log, self._log_bytes
        assert log is not None, "start() comes first"
        try:
            now_ms = self._now_ms()
            data = await asyncio.to_thread(partial(encode_snapshot, image, now_ms=now_ms))
            log.compact(end_of(image), data)
            self._log_bytes -= log_bytes
            self._snapshot_taken_ms = _clock_ms()
            logger.info("a snapshot of the metadata at %d, %d bytes", image.offset, len(data))
        finally:
            self._snapshotting = None

    def _require_active(self) -> None:
        if not self._active.is_set():
            raise NotController(f"the controller is waiting for {self.waiting_for}")

    async def register(self, request: NodeRegistration) -> Registered:
        """Take a node into service. Raises InconsistentClusterId, BrokerIdNotRegistered."""
        self._require_active()

        def decide(image: MetadataImage) -> Decision[int]:
            node_id, records = controller_state.register_node(
                image,
                request,
                min_insync=partial(self._min_insync, image),
                is_unclean=partial(self._is_unclean, image),
            )
            return Decision(records, node_id)

        node_id = await self._decide_and_write(decide)
        self._sessions.on_contact(node_id, now_ms=_clock_ms())
        logger.info("node %d (%s) registered", node_id, ",".join(request.roles))
        return Registered(node_id, self._image.cluster_id, self._me.epoch)

    async def change(self, request: ControllerRequest[A], *, timeout_ms: int) -> A:
        """Carry out any request that decides for itself. Raises what it decides, or NotController.

        It stands also if timeout_ms go by before the nodes concerned act on it.
        """
        self._require_active()

        def decide(image: MetadataImage) -> Decision[tuple[A, set[int], int]]:
            records, answer = request.decide(image, self._rules)
            if request.validate_only:
                records = []
            elif request.needs_confirmation and not records:
                # Only who holds the promise of a majority can write it: see `_lead`.
                records = [EpochRecord(epoch=self._me.epoch, owner=self._me.owner)]
            offset = image.offset + len(records)
            return Decision(records, (answer, concerned_nodes(records, image), offset))

        answer, concerned, offset = await self._decide_and_write(decide)
        await self._wait_applied(concerned, offset, timeout_ms)
        return answer

    async def change_voter(self, request: VoterChange, *, timeout_ms: int) -> tuple[str, ...]:
        """Add a voter, once it has what is committed, or remove one; returns who votes.

        Raises what VoterChange raises; RequestTimedOut: a new one has not caught up in time.
        """
        self._require_active()
        log = self._log
        assert log is not None, "it is active"
        name = request.directory(self._image)
        # An entry of now: who has it was there a moment ago. Else those that stay, or the new one,
        # might be gone without anybody having noticed, and nothing could be committed afterwards.
        record = EpochRecord(epoch=self._me.epoch, owner=self._me.owner)
        await self._decide_and_write(lambda image: Decision([record], None))
        target = log.committed
        deadline_ms = _clock_ms() + timeout_ms
        if request.is_addition and name:
            await self._begin_to_catch_up(log, name)
        while True:
            try:
                request.voters(self._image, log.acknowledged, target)
                break
            except (RequestTimedOut, InvalidRequest):
                if _clock_ms() >= deadline_ms:
                    if name not in self._image.voters:
                        log.forget(name)
                    raise
            await asyncio.sleep(CATCH_UP_SECONDS)
            self._require_active()

        def decide(image: MetadataImage) -> Decision[tuple[str, ...]]:
            voters = request.voters(image, log.acknowledged, target)
            changed = voters != image.voters
            return Decision([VotersRecord(voters=voters)] if changed else [], voters)

        return await self._decide_and_write(decide)

    async def _begin_to_catch_up(self, log: MetadataLog, name: str) -> None:
        """Bring the log to one that does not vote yet."""
        voter = await self._find_voter(name)
        if voter is None:
            raise RequestTimedOut("its broker does not answer; try again")
        if not (await voter.ask(DescribeVoter())).is_voter:
            await voter.ask(FormatVoter(self._image.cluster_id, self._image.voters))
        log.catch_up(name)

    async def allocate_producer_ids(self) -> tuple[int, int]:
        """(first, count) of ids that no one else gets."""
        self._require_active()

        def decide(image: MetadataImage) -> Decision[int]:
            first, records = controller_state.allocate_producer_ids(image)
            return Decision(records, first)

        return await self._decide_and_write(decide), controller_state.PRODUCER_ID_BLOCK

    # --- publishing ------------------------------------------------------------------------------

    async def poll(self, node_id: int, incarnation: str, applied: int) -> MetadataUpdate:
        """News after offset `applied`; parked while there is none. The node's heartbeat.

        Raises:
            BrokerIdNotRegistered, StaleBrokerEpoch: the node must register (again), or end.
        """
        self._require_active()
        await self._hear(node_id, incarnation, applied)
        if applied >= self._image.offset:
            try:
                await within(self._poll_seconds, self._news.wait())
            except TimeoutError:
                pass
            self._require_active()
            # Whoever asked may have died meanwhile: only a question is a sign of life. News wakes
            # this up, too, that the node was fenced; it must not be what brings the node back.
            controller_state.check_session(self._image, node_id, incarnation)
        return self._update_after(applied)

    async def leave(self, node_id: int, incarnation: str) -> None:
        """The node is about to stop: others lead from now on where they can.

        Raises BrokerIdNotRegistered, StaleBrokerEpoch: it was not in service any more.
        """
        self._require_active()
        controller_state.check_session(self._image, node_id, incarnation)
        await self._fence(node_id, fenced=True)

    async def suspect(self, node_id: int) -> None:
        """Another node cannot reach this one. If nobody listens on its port its process is dead:
        then others lead at once, and not after broker.session.timeout.ms.

        No more than a hint: a node that is fenced by mistake is heard of again, and serves on.
        """
        self._require_active()
        node = self._image.nodes.get(node_id)
        if node is None or node.fenced or node_id in self._probing:
            return
        self._probing.add(node_id)
        try:
            is_dead = await is_port_closed(node.host, node.port)
            now = self._image.nodes.get(node_id)
            if is_dead and now is not None and now.epoch == node.epoch:
                logger.warning("nobody listens on the port of node %d: fencing it", node_id)
                await self._fence(node_id, fenced=True)
        finally:
            self._probing.discard(node_id)

    async def _hear(self, node_id: int, incarnation: str, applied: int) -> None:
        node = controller_state.check_session(self._image, node_id, incarnation)
        self._sessions.on_contact(node_id, now_ms=_clock_ms())
        has_all = applied >= self._image.offset
        self._polls.on_poll(node_id, has_all=has_all, now_ms=self._now_ms())
        if self._applied.get(node_id) != applied:
            self._applied[node_id] = applied
            self._progress.set()
            self._progress = asyncio.Event()
        if node.fenced:
            await self._fence(node_id, fenced=False)

    def _update_after(self, applied: int) -> MetadataUpdate:
        image = self._image
        if applied == image.offset:
            return MetadataUpdate(self._me.epoch, image.offset, whole=False, records=[])
        if applied > image.offset or not self._changes or self._changes[0][0] > applied:
            records = [encode_metadata_record(record) for record in image.to_records()]
            return MetadataUpdate(self._me.epoch, image.offset, whole=True, records=records)
        news: list[bytes] = []
        for offset, encoded in self._changes:
            if offset + len(encoded) > applied:
                news += encoded[max(0, applied - offset) :]
        return MetadataUpdate(self._me.epoch, image.offset, whole=False, records=news)

    async def _wait_applied(self, node_ids: set[int], offset: int, timeout_ms: int) -> None:
        """Until those nodes serve what was just decided, so that a client can use it at once."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(timeout_ms, 0) / 1000
        while any(self._applied.get(node_id, 0) < offset for node_id in node_ids):
            progress = self._progress
            try:
                await within(deadline - loop.time(), progress.wait())
            except TimeoutError:
                return

    # --- watching --------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Fence nodes that have been silent for a session. Never ends by an error of its own."""
        loop = asyncio.get_running_loop()
        unclean_at = loop.time() + UNCLEAN_SECONDS
        interval = self._config.leader_imbalance_check_interval_seconds
        balance_at = loop.time() + interval
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                self._maybe_snapshot()
                await self._fence_silent()
                if loop.time() >= unclean_at:
                    unclean_at = loop.time() + UNCLEAN_SECONDS
                    await self._settle_leaders(is_balancing=False)
                if loop.time() >= balance_at:
                    balance_at = loop.time() + interval
                    if self._config.auto_leader_rebalance_enable:
                        await self._settle_leaders(is_balancing=True)
            except (NotController, StaleControllerEpoch):
                return
            except Exception:
                logger.exception("the controller's tick failed")

    async def _settle_leaders(self, *, is_balancing: bool) -> None:
        changed = await self.change(SettleLeaders(is_balancing=is_balancing), timeout_ms=0)
        if changed:
            how = "their first replicas lead" if is_balancing else "led by replicas out of sync"
            logger.warning("%d partitions: %s now", changed, how)

    async def _fence_silent(self) -> None:
        for node_id in self._sessions.expired(self._image, now_ms=_clock_ms()):
            logger.warning("node %d is silent: fencing it", node_id)
            await self._fence(node_id, fenced=True)

    def _min_insync(self, image: MetadataImage, topic: TopicImage) -> int:
        return min_insync_replicas(image, self._rules, topic)

    def _is_unclean(self, image: MetadataImage, topic: TopicImage) -> bool:
        return may_be_unclean(image, self._rules, topic)

    async def quorum(self) -> QuorumState:
        """See handlers.context.Controller."""
        self._require_active()
        applied, polls = dict(self._applied), self._polls.of_all()
        return QuorumState(self._me.epoch, self._image.offset, dict(self.voters), applied, polls)

    def health(self) -> ClusterHealth:
        """How the partitions are, as far as the controller knows."""
        return health_of(self._image, partial(self._min_insync, self._image))

    async def _fence(self, node_id: int, *, fenced: bool) -> None:
        def decide(image: MetadataImage) -> Decision[None]:
            records = controller_state.fence_node(
                image,
                node_id,
                fenced=fenced,
                min_insync=partial(self._min_insync, image),
                is_unclean=partial(self._is_unclean, image),
            )
            return Decision(records, None)

        await self._decide_and_write(decide)

    async def close(self) -> None:
        """Returns when no change is under way any more."""
        self.resign("it is shut down")
        await self._leave()

    async def bootstrap_servers(self) -> str:
        """host:port of the nodes that clients begin with: brokers, or any if there are none."""
        self._require_active()
        nodes = self._image.live_nodes("broker") or self._image.live_nodes()
        return ",".join(f"{node.host}:{node.port}" for node in nodes)


def _clock_ms() -> int:
    """Sessions are counted on a clock that never jumps."""
    return int(asyncio.get_running_loop().time() * 1000)
