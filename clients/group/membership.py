"""A consumer's membership of its group: settings, member id, generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError, error_for
from ...protocol.topic_partition import TopicPartition
from .assignor import Assignor
from .consumer_protocol import NO_GENERATION

PROTOCOL_TYPE: Final = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of a member. assignors: in order of preference. client_rack: sent to the leader."""

    group_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    assignors: tuple[Assignor, ...]
    client_rack: str | None

    @property
    def cooperative(self) -> bool:
        """Whether partitions are kept during a rebalance: only if every strategy allows it, as any
        of them may be chosen. So a group migrates in two rolling restarts (KIP-429).
        """
        return all(assignor.cooperative for assignor in self.assignors)

    @property
    def join_timeout_ms(self) -> int:
        """Timeout of JoinGroup, whose answer waits for all members or the rebalance timeout."""
        return self.max_poll_interval_ms + 5_000


@dataclass(frozen=True, slots=True)
class Membership:
    """The member as the coordinator knows it. generation -1: it is not in the group now."""

    member_id: str = ""
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The identity of a consumer in its group, for commits on its behalf (KIP-447)."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


@dataclass(frozen=True, slots=True)
class Joined:
    """Result of a rebalance. partitions: all that are assigned to this member."""

    partitions: tuple[TopicPartition, ...]
    generation: int


def refusal(code: int, config: GroupConfig, what: str = "") -> KafkaError:
    """The error of `what`, which a coordinator has refused, with a text for users."""
    reason = reason_of(code, config.group_instance_id)
    where = f"group {config.group_id!r}, {what}" if what else f"group {config.group_id!r}"
    return error_for(code, f"{where}: {reason}")


def reason_of(code: int, group_instance_id: str | None) -> str:
    """Why a coordinator refuses a member with this group_instance_id, in words for users."""
    if code == ErrorCode.FENCED_INSTANCE_ID:
        return (
            f"another consumer has group_instance_id={group_instance_id!r} now; close this "
            "one, and give each consumer its own"
        )
    return str(error_for(code))
