"""AlterConfigs (API key 33): replace all settings of a topic or broker; those not named are unset.

Deprecated in favour of IncrementalAlterConfigs, but librdkafka, kafkajs and aiokafka still send it.
Source: ConfigAdminManager.scala. Names and values are validated by the controller (config_control).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...cluster.control.config_control import (
    BROKER,
    BROKER_LOGGER,
    AlterConfigs,
    ConfigChange,
    Operation,
    ResourceChanges,
)
from ...cluster.control.controller_request import DONE, RequestOutcome
from ...protocol.errors import InvalidRequest, KafkaError
from ...protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ..authorization.config_access import ALTER_CONFIGS_ACCESS
from ..ports.api import api
from ..ports.context import RequestContext
from .broker_loggers import alter_levels
from .describe_configs import check_this_node

# The requests have no timeout; clients that read the change at once need the nodes to apply it.
WAIT_MS = 1_000


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    wanted = [
        ResourceChanges(
            resource_type=resource.resource_type,
            name=resource.resource_name,
            changes=tuple(
                ConfigChange(config.name, Operation.SET, config.value)
                for config in resource.configs
            ),
            replaces=True,
        )
        for resource in request.resources
    ]
    outcomes = await alter(wanted, context, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, outcome in zip(request.resources, outcomes, strict=True)
        ]
    )


async def alter(
    wanted: Sequence[ResourceChanges], context: RequestContext, *, validate_only: bool
) -> list[RequestOutcome]:
    """Alter settings; returns an outcome for each resource, from here or from the controller."""
    counts = Counter((resource.resource_type, resource.name) for resource in wanted)
    outcomes = [_refusal(resource, counts, context) for resource in wanted]
    for number, resource in enumerate(wanted):
        if resource.resource_type == BROKER_LOGGER and outcomes[number] is None:
            outcomes[number] = _alter_levels(resource, validate_only=validate_only)
    accepted = tuple(
        resource for resource, refusal in zip(wanted, outcomes, strict=True) if refusal is None
    )
    decided: list[RequestOutcome] = []
    if accepted:
        try:
            answer = await context.node.controller.change(
                AlterConfigs(resources=accepted, validate_only=validate_only), timeout_ms=WAIT_MS
            )
            decided = list(answer)
        except KafkaError as error:
            decided = [RequestOutcome.of(error)] * len(accepted)
    answers = iter(decided)
    return [next(answers) if refusal is None else refusal for refusal in outcomes]


def _alter_levels(resource: ResourceChanges, *, validate_only: bool) -> RequestOutcome:
    """Change levels of loggers of this process; the controller is not involved."""
    try:
        if resource.replaces:
            raise InvalidRequest(
                "levels of loggers can only be changed with IncrementalAlterConfigs"
            )
        alter_levels(resource.changes, validate_only=validate_only)
    except KafkaError as error:
        return RequestOutcome.of(error)
    return DONE


def _refusal(
    resource: ResourceChanges, counts: Mapping[tuple[int, str], int], context: RequestContext
) -> RequestOutcome | None:
    """Error of the request itself for a resource, or None."""
    names = [change.name for change in resource.changes]
    try:
        if counts[resource.resource_type, resource.name] > 1:
            raise InvalidRequest(f"resource {resource.name!r} is named twice in the request")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidRequest(f"setting {twice} is named twice in the request")
        for change in resource.changes:
            if change.value is None and change.operation != Operation.DELETE:
                raise InvalidRequest(f"{change.name} needs a value, not null")
        if resource.resource_type == BROKER_LOGGER or (
            resource.resource_type == BROKER and resource.name
        ):
            check_this_node(resource.name, context.node)
    except KafkaError as error:
        return RequestOutcome.of(error)
    return None


API = api(0, 2, AlterConfigsRequest, handle, access=ALTER_CONFIGS_ACCESS)
