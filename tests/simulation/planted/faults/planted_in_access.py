"""Planted faults of ACLs, users' credentials and tokens; see planted_faults."""

from __future__ import annotations

from typing import Any

from bradbury.cluster.control.access.access_request import AccessRequest
from bradbury.cluster.control.controller_state import Sessions
from bradbury.cluster.metadata import metadata_image
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    AccessControlEntryRecord,
    MetadataRecord,
)
from bradbury.cluster.metadata.user_records import UserScramCredentialRecord, apply_scram
from bradbury.controller.controller_calls import MetadataUpdate
from bradbury.controller.metadata_publisher import MetadataPublisher
from bradbury.controller.node.node_lifecycle import NodeLifecycle
from bradbury.steps.replies import Reply

from ..fault_registry import Patch, fault

ACCESS = {
    "access": True,
    "kinds": ("kill", "controller", "cut", "pause controller"),
    "fault_every_ms": 150,
    "session_ms": 300,
}
CUT = {
    **ACCESS,
    "kinds": ("cut", "group"),
    "nodes": 5,
    "voters": 5,
    "fault_every_ms": 1_500,
    "outage_ms": 1_500,
    "duration_ms": 8_000,
    "loss": 0.0,
}
MANY = {
    **ACCESS,
    "kinds": ("cut", "group", "controller", "pause controller", "rival"),
    "outage_ms": 1_200,
    "loss": 0.1,
    "session_ms": 600,
    "duration_ms": 8_000,
}
"""Controllers end while nodes do not hear them."""


@fault(**ACCESS)
def a_change_of_access_is_answered_before_nodes_go_by_it(patch: Patch) -> None:
    """Who was told that somebody is out sees him get in."""

    def wait_applied(
        publisher: MetadataPublisher, ticket: Any, answer: Any, *given: Any, **rest: Any
    ) -> None:
        publisher._effects.append(Reply(ticket, answer))

    patch(MetadataPublisher, "wait_applied", wait_applied)


@fault(**MANY)
def what_was_there_already_is_answered_at_once(patch: Patch) -> None:
    """An earlier try has just changed it, and nodes do not go by it yet."""
    patch(AccessRequest, "is_for_all", False)


@fault(**MANY)
def a_controller_that_ends_answers_for_nodes_that_it_has_not_heard(patch: Patch) -> None:
    """As it does where nobody counts on them."""
    original = MetadataPublisher.wait_applied

    def wait_applied(publisher: MetadataPublisher, *given: Any, **rest: Any) -> None:
        original(publisher, *given)

    patch(MetadataPublisher, "wait_applied", wait_applied)


@fault(**CUT)
def a_silent_node_stays_in_service(patch: Patch) -> None:
    """It lets people in by old rules for as long as it is cut off, and clients are sent there."""
    patch(Sessions, "expired", lambda sessions, image, *, now_ms: [])


@fault(**{**ACCESS, "snapshots": 0.5})
def rules_are_not_in_snapshots(patch: Patch) -> None:
    """They are gone with the log that a snapshot takes the place of."""
    original = MetadataImage.to_records

    def to_records(image: MetadataImage) -> list[MetadataRecord]:
        records = original(image)
        return [each for each in records if not isinstance(each, AccessControlEntryRecord)]

    patch(MetadataImage, "to_records", to_records)


@fault(**ACCESS)
def a_user_who_was_removed_stays(patch: Patch) -> None:
    """In every image: the record of the removal does nothing."""

    def apply(users: Any, record: Any) -> None:
        if isinstance(record, UserScramCredentialRecord):
            apply_scram(users, record)

    patch(metadata_image, "apply_scram", apply)


@fault(**MANY)
def a_new_image_is_laid_over_the_old_one(patch: Patch) -> None:
    """What is not in the new one stays: a rule that was removed before the controller was new."""
    original = NodeLifecycle._on_update

    def on_update(lifecycle: NodeLifecycle, answer: Any, now: Any) -> None:
        if isinstance(answer, MetadataUpdate):
            answer = answer._replace(whole=False)
        original(lifecycle, answer, now)

    patch(NodeLifecycle, "_on_update", on_update)
