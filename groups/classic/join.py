"""A JoinGroup request as the rules need it: nothing in it points into a receive buffer."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.messages.join_group import JoinGroupRequest
from ..group_counters import MemberMemory
from .group_members import ClassicGroupMember, size_of
from .supported_protocols import Protocols

FIRST_WITH_MEMBER_ID_REQUIRED = 4
"""KIP-394: from this version on a client can be asked to join again with its new member id."""
FIRST_WITH_SKIP_ASSIGNMENT = 9
"""KIP-814: from this version on a rejoining leader can be asked to keep the assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """`member_id` is "" for a new member; `new_member_id` is the one it would get."""

    request_id: int
    api_version: int
    member_id: str
    new_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str

    @classmethod
    def of(
        cls,
        request_id: int,
        request: JoinGroupRequest,
        *,
        api_version: int,
        client_id: str,
        client_host: str,
        unique: str,
    ) -> Join:
        """Make a Join from a request. `unique` becomes the end of the new member id: client id or
        instance id, "-", unique.

        Of a protocol that is named twice the first one is used. v0 has no rebalance timeout: the
        session timeout is used.
        """
        protocols: dict[str, bytes] = {}
        for protocol in request.protocols:
            protocols.setdefault(protocol.name, bytes(protocol.metadata))
        return cls(
            request_id=request_id,
            api_version=api_version,
            member_id=request.member_id,
            new_member_id=f"{request.group_instance_id or client_id}-{unique}",
            instance_id=request.group_instance_id,
            client_id=client_id,
            client_host=client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.session_timeout_ms
            if api_version == 0
            else request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple(protocols.items()),
            reason=request.reason or "not provided",
        )

    @property
    def size(self) -> int:
        """Approximate bytes that the member would hold."""
        return MemberMemory.MEMBER_BYTES + size_of(self.protocols)

    def new_member(self, member_id: str) -> ClassicGroupMember:
        return ClassicGroupMember(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            is_new=True,
            parked_join=self.request_id,
        )
