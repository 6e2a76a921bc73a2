"""LeaveGroup of a member, without retries, as its session would time out anyway."""

from __future__ import annotations

import logging

from ...protocol.errors import ConnectionFailed
from ...protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import ClusterClient
from ..wire.connection import Address
from .membership import GroupConfig

logger = logging.getLogger(__name__)


def leave_group(
    client: ClusterClient, address: Address | None, config: GroupConfig, member_id: str, reason: str
) -> Steps[None]:
    """Send LeaveGroup to the coordinator at `address`, if known. Failures are only logged.

    A static member may leave without its member id, by its group_instance_id alone.
    """
    if address is None or not (member_id or config.group_instance_id):
        return
    request = LeaveGroupRequest(
        group_id=config.group_id,
        member_id=member_id,
        members=[
            MemberIdentity(
                member_id=member_id,
                group_instance_id=config.group_instance_id,
                reason=reason,
            )
        ],
    )
    try:
        # Not in the group's lane, where a join of this member may be parked.
        yield from wait(client.send(address, request, LeaveGroupResponse))
    except ConnectionFailed as error:
        logger.info("group %r: LeaveGroup failed: %s", config.group_id, error)
