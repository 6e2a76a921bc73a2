"""Somebody who says who may get in, and what every node makes of it.

For each user there are ACLs, a SCRAM credential and a delegation token. One thing is
asked at a time, so what is committed is known, but for what got no good answer: that may have been
done, or may yet be done by a request that is late.

    A1  what was acknowledged is committed, and stays so through controllers and snapshots
    A2  who may not get in when that is acknowledged gets in at no node that was in service all along
    A3  a node in service lets nobody in whom the committed metadata has forbidden for longer than
        a session, and what it takes to notice its end; out of service it goes by what it knew
    A4  at rest every node goes by all of it
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bradbury.cluster.control.access.acl_control import AclToCreate, CreateAcls, DeleteAcls
from bradbury.cluster.control.access.scram_control import (
    AlterUserScramCredentials,
    ScramDeletion,
    ScramUpsertion,
)
from bradbury.cluster.control.access.token_control import (
    CreateDelegationToken,
    ExtendDelegationToken,
)
from bradbury.cluster.control.controller_request import RequestOutcome
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.user_records import DelegationTokenRecord
from bradbury.cluster.security.authorizer import StandardAuthorizer
from bradbury.controller.controller_calls import Change
from bradbury.protocol.errors import NotController
from bradbury.protocol.principal import Principal
from bradbury.protocol.security.acl_binding import (
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from bradbury.protocol.security.scram import MIN_ITERATIONS, ScramCredential

from ..world.simulated_network import LOST, Process, is_error
from .simulated_log_checks import Violation

if TYPE_CHECKING:
    from ..world.controllers.simulated_controller import SimulatedController
    from ..world.simulated_cluster import SimulatedCluster
    from ..world.simulated_node import SimulatedNode

USERS: Final = ("ann", "bob")
PACE_MS: Final = 30
RETRY_MS: Final = 30
IMPATIENT_MS: Final = 150
"""After which it asks again, as if its connection were lost."""
WAIT_MS: Final = 700
"""How long a change waits for nodes to go by it: 5 s in life."""
CHECK_MS: Final = 20
NOTICE_MS: Final = 1_000
"""For the look at sessions, and the commit that takes a node out of service."""
LOST_ANSWERS_MS: Final = 3_000
"""Where single messages are lost: polls may arrive, and their answers not, several in a row."""
SCRAM_SHA_256: Final = 1
MECHANISM: Final = "SCRAM-SHA-256"
FOREVER_MS: Final = 2**50
NOTHING: Final = ""

Key = tuple[str, str]
"""What is said of a user: (`allow`, `deny`, `scram` or `token`, the user)."""


class Unsure(NamedTuple):
    """A request without a good answer: what it would leave there, and whom it was sent to."""

    value: str
    asked: SimulatedController


class Gate(NamedTuple):
    """One way in: `rules`, `scram` or `token`."""

    kind: str
    user: str


GATES: Final = tuple(Gate(kind, user) for user in USERS for kind in ("rules", "scram", "token"))
KEYS: Final = tuple((kind, user) for user in USERS for kind in ("allow", "deny", "scram", "token"))


class AccessOperator:
    def __init__(self, cluster: SimulatedCluster, machine: int) -> None:
        self._cluster = cluster
        self._random = Random(f"access {cluster.seed}")
        self._process = Process(cluster.clock, machine, "access operator")
        self._process.begin_life()
        self._values = dict.fromkeys(KEYS, NOTHING)
        """What the last good answer has left there."""
        self._unsure: dict[Key, list[Unsure]] = {key: [] for key in KEYS}
        self._number = 0
        self._newest = MetadataImage()
        self._in_service_since: dict[int, tuple[str, int]] = {}
        """Incarnation and time, of nodes that are not fenced in the newest image."""
        self._forbidden_since: dict[Gate, int] = {}
        self._counted_by: SimulatedController | None = None
        self._let_in_ms: dict[tuple[int, Gate], int] = {}
        """How long a node in service has let in whom the committed image forbids."""
        self._authorizer = StandardAuthorizer(frozenset(), allows_if_no_acl=False)
        self._open: dict[int, tuple[MetadataImage, frozenset[Gate]]] = {}
        self.acknowledged = 0
        self.longest_ms = 0
        self._process.after(PACE_MS, self._act)
        cluster.clock.after(CHECK_MS, self._check)

    # --- what is asked ---------------------------------------------------------------------------

    def _act(self) -> None:
        if not self._cluster.is_calm:
            key = self._random.choice(KEYS)
            self._send(key, *self._change_of(key))

    def _send(self, key: Key, request: Any, value: str) -> None:
        controller = self._cluster.current
        assert controller is not None
        sent_ms = self._cluster.clock.now_ms
        self._unsure[key].append(Unsure(value, controller))

        def answered(result: Any) -> None:
            if result is LOST or isinstance(result, NotController):
                if self._random.random() < 0.8:  # as actors/controller/handles does
                    again = replace(request, is_repeated=True)
                    self._process.after(RETRY_MS, lambda: self._send(key, again, value))
                    return
            elif not is_error(result) and _is_done(result):
                self._on_acknowledged(key, value, controller, sent_ms)
            self._process.after(1 + self._random.randrange(2 * PACE_MS), self._act)

        self._cluster.network.call(
            self._process,
            controller.process,
            lambda answer: controller.ask(Change(request, timeout_ms=WAIT_MS), answer),
            answered,
            timeout_ms=self._random.choice((IMPATIENT_MS, 2 * WAIT_MS)),
            what="access",
            is_connection=True,
        )

    def _change_of(self, key: Key) -> tuple[Any, str]:
        """A request, and what it leaves there."""
        kind, user = key
        self._number += 1
        is_there = self._values[key] != NOTHING
        # Now and then what is there already, or not there: as after an answer that was lost.
        makes = self._random.random() < (0.3 if is_there else 0.7)
        if kind in ("allow", "deny"):
            rule = rule_of(kind, user)
            if makes:
                return CreateAcls(acls=(AclToCreate(acl_id=str(self._number), binding=rule),)), kind
            return DeleteAcls(filters=(AclFilter(*rule),)), NOTHING
        if kind == "scram":
            if not makes:
                gone = ScramDeletion(name=user, mechanism=SCRAM_SHA_256)
                return AlterUserScramCredentials(deletions=(gone,), upsertions=()), NOTHING
            credential = ScramCredential(
                salt=str(self._number).encode(),
                stored_key=b"stored",
                server_key=b"server",
                iterations=MIN_ITERATIONS,
            )
            made = ScramUpsertion(name=user, mechanism=SCRAM_SHA_256, credential=credential)
            return AlterUserScramCredentials(deletions=(), upsertions=(made,)), str(self._number)
        now_ms = self._cluster.clock.now_ms
        if makes:
            # Under its id again, as nobody does: so that whoever forgets its end is seen.
            token = DelegationTokenRecord(
                token_id=user,
                owner=f"User:{user}",
                requester=f"User:{user}",
                renewers=(),
                issue_timestamp=self._number,
                max_timestamp=FOREVER_MS,
                expiry_timestamp=FOREVER_MS,
            )
            return CreateDelegationToken(token=token, now_ms=now_ms), str(self._number)
        ended = ExtendDelegationToken(
            token_id=user, principal=f"User:{user}", period_ms=-1, now_ms=now_ms
        )
        return ended, NOTHING

    def _on_acknowledged(
        self, key: Key, value: str, asked: SimulatedController, sent_ms: int
    ) -> None:
        self.acknowledged += 1
        self._cluster.clock.note(self.acknowledged)
        self._unsure[key].remove(Unsure(value, asked))
        self._values[key] = value
        image = self._cluster.oracle.image
        self._check_committed(key, image)
        self._forget_older(asked)
        now_ms = self._cluster.clock.now_ms
        if value != ("deny" if key[0] == "deny" else NOTHING):
            return  # it lets somebody in
        if now_ms - sent_ms >= WAIT_MS:
            return  # nodes were not waited for any longer
        for node in self._cluster.nodes.values():
            incarnation, since_ms = self._in_service_since.get(node.node_id, ("", now_ms))
            if since_ms >= sent_ms or incarnation != node.incarnation or not node.process.is_up:
                continue
            gate = gate_of(key)
            if gate in self._gates(node) and gate in self._closed(image):
                raise Violation("A2", f"node {node.node_id} lets in {gate} after {key} {value!r}")

    def _check_committed(self, key: Key, image: MetadataImage) -> None:
        possible = {self._values[key], *(each.value for each in self._unsure[key])}
        found = value_of(key, image)
        if found not in possible:
            raise Violation("A1", f"{key} is {found!r}, and none of {sorted(possible)}")

    def _forget_older(self, answered: SimulatedController) -> None:
        """What was sent before, to this controller or a former one, is done or never will be."""
        image = self._cluster.oracle.image
        for key in KEYS:
            self._check_committed(key, image)
            later = [
                each
                for each in self._unsure[key]
                if each.asked is not answered and each.asked.me.epoch >= answered.me.epoch
            ]
            if len(later) < len(self._unsure[key]):
                self._values[key] = value_of(key, image)
            self._unsure[key] = later

    # --- what nodes make of it -------------------------------------------------------------------

    def on_metadata(self, image: MetadataImage) -> None:
        """A controller publishes it."""
        if image.offset <= self._newest.offset:
            return
        self._newest = image
        now_ms = self._cluster.clock.now_ms
        for node_id, node in image.nodes.items():
            if node.fenced:
                self._in_service_since.pop(node_id, None)
            elif self._in_service_since.get(node_id, ("", 0))[0] != node.incarnation:
                self._in_service_since[node_id] = node.incarnation, now_ms
        closed = self._closed(image)
        self._forbidden_since = {
            gate: self._forbidden_since.get(gate, now_ms) for gate in GATES if gate in closed
        }

    def _closed(self, image: MetadataImage) -> frozenset[Gate]:
        return frozenset(GATES) - self._let_in(-1, image)

    def _gates(self, node: SimulatedNode) -> frozenset[Gate]:
        return self._let_in(node.node_id, node.access)

    def _let_in(self, who: int, image: MetadataImage) -> frozenset[Gate]:
        known = self._open.get(who)
        if known is None or known[0] is not image:
            self._authorizer.use(image.acls)
            known = self._open[who] = image, frozenset(filter(self._is_open(image), GATES))
        return known[1]

    def _is_open(self, image: MetadataImage) -> Any:
        def is_open(gate: Gate) -> bool:
            if gate.kind == "scram":
                return MECHANISM in image.scram_credentials.get(gate.user, {})
            if gate.kind == "token":
                return gate.user in image.delegation_tokens
            principal = Principal("User", gate.user)
            return self._authorizer.authorize(
                principal, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, "t"
            ).is_allowed

        return is_open

    def _check(self) -> None:
        self._cluster.clock.after(CHECK_MS, self._check)
        controller = self._cluster.current
        if controller is not self._counted_by:  # it begins all sessions anew
            self._counted_by = controller
            self._let_in_ms = {}
        if controller is None or not self._may_fence(controller):
            return
        counted = {}
        swarm = self._cluster.swarm
        bound_ms = swarm.session_ms + NOTICE_MS + (LOST_ANSWERS_MS if swarm.loss else 0)
        for node in self._cluster.nodes.values():
            for gate in self._let_in_wrongly(node):
                key = node.node_id, gate
                counted[key] = self._let_in_ms.get(key, 0) + CHECK_MS
                self.longest_ms = max(self.longest_ms, counted[key])
                if counted[key] > bound_ms:
                    raise Violation(
                        "A3", f"node {node.node_id} lets in {gate} for {counted[key]} ms"
                    )
        self._let_in_ms = counted

    def _let_in_wrongly(self, node: SimulatedNode) -> frozenset[Gate]:
        """Whom the node in service lets in, and the newest image does not."""
        assert self._cluster.current is not None
        controller = self._cluster.current.process
        incarnation, _ = self._in_service_since.get(node.node_id, ("", 0))
        cuts = self._cluster.network.cuts
        is_only_heard = (controller.machine, node.process.machine) in cuts and (
            node.process.machine,
            controller.machine,
        ) not in cuts
        if (
            not node.process.is_up
            or node.process.is_paused
            or incarnation != node.incarnation
            or is_only_heard
        ):
            return frozenset()
        return self._gates(node) & self._forbidden_since.keys()

    def _may_fence(self, controller: SimulatedController) -> bool:
        """Whether it can take a silent node out of service: it waits for no majority just now."""
        return (
            controller.is_active
            and not controller.process.is_paused
            and controller.me.epoch == self._newest.epoch
            and not controller.is_writing
        )

    # --- at rest ---------------------------------------------------------------------------------

    @property
    def unsettled(self) -> str | None:
        newest = self._newest
        for node in self._cluster.nodes.values():
            image = node.access
            if (
                image.acls != newest.acls
                or image.scram_credentials != newest.scram_credentials
                or image.delegation_tokens != newest.delegation_tokens
            ):
                return f"A4: node {node.node_id} lets in {sorted(self._gates(node))}"
        return None

    def check_end(self) -> None:
        for key in KEYS:
            self._check_committed(key, self._cluster.oracle.image)


def _is_done(result: Any) -> bool:
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, tuple):
        outcomes = [each if isinstance(each, RequestOutcome) else each[0] for each in result]
        return not any(each.code for each in outcomes)
    return True


def gate_of(key: Key) -> Gate:
    kind, user = key
    return Gate("rules" if kind in ("allow", "deny") else kind, user)


def rule_of(kind: str, user: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        "t",
        PatternType.LITERAL,
        f"User:{user}",
        WILDCARD,
        AclOperation.READ,
        AclPermission.ALLOW if kind == "allow" else AclPermission.DENY,
    )


def value_of(key: Key, image: MetadataImage) -> str:
    kind, user = key
    if kind in ("allow", "deny"):
        return kind if rule_of(kind, user) in image.acls.values() else NOTHING
    if kind == "scram":
        credential = image.scram_credentials.get(user, {}).get(MECHANISM)
        return NOTHING if credential is None else credential.salt.decode()
    token = image.delegation_tokens.get(user)
    return NOTHING if token is None else str(token.issue_timestamp)
