"""Requests that create and delete ACLs (CreateAcls, DeleteAcls).

Creating an ACL that exists already succeeds and adds no second one. Each ACL or filter of a request
is checked separately; the changes for all valid ones are made together.
Source: apache/kafka metadata/.../controller/AclControlManager.java; names of resources:
core/.../server/AclApis.scala.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....protocol.errors import InvalidRequest, KafkaError, PolicyViolation
from ....protocol.security.acl_binding import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ...metadata.metadata_image import MetadataImage
from ...metadata.metadata_records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from ..controller_request import DONE, ConfigRules, RequestOutcome
from .access_request import AccessRequest

MAX_RECORDS: Final = 10_000
"""Most ACLs that one request may create or delete, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclToCreate:
    """An ACL to create. acl_id: chosen by the caller; unused if an equal ACL exists already."""

    acl_id: str
    binding: AclBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAcls(AccessRequest[tuple[RequestOutcome, ...]]):
    """Creates ACLs; answered with an outcome per ACL in order. Raises PolicyViolation: too many."""

    acls: tuple[AclToCreate, ...]

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], tuple[RequestOutcome, ...]]:
        del rules
        existing = set(image.acls.values())
        records: list[MetadataRecord] = []
        outcomes = []
        for acl in self.acls:
            try:
                check_new_acl(acl.binding)
            except KafkaError as error:
                outcomes.append(RequestOutcome.of(error))
                continue
            outcomes.append(DONE)
            if acl.binding not in existing:
                existing.add(acl.binding)
                records.append(AccessControlEntryRecord.of(acl.acl_id, acl.binding))
        if len(records) > MAX_RECORDS:
            raise PolicyViolation(f"a request creates at most {MAX_RECORDS} ACLs")
        return records, tuple(outcomes)


DeletedAcls = tuple[RequestOutcome, tuple[AclBinding, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAcls(AccessRequest[tuple[DeletedAcls, ...]]):
    """Deletes ACLs; answered, for each filter in order, with the ACLs it deletes; an ACL may match
    several filters.
    """

    filters: tuple[AclFilter, ...]

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], tuple[DeletedAcls, ...]]:
        del rules
        removed: dict[str, None] = {}
        answers: list[DeletedAcls] = []
        for each in self.filters:
            try:
                check_filter(each)
                found = {
                    acl_id: binding
                    for acl_id, binding in image.acls.items()
                    if each.matches(binding)
                }
                if len(removed | dict.fromkeys(found)) > MAX_RECORDS:
                    raise PolicyViolation(
                        f"Cannot remove more than {MAX_RECORDS} acls in a single delete operation."
                    )
            except KafkaError as error:
                answers.append((RequestOutcome.of(error), ()))
                continue
            removed |= dict.fromkeys(found)
            answers.append((DONE, tuple(found.values())))
        records: list[MetadataRecord] = [
            RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed
        ]
        return records, tuple(answers)


def check_new_acl(binding: AclBinding) -> None:
    """Check an ACL to create. Raises InvalidRequest: it is invalid."""
    if binding.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise InvalidRequest(f"Invalid resourceType {binding.resource_type.name}")
    if binding.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(f"Invalid patternType {binding.pattern.name}")
    if binding.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise InvalidRequest(f"Invalid operation {binding.operation.name}")
    if binding.permission not in (AclPermission.DENY, AclPermission.ALLOW):
        raise InvalidRequest(f"Invalid permissionType {binding.permission.name}")
    if binding.resource_type == ResourceType.CLUSTER and binding.name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not binding.name:
        raise InvalidRequest("Resource name should not be empty")
    if ":" not in binding.principal:
        raise InvalidRequest(
            f"Could not parse principal from `{binding.principal}` (no colon is present "
            "separating the principal type from the principal name)"
        )


def check_filter(each: AclFilter) -> None:
    """Check a filter. Raises InvalidRequest: it names an unknown type, pattern, operation or
    permission.
    """
    if each.resource_type == ResourceType.UNKNOWN or each.pattern == PatternType.UNKNOWN:
        raise InvalidRequest("Unknown patternFilter.")
    if each.operation == AclOperation.UNKNOWN or each.permission == AclPermission.UNKNOWN:
        raise InvalidRequest("Unknown entryFilter.")
