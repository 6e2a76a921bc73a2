"""Members of one classic group: who is in, who has rejoined, and the protocol they would select.

Passive: it holds the state, classic_group decides. All of it is soft state.

Invariants:
    joined_count is the number of members with a parked JoinGroup;
    each instance id names exactly one member, and that member has this instance id;
    the leader is a member, or None when there are none;
    a member id is pending (given out, not used yet) or a member, never both;
    the memory counts what members and pending ids hold, exactly as it was added.

Source: apache/kafka group-coordinator/.../classic/{ClassicGroup,ClassicGroupMember}.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...protocol.error_code import ErrorCode
from ..group_counters import MemberMemory
from .supported_protocols import Protocols, SupportedProtocols


def size_of(protocols: Protocols) -> int:
    """Approximate bytes of the protocols."""
    fixed = len(protocols) * MemberMemory.PROTOCOL_BYTES
    return fixed + sum(len(name) + len(metadata) for name, metadata in protocols)


@dataclass(slots=True)
class ClassicGroupMember:
    """A member. `parked_join` and `parked_sync` are the ids of requests that wait for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    parked_join: int | None = None
    parked_sync: int | None = None

    @property
    def size(self) -> int:
        """Approximate bytes it holds."""
        held = size_of(self.protocols) + len(self.assignment)
        return MemberMemory.MEMBER_BYTES + held

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata(self, protocol: str | None) -> bytes:
        """Metadata that the member sent for this protocol; it has one for every protocol of the
        group.
        """
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class GroupMembers:
    """Members in the order of joining; the first one becomes the leader."""

    def __init__(self, memory: MemberMemory) -> None:
        self._members: dict[str, ClassicGroupMember] = {}
        self._static: dict[str, str] = {}
        self._memory = memory
        self.protocols = SupportedProtocols()
        self.pending: set[str] = set()
        """Member ids that were given out and not used yet. Read-only for others."""
        self.leader_id: str | None = None
        self.joined_count = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicGroupMember]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> ClassicGroupMember | None:
        return self._members.get(member_id)

    def static_member_id(self, instance_id: str) -> str | None:
        return self._static.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if this is a member under this instance id, otherwise the error.

        NONE, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another member took the instance id.
        """
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    # --- adding and removing ---------------------------------------------------------------------

    def give_out(self, member_id: str) -> None:
        """Note that a member id was given out."""
        self.pending.add(member_id)
        self._memory.add(MemberMemory.PENDING_BYTES)

    def _remove_pending(self, member_id: str) -> None:
        if member_id in self.pending:
            self.pending.remove(member_id)
            self._memory.add(-MemberMemory.PENDING_BYTES)

    def add(self, member: ClassicGroupMember) -> None:
        assert member.member_id not in self._members
        self._memory.add(member.size)
        self._members[member.member_id] = member
        self.protocols.add(member.protocols)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if member.parked_join is not None:
            self.joined_count += 1
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._remove_pending(member.member_id)

    def remove(self, member_id: str) -> ClassicGroupMember | None:
        """Remove and return the member, whose parked requests the caller must answer; None if
        there is no such member. A pending id is removed, too.
        """
        self._remove_pending(member_id)
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        self._memory.add(-member.size)
        self.protocols.remove(member.protocols)
        if member.instance_id is not None and self._static.get(member.instance_id) == member_id:
            del self._static[member.instance_id]
        if member.parked_join is not None:
            self.joined_count -= 1
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._members), None)
        return member

    def rename(self, member: ClassicGroupMember, new_member_id: str) -> None:
        """Give a static member a new member id; it stays leader if it was."""
        assert member.instance_id is not None
        # Rebuilt, so that the member keeps its place in the order of joining.
        self._members = {
            (new_member_id if other is member else other_id): other
            for other_id, other in self._members.items()
        }
        if self.leader_id == member.member_id:
            self.leader_id = new_member_id
        self._static[member.instance_id] = new_member_id
        member.member_id = new_member_id

    def clear(self) -> None:
        """Remove all members and their memory; no request may be parked."""
        held = sum(member.size for member in self._members.values())
        self._memory.add(-held - len(self.pending) * MemberMemory.PENDING_BYTES)
        self._members, self._static, self.pending = {}, {}, set()
        self.protocols.clear()
        self.leader_id, self.joined_count = None, 0

    def assign(self, member: ClassicGroupMember, assignment: bytes) -> None:
        self._memory.add(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def set_protocols(self, member: ClassicGroupMember, protocols: Protocols) -> None:
        self.protocols.remove(member.protocols)
        self._memory.add(-member.size)
        member.protocols = protocols
        self._memory.add(member.size)
        self.protocols.add(protocols)

    # --- rejoining -------------------------------------------------------------------------------

    @property
    def all_joined(self) -> bool:
        """Whether every member has rejoined and every member id given out has been used."""
        return self.joined_count == len(self._members) and not self.pending

    def park_join(self, member: ClassicGroupMember, request_id: int) -> int | None:
        """Park a JoinGroup. Returns the id of an older one of this member, which must be answered
        now.
        """
        older, member.parked_join = member.parked_join, request_id
        if older is None:
            self.joined_count += 1
        return older

    def take_join(self, member: ClassicGroupMember) -> int | None:
        request_id, member.parked_join = member.parked_join, None
        if request_id is not None:
            self.joined_count -= 1
        return request_id

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has rejoined. False: no member has."""
        leader = None if self.leader_id is None else self._members[self.leader_id]
        if leader is not None and leader.parked_join is not None:
            return True
        for member in self._members.values():
            if member.parked_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    @property
    def rebalance_timeout_ms(self) -> int:
        """Longest rebalance timeout that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)
