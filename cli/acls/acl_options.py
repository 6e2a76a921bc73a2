"""Options of `bradbury acls`, named as in kafka-acls.sh, and the ACLs and filters made of them.

Source: apache/kafka tools/.../AclCommand.java.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

import typer

from ...protocol.security.acl_binding import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ..terminal.failure import UsageError
from ..terminal.options import complete_topic

OPERATIONS = tuple(each.name for each in AclOperation if each >= AclOperation.ALL)
SUPPORTED = {
    ResourceType.TOPIC: "READ WRITE CREATE DESCRIBE DELETE ALTER DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.GROUP: "READ DESCRIBE DELETE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.CLUSTER: (
        "CREATE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE ALTER DESCRIBE"
    ),
    ResourceType.TRANSACTIONAL_ID: "DESCRIBE WRITE TWO_PHASE_COMMIT",
}
"""Operations that a resource of each type supports (AclEntry.supportedOperations)."""

Topics = Annotated[
    list[str],
    typer.Option(
        metavar="NAME", help="Topic name; * for all; repeatable.", autocompletion=complete_topic
    ),
]
Groups = Annotated[list[str], typer.Option(metavar="NAME", help="Group id; * for all; repeatable.")]
TransactionalIds = Annotated[
    list[str], typer.Option(metavar="NAME", help="Transactional id; * for all; repeatable.")
]
OnCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself as the resource.")]
AllowPrincipals = Annotated[
    list[str],
    typer.Option(metavar="User:NAME", help="Principal to allow; User:* for all; repeatable."),
]
DenyPrincipals = Annotated[
    list[str],
    typer.Option(metavar="User:NAME", help="Principal to deny, even if another rule allows it."),
]
AllowHosts = Annotated[
    list[str], typer.Option(metavar="IP", help="Client address to allow; by default all.")
]
DenyHosts = Annotated[
    list[str], typer.Option(metavar="IP", help="Client address to deny; by default all.")
]
Operations = Annotated[
    list[str],
    typer.Option(
        "--operation", metavar="NAME", help="Operation: Read, Write, Describe, ...; by default All."
    ),
]
Pattern = Annotated[
    Literal["literal", "prefixed"],
    typer.Option(
        "--resource-pattern-type",
        metavar="TYPE",
        help="literal: the name is a whole name; prefixed: it is a prefix of names.",
    ),
]
ForProducer = Annotated[
    bool,
    typer.Option(
        "--producer", help="Operations that a producer needs: WRITE, DESCRIBE, CREATE on topics."
    ),
]
ForConsumer = Annotated[
    bool,
    typer.Option(
        "--consumer",
        help="Operations that a consumer needs: READ, DESCRIBE on topics; READ on the group.",
    ),
]
Idempotent = Annotated[
    bool,
    typer.Option("--idempotent", help="With --producer: add IDEMPOTENT_WRITE, for old brokers."),
]


class AclResource(NamedTuple):
    """Resource that ACLs are about.

    operations: those of a convenience option (--producer, --consumer); empty: use --operation.
    """

    type: ResourceType
    name: str
    operations: tuple[AclOperation, ...] = ()


class AclResources(NamedTuple):
    topic: list[str]
    group: list[str]
    transactional_id: list[str]
    cluster: bool

    def named(self) -> list[AclResource]:
        found = [AclResource(ResourceType.TOPIC, name) for name in self.topic]
        found += [AclResource(ResourceType.GROUP, name) for name in self.group]
        found += [
            AclResource(ResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_id
        ]
        if self.cluster:
            found.append(AclResource(ResourceType.CLUSTER, CLUSTER_NAME))
        return found

    def meant(self, *, producer: bool, consumer: bool, idempotent: bool) -> list[AclResource]:
        """Return the resources that the options are about, with operations of convenience options.

        Raises:
            UsageError: no resource is named, or one that the options need is missing.
        """
        if idempotent and not producer:
            raise UsageError("--idempotent needs --producer; add it")
        if not (producer or consumer):
            found = self.named()
            if not found:
                raise UsageError(
                    "no resource: use --topic, --group, --cluster or --transactional-id"
                )
            return found
        if not self.topic:
            raise UsageError("--producer and --consumer need a --topic")
        if consumer and not self.group:
            raise UsageError("--consumer needs a --group")
        found = []
        if producer:
            found += self._for_producer(idempotent=idempotent)
        if consumer:
            read = (AclOperation.READ, AclOperation.DESCRIBE)
            found += [AclResource(ResourceType.TOPIC, name, read) for name in self.topic]
            found += [AclResource(ResourceType.GROUP, name, read[:1]) for name in self.group]
        return found

    def _for_producer(self, *, idempotent: bool) -> list[AclResource]:
        write = (AclOperation.WRITE, AclOperation.DESCRIBE)
        found = [
            AclResource(ResourceType.TOPIC, name, (*write, AclOperation.CREATE))
            for name in self.topic
        ]
        found += [
            AclResource(ResourceType.TRANSACTIONAL_ID, name, write)
            for name in self.transactional_id
        ]
        if idempotent:
            operations = (AclOperation.IDEMPOTENT_WRITE,)
            found.append(AclResource(ResourceType.CLUSTER, CLUSTER_NAME, operations))
        return found


class Who(NamedTuple):
    """Principals that ACLs allow or deny, and the client addresses (hosts) that they apply to."""

    allow_principal: list[str]
    allow_host: list[str]
    deny_principal: list[str]
    deny_host: list[str]

    def entries(self) -> list[tuple[str, str, AclPermission]]:
        """Return (principal, host, permission) of each ACL.

        Raises:
            UsageError: a host without a principal, or a principal without its type.
        """
        found = []
        for principals, hosts, permission in (
            (self.allow_principal, self.allow_host, AclPermission.ALLOW),
            (self.deny_principal, self.deny_host, AclPermission.DENY),
        ):
            word = permission.name.lower()
            if hosts and not principals:
                raise UsageError(f"--{word}-host needs a --{word}-principal")
            for principal in principals:
                if ":" not in principal:
                    raise UsageError(f"--{word}-principal {principal!r}: use User:{principal}")
                found += [(principal, host, permission) for host in hosts or [WILDCARD]]
        return found


def parse_operations(words: Iterable[str]) -> tuple[AclOperation, ...]:
    """Parse words such as "Read" and "describe-configs"; none means ALL. Raises UsageError."""
    found = []
    for word in words:
        name = word.upper().replace("-", "_")
        compact = {each.replace("_", ""): each for each in OPERATIONS}
        if name.replace("_", "") not in compact:
            raise UsageError(f"--operation {word!r}: use one of {', '.join(OPERATIONS)}")
        found.append(AclOperation[compact[name.replace("_", "")]])
    return tuple(found) or (AclOperation.ALL,)


def bindings(
    resources: Iterable[AclResource],
    who: Who,
    operations: Iterable[str],
    pattern: Literal["literal", "prefixed"],
) -> list[AclBinding]:
    """Return every ACL that a command line names. Raises UsageError."""
    given = parse_operations(operations)
    return [
        AclBinding(
            resource.type,
            resource.name,
            # The cluster has one name.
            PatternType.LITERAL
            if resource.type == ResourceType.CLUSTER
            else PatternType[pattern.upper()],
            principal,
            host,
            _checked(operation, resource.type),
            permission,
        )
        for resource in resources
        for principal, host, permission in who.entries()
        for operation in resource.operations or given
    ]


def _checked(operation: AclOperation, resource_type: ResourceType) -> AclOperation:
    supported = SUPPORTED[resource_type].split()
    if operation != AclOperation.ALL and operation.name not in supported:
        raise UsageError(
            f"--operation {operation.name} does not apply to a "
            f"{resource_type.name.lower().replace('_', ' ')}; use {', '.join(supported)}"
        )
    return operation


def filter_of(resource: AclResource, pattern: str) -> AclFilter:
    return AclFilter(resource.type, resource.name, PatternType[pattern.upper()])


def exact(binding: AclBinding) -> AclFilter:
    """Return a filter that matches exactly one ACL."""
    return AclFilter(*binding)
