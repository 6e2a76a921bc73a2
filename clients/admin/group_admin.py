"""Groups, described and changed from outside at their coordinators, as steps for Admin.

Invariants:
    A request goes to a group's coordinator, and is retried at the current one while the
    coordinator moves or loads.
    Changes that must not be done twice (deleting a group, removing members) are not retried once
    they may have been done.

Source: AdminApiDriver and the handlers next to it in apache/kafka clients/.../admin/internals.

Not here: members (group_member), the lag of a group (group_lag).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    ConnectionFailed,
    GroupIdNotFound,
    KafkaError,
    MalformedRequest,
    NonEmptyGroup,
    RequestTimedOut,
    error_for,
)
from ...protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ...protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ...protocol.messages.find_coordinator import (
    Coordinator as FoundCoordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ...protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ...protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ...protocol.topic_name import OFFSETS_TOPIC
from ...protocol.topic_partition import TopicPartition
from ..group.consumer_protocol import decode_assignment, decode_subscription
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import CONTROL, ClusterClient
from ..wire.connection import Address
from ..wire.coordinator_lookup import GROUP_KEY
from .every_coordinator import ask_every_coordinator

CONSUMER: Final = "consumer"
DEAD: Final = "Dead"
GROUPS_PER_REQUEST: Final = 500


@dataclass(frozen=True, slots=True)
class GroupListing:
    """Group in a list. state, type: "" if the broker is too old to report it."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """Member of a group.

    topics, assignment: empty while the group rebalances, and for groups of other protocols.
    instance_id: of a static member (KIP-345). host: address that the coordinator sees.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Description of a group. protocol: the assignor that the members chose, or ""."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: Address
    members: tuple[GroupMember, ...]


Ask = Callable[[Address, list[str]], Steps[Mapping[str, Exception]]]
"""Function ask(coordinator, groups) that stores answers, and returns errors of groups to retry.

Exceptions that it raises are final, except those for a lost connection or a timeout.
"""


def at_coordinators(
    client: ClusterClient,
    group_ids: Iterable[str],
    ask: Ask,
    *,
    timeout_ms: int,
    repeatable: bool = True,
    key_type: int = GROUP_KEY,
) -> Steps[None]:
    """`ask` the coordinator of each group, or transactional id, until all have an answer.

    Raises:
        RequestTimedOut: a group had no answer after `timeout_ms`.
        ConnectionFailed: the answer to a request that must not be repeated was lost.
        KafkaError: `ask` or the lookup is refused.
    """
    left = list(dict.fromkeys(group_ids))
    waited_ms = 0
    reason: BaseException | None = None
    while left:
        again: list[str] = []
        for start in range(0, len(left), GROUPS_PER_REQUEST):
            found, unknown = yield from _find(
                client, left[start : start + GROUPS_PER_REQUEST], key_type
            )
            again += unknown
            reason = next(iter(unknown.values()), reason)
            for address, part in found.items():
                connection = client.connection(address, CONTROL)
                try:
                    failed = yield from ask(address, part)
                except (RequestTimedOut, ConnectionFailed) as error:
                    if not repeatable and connection.is_ready:
                        text = f"{error}; the change may have been made; check before you retry"
                        raise ConnectionFailed(text) from None
                    failed = dict.fromkeys(part, error)
                again += failed
                reason = next(iter(failed.values()), reason)
        left = again
        if left:
            if waited_ms >= timeout_ms:
                what = "group" if key_type == GROUP_KEY else "transactional id"
                raise RequestTimedOut(
                    f"no answer about {what} {left[0]!r} within {timeout_ms} ms: {reason}"
                )
            waited_ms += client.config.retry_backoff_ms
            yield client.config.retry_backoff_ms / 1000


