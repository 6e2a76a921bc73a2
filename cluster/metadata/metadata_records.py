"""The records of the metadata log: past facts about the cluster, and their encoding.

A record is the value of one log record: compact JSON with its type's name, so that a dump of the
metadata log is readable. The log itself is an ordinary partition log
(`__cluster_metadata-0`, record batches of magic 2) whose leader epoch is the controller epoch.

Invariants: applying a record decides nothing and cannot fail on a record we wrote; unknown
fields are ignored, so a newer writer may add one; an unknown type is an error, because skipping a
fact would let two nodes disagree.

Names and meanings follow apache/kafka metadata/src/main/resources/common/metadata/*.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...protocol.errors import CorruptMessage
from ...protocol.security.acl_binding import (
    AclBinding,
)
from .user_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """The first record of a cluster: its id and the directories that vote on its metadata."""

    cluster_id: str
    voters: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersRecord:
    """Voter directories of the metadata from this record on, committed or not.

    They differ from the former voters by one directory (Raft, 4.1; KIP-853's VotersRecord).
    """

    voters: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """A controller became active in this epoch. Once this record is committed, so is everything
    before it (Raft 5.4.2).
    """

    epoch: int
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterNodeRecord:
    """A process with its own socket and log directory. `epoch` is this record's offset.

    machine: failure unit of the node; a machine never has two replicas of a partition.
    metadata_directory_id: id of a broker's metadata directory, which may be a voter.
    listeners: all, as `NAME://host:port`; host and port are those of the first.
    """

    node_id: int
    directory_id: str
    incarnation: str
    roles: tuple[str, ...]
    host: str
    port: int
    rack: str | None
    epoch: int
    machine: str = ""
    name: str = ""
    metadata_directory_id: str = ""
    listeners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNodeRecord:
    """Removes a node that will not come back; its id is never reused."""

    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRecord:
    """Drains a machine: it gets no new replicas (is_draining=False: it may again)."""

    machine: str
    is_draining: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceNodeRecord:
    """Fences a node whose session expired (fenced=False: unfences it)."""

    node_id: int
    epoch: int
    fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    topic_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord:
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """Complete state of one partition; each later record replaces the former."""

    topic_id: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known_leader: int = -1
    recovering: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """One setting of a topic, a broker (by its id, "" for all), a group or a client metrics
    subscription; value None removes it.
    """

    resource: str
    name: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """Upper end of allocated producer ids: those below `next_producer_id` are never given out
    again.
    """

    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord:
    """An ACL; another ACL never has its id."""

    id: str
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @classmethod
    def of(cls, acl_id: str, binding: AclBinding) -> AccessControlEntryRecord:
        return cls(
            id=acl_id,
            resource_type=int(binding.resource_type),
            resource_name=binding.name,
            pattern_type=int(binding.pattern),
            principal=binding.principal,
            host=binding.host,
            operation=int(binding.operation),
            permission_type=int(binding.permission),
        )

    @property
    def binding(self) -> AclBinding:
        return AclBinding.of_numbers(
            self.resource_type,
            self.resource_name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission_type,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord:
    """Removes the ACL of this id."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord:
    """One quota of a user, a client id, both, or an address; value None removes it.

    entity: type, name, type, name; the name None stands for the default.
    """

    entity: tuple[str | None, ...]
    key: str
    value: float | None


MetadataRecord = (
    ClusterRecord
    | VotersRecord
    | EpochRecord
    | RegisterNodeRecord
    | RemoveNodeRecord
    | DrainRecord
    | FenceNodeRecord
    | TopicRecord
    | RemoveTopicRecord
    | PartitionRecord
    | ConfigRecord
    | ProducerIdsRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | ClientQuotaRecord
)

_TYPES: dict[str, Any] = {
    cls.__name__: (cls, frozenset(field.name for field in fields(cls)))
    for cls in MetadataRecord.__args__
}


_NAMES: dict[type, tuple[str, ...]] = {
    cls: tuple(field.name for field in fields(cls)) for cls in MetadataRecord.__args__
}


def voters_in(records: Sequence[MetadataRecord]) -> tuple[str, ...] | None:
    """Voters after the change of voters in these records; None if they change none."""
    return next((each.voters for each in records if isinstance(each, VotersRecord)), None)


def encode_metadata_record(record: MetadataRecord) -> bytes:
    body: dict[str, Any] = {"type": type(record).__name__}
    for name in _NAMES[type(record)]:  # values are flat; asdict would copy each of them
        body[name] = getattr(record, name)
    return json.dumps(body, separators=(",", ":")).encode()


def decode_metadata_record(value: bytes) -> MetadataRecord:
    """Decode the value of one log record.

    Raises:
        CorruptMessage: not JSON, or a type this version does not know.
    """
    try:
        body = json.loads(value)
        cls, known = _TYPES[body.pop("type")]
        arguments = {
            key: tuple(item) if isinstance(item, list) else item
            for key, item in body.items()
            if key in known
        }
        record: MetadataRecord = cls(**arguments)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # Only the beginning of the value, as it may have secret keys.
        raise CorruptMessage(f"metadata record {value[:32]!r}: {error}") from None
    return record
