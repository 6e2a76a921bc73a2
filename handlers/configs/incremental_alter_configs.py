"""IncrementalAlterConfigs (API key 44): set, delete, append to, subtract from settings (KIP-339).

Source: ConfigAdminManager.scala. The rules are in cluster/control/config_control.
"""

from __future__ import annotations

from ...cluster.control.config_control import ConfigChange, ResourceChanges
from ...protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ..authorization.config_access import INCREMENTAL_ALTER_CONFIGS_ACCESS
from ..ports.api import api
from ..ports.context import RequestContext
from .alter_configs import alter


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    wanted = [
        ResourceChanges(
            resource_type=resource.resource_type,
            name=resource.resource_name,
            changes=tuple(
                ConfigChange(config.name, config.config_operation, config.value)
                for config in resource.configs
            ),
        )
        for resource in request.resources
    ]
    outcomes = await alter(wanted, context, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
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


API = api(0, 1, IncrementalAlterConfigsRequest, handle, access=INCREMENTAL_ALTER_CONFIGS_ACCESS)