def _find(
    client: ClusterClient, group_ids: list[str], key_type: int
) -> Steps[tuple[dict[Address, list[str]], dict[str, KafkaError]]]:
    """Find (groups by coordinator, errors of groups without one). Before 3.0: one group per
    request.
    """
    request = FindCoordinatorRequest(
        key=group_ids[0], key_type=key_type, coordinator_keys=group_ids
    )
    response = yield from client.send_to_any(request, FindCoordinatorResponse)
    answers = response.coordinators or [
        FoundCoordinator(
            key=group_ids[0],
            host=response.host,
            port=response.port,
            error_code=response.error_code,
            error_message=response.error_message,
        )
    ]
    found: dict[Address, list[str]] = defaultdict(list)
    missing = dict.fromkeys(group_ids, error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    for answer in answers:
        if not answer.error_code:
            missing.pop(answer.key, None)
            found[Address(answer.host, answer.port)].append(answer.key)
            continue
        error = error_for(answer.error_code, answer.error_message)
        if not error.retriable:
            if key_type != GROUP_KEY:
                raise error_for(answer.error_code, f"transactional id {answer.key!r}: {error}")
            raise _refused(answer.error_code, answer.key)
        missing[answer.key] = error
    return found, missing


# --- list and describe ---------------------------------------------------------------------------


def list_groups(
    client: ClusterClient,
    *,
    states: Iterable[str] = (),
    types: Iterable[str] = (),
    timeout_ms: int,
) -> Steps[list[GroupListing]]:
    """Groups of every coordinator, sorted; of these states and types (any case), or all.

    It waits for coordinators that are loading.

    Raises:
        RequestTimedOut: a coordinator was not ready in time.
        KafkaError: a broker refuses.
    """
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    answers = yield from ask_every_coordinator(
        client,
        request,
        ListGroupsResponse,
        topic=OFFSETS_TOPIC,
        what="list of all groups",
        timeout_ms=timeout_ms,
    )
    found: dict[str, GroupListing] = {}
    for answer in answers.values():
        for group in answer.groups:
            found[group.group_id] = GroupListing(
                group.group_id, group.protocol_type, group.group_state, group.group_type
            )
    wanted_states = {state.lower() for state in request.states_filter}
    wanted_types = {kind.lower() for kind in request.types_filter}
    return [
        group
        for _, group in sorted(found.items())
        if (not wanted_states or group.state.lower() in wanted_states)
        and (not wanted_types or group.type.lower() in wanted_types)
    ]


def describe_groups(
    client: ClusterClient, group_ids: Iterable[str], *, timeout_ms: int
) -> Steps[list[GroupDescription]]:
    """Descriptions of groups, in the order of `group_ids`.

    Raises:
        GroupIdNotFound: there is no such group.
        KafkaError: its coordinator refuses.
    """
    group_ids = list(group_ids)
    found: dict[str, GroupDescription] = {}

    def ask(address: Address, part: list[str]) -> Steps[Mapping[str, Exception]]:
        response = yield from wait(
            client.send(address, DescribeGroupsRequest(groups=part), DescribeGroupsResponse)
        )
        again = {}
        for group in response.groups:
            if group.error_code:
                again[group.group_id] = _retriable(group.error_code, group.group_id)
            elif group.group_state == DEAD:  # before version 6 unknown groups are reported as Dead
                raise _not_found(group.group_id)
            else:
                found[group.group_id] = _described(group, address)
        return again

    yield from at_coordinators(client, group_ids, ask, timeout_ms=timeout_ms)
    return [found[group_id] for group_id in group_ids]


def _described(group: DescribedGroup, coordinator: Address) -> GroupDescription:
    is_consumer = group.protocol_type == CONSUMER
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        tuple(
            _member(member, is_consumer=is_consumer)
            for member in sorted(group.members, key=lambda member: member.member_id)
        ),
    )


def _member(member: DescribedGroupMember, *, is_consumer: bool) -> GroupMember:
    """Decode a member; bytes that are not a subscription or assignment are shown as empty."""
    topics: tuple[str, ...] = ()
    assignment: list[TopicPartition] = []
    if is_consumer:
        try:
            assignment = decode_assignment(member.member_assignment)
            if len(member.member_metadata):
                topics = decode_subscription(member.member_metadata, member.member_id).topics
        except MalformedRequest:
            pass
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        tuple(topics),
        tuple(sorted(assignment)),
    )


