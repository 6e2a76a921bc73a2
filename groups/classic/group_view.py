"""Views of a classic group: for its members, for operators, and for the next coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...protocol.error_code import ErrorCode
from ...protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ...protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ...protocol.messages.list_groups import ListedGroup
from ...protocol.messages.sync_group import SyncGroupResponse
from ..group_records import GroupMetadataKey, GroupMetadataValue, GroupRecord, MemberMetadata
from .consumer_subscription import CONSUMER, subscribed_topics
from .group_members import ClassicGroupMember
from .group_state import GroupState

if TYPE_CHECKING:
    from .group_metadata import GroupMetadata

GROUP_TYPE = "classic"


def refused_join(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, protocol_name=None, member_id=member_id)


def joined_response(group: GroupMetadata, member: ClassicGroupMember) -> JoinGroupResponse:
    """JoinGroup response for a member of the current generation. The leader gets all members with
    their metadata.
    """
    everyone = group.members if group.members.leader_id == member.member_id else ()
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.members.leader_id or "",
        member_id=member.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=other.member_id,
                group_instance_id=other.instance_id,
                metadata=other.metadata(group.protocol),
            )
            for other in everyone
        ],
    )


def assigned_response(group: GroupMetadata, member: ClassicGroupMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )


def group_record(group: GroupMetadata, assignments: Mapping[str, bytes]) -> GroupRecord:
    """Record of the group with these assignments, for the next coordinator."""
    return GroupRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol,
            leader=group.members.leader_id,
            current_state_timestamp=group.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol),
                    assignment=assignments[member.member_id],
                )
                for member in group.members
            ],
        ),
    )


def described(group: GroupMetadata) -> DescribedGroup:
    """DescribeGroups answer. Metadata and assignments only while Stable: before, they belong to no
    generation.
    """
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment if stable else b"",
            )
            for member in group.members
        ],
    )


def is_subscribed(group: GroupMetadata) -> Callable[[str], bool]:
    """Predicate whether a member may own partitions of a topic: true for every topic if the members
    are consumers and the subscription of one cannot be read.
    """
    if group.protocol_type != CONSUMER:
        return lambda _: False
    topics: set[str] = set()
    for member in group.members:
        found = subscribed_topics(member.metadata(group.protocol))
        if found is None:
            return lambda _: True
        topics |= found
    return topics.__contains__


def listed(group: GroupMetadata) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=GROUP_TYPE,
    )
