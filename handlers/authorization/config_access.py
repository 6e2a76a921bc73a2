"""Rights to see and change settings: those of topics and groups by resource, others by cluster.

A resource that is named twice, or whose type has no settings, is left to the handler, which
refuses it. Source: ConfigHelper.scala, ControllerApis.authorizeAlterResource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ...cluster.control.config_control import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP as GROUP_CONFIGS,
    TOPIC as TOPIC_CONFIGS,
)
from ...protocol.error_code import ErrorCode
from ...protocol.messages.alter_configs import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ...protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ...protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
    IncrementalAlterConfigsResponse,
)
from ...protocol.messages.list_config_resources import ListConfigResourcesResponse
from ...protocol.security.acl_binding import AclOperation, ResourceType
from ..ports.access import Access, Guard, Rights
from ..ports.context import RequestContext
from .guarding import CODES, MESSAGES, Handle, each, need, on_cluster, with_code

DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_OWNERS = {
    TOPIC_CONFIGS: TOPIC,
    GROUP_CONFIGS: GROUP,
    BROKER: CLUSTER,
    BROKER_LOGGER: CLUSTER,
    CLIENT_METRICS: CLUSTER,
}


def _refusal(operation: AclOperation, resource: Any, rights: Rights) -> ErrorCode | None:
    """Error code for a resource whose type has settings; None if the operation is allowed."""
    owner = _OWNERS[resource.resource_type]
    if owner == CLUSTER:
        may = rights.may_cluster(operation)
    else:
        may = rights.may(operation, owner, resource.resource_name)
    return None if may else CODES[owner]


def _describe_refused(
    resource: Any, _context: RequestContext, rights: Rights
) -> DescribeConfigsResult | None:
    code = _refusal(DESCRIBE_CONFIGS, resource, rights)
    if code is None:
        return None
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=code,
        error_message=MESSAGES[code],
    )


_describe_each = each("resources", "results", _describe_refused, DescribeConfigsResponse)


def _guard_description(
    request: DescribeConfigsRequest, context: RequestContext, rights: Rights, handle: Handle
) -> Any:
    if any(each.resource_type not in _OWNERS for each in request.resources):
        return handle(request, context)  # which refuses all of it
    return _describe_each(request, context, rights, handle)


DESCRIBE_CONFIGS_ACCESS = Access(
    (
        need(DESCRIBE_CONFIGS, TOPIC, "for its settings"),
        need(DESCRIBE_CONFIGS, GROUP, "for its settings"),
        need(DESCRIBE_CONFIGS, CLUSTER, "for others"),
    ),
    _guard_description,
)


def _alteration(response: type[Any], result: Callable[..., Any]) -> Access:
    def guard(request: Any, context: RequestContext, rights: Rights, handle: Handle) -> Any:
        counts = Counter(
            (resource.resource_type, resource.resource_name) for resource in request.resources
        )

        def refuse(resource: Any, _context: RequestContext, rights: Rights) -> Any | None:
            key = resource.resource_type, resource.resource_name
            if counts[key] > 1 or resource.resource_type not in _OWNERS:
                return None
            code = _refusal(ALTER_CONFIGS, resource, rights)
            if code is None:
                return None
            return result(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                error_code=code,
                error_message=MESSAGES[code],
            )

        one_by_one: Guard = each("resources", "responses", refuse, response)
        return one_by_one(request, context, rights, handle)

    needs = (
        need(ALTER_CONFIGS, TOPIC, "for its settings"),
        need(ALTER_CONFIGS, GROUP, "for its settings"),
        need(ALTER_CONFIGS, CLUSTER, "for others"),
    )
    return Access(needs, guard)


ALTER_CONFIGS_ACCESS = _alteration(AlterConfigsResponse, AlterConfigsResourceResponse)
INCREMENTAL_ALTER_CONFIGS_ACCESS = _alteration(
    IncrementalAlterConfigsResponse, IncrementalResourceResponse
)
LIST_CONFIG_RESOURCES = on_cluster(DESCRIBE_CONFIGS, with_code(ListConfigResourcesResponse))