# --- delete and remove ---------------------------------------------------------------------------


def delete_groups(
    client: ClusterClient, group_ids: Iterable[str], *, timeout_ms: int
) -> Steps[None]:
    """Delete groups with their offsets. All are tried; then the first refusal is raised.

    Raises:
        GroupIdNotFound: there is no such group.
        NonEmptyGroup: it has members.
        ConnectionFailed: the answer was lost.
    """
    refusals: list[KafkaError] = []

    def ask(address: Address, part: list[str]) -> Steps[Mapping[str, Exception]]:
        response = yield from wait(
            client.send(address, DeleteGroupsRequest(groups_names=part), DeleteGroupsResponse)
        )
        again = {}
        for result in response.results:
            if result.error_code:
                try:
                    again[result.group_id] = _retriable(result.error_code, result.group_id)
                except KafkaError as error:
                    refusals.append(error)
        return again

    yield from at_coordinators(client, group_ids, ask, timeout_ms=timeout_ms, repeatable=False)
    if refusals:
        raise refusals[0]


def remove_members(
    client: ClusterClient,
    group_id: str,
    *,
    instance_ids: Iterable[str] = (),
    member_ids: Iterable[str] = (),
    reason: str | None = None,
    timeout_ms: int,
) -> Steps[list[str]]:
    """Remove members: those that are named, or all. Returns their instance or member ids.

    A member that still runs rejoins; partitions of a static member that is down are reassigned at
    once.

    Raises:
        GroupIdNotFound: there is no such group.
        UnknownMemberId: there is no such member. Others that were named are removed.
        ConnectionFailed: the answer was lost.
    """
    leaving = [MemberIdentity(group_instance_id=one, reason=reason) for one in instance_ids]
    leaving += [MemberIdentity(member_id=one, reason=reason) for one in member_ids]
    if not leaving:
        (described,) = yield from describe_groups(client, [group_id], timeout_ms=timeout_ms)
        leaving = [
            MemberIdentity(group_instance_id=one.instance_id, reason=reason)
            if one.instance_id
            else MemberIdentity(member_id=one.member_id, reason=reason)
            for one in described.members
        ]
    removed: list[str] = []
    refusals: list[KafkaError] = []

    def ask(address: Address, _: list[str]) -> Steps[Mapping[str, Exception]]:
        request = LeaveGroupRequest(
            group_id=group_id,
            members=leaving,
            member_id=leaving[0].member_id if len(leaving) == 1 else "",
        )
        response = yield from wait(client.send(address, request, LeaveGroupResponse))
        if response.error_code:
            return {group_id: _retriable(response.error_code, group_id)}
        for answer in response.members:
            name = answer.group_instance_id or answer.member_id
            if answer.error_code:
                error = error_for(answer.error_code)
                refusals.append(
                    error_for(answer.error_code, f"group {group_id!r}, member {name!r}: {error}")
                )
            else:
                removed.append(name)
        return {}

    if leaving:
        yield from at_coordinators(client, [group_id], ask, timeout_ms=timeout_ms, repeatable=False)
    if refusals:
        raise refusals[0]
    return removed


# --- errors --------------------------------------------------------------------------------------


def _retriable(code: int, group_id: str) -> KafkaError:
    """Return a retriable error; raise any other."""
    error = _refused(code, group_id)
    if not error.retriable:
        raise error
    return error


def _refused(code: int, group_id: str) -> KafkaError:
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return _not_found(group_id)
    if code == ErrorCode.NON_EMPTY_GROUP:
        return has_members(group_id)
    return error_for(code, f"group {group_id!r}: {error_for(code)}")


def _not_found(group_id: str) -> GroupIdNotFound:
    return GroupIdNotFound(
        f"group {group_id!r} does not exist; `bradbury groups list` shows those that do"
    )


def has_members(group_id: str) -> NonEmptyGroup:
    return NonEmptyGroup(
        f"group {group_id!r} has members; stop them, or wait until their sessions end, then retry "
        f"(`bradbury groups members {group_id}` shows them)"
    )
