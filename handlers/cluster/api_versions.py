"""ApiVersions (API key 18): the APIs and versions of this broker, derived from the handler table.

The response header is always v0, and an unknown request version is answered in the v0 layout with
error UNSUPPORTED_VERSION and our range of this API, so that a newer client can try again (KIP-511).
Features are in every response, as tagged fields, with the metadata offset as epoch (KIP-584).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ...cluster.metadata.features import FEATURES, LOWEST_SUPPORTED
from ...protocol.codec import write_message
from ...protocol.error_code import ErrorCode
from ...protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ..ports.access import EVERYBODY
from ..ports.api import Api, api
from ..ports.context import RequestContext

Ranges = Sequence[tuple[int, int, int]]
"""Key, lowest and highest version of each API."""

FIRST_WITH_LEVEL_0 = 4
"""First version whose clients accept features with lowest level 0 (KAFKA-17011)."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def respond(
    request: ApiVersionsRequest, context: RequestContext, ranges: Ranges
) -> ApiVersionsResponse:
    """Make the response. `ranges`: version ranges of the whole table of APIs."""
    if context.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges
        ],
        supported_features=[
            SupportedFeatureKey(
                name=name, min_version=LOWEST_SUPPORTED.get(name, level), max_version=level
            )
            for name, level in FEATURES.items()
            if context.api_version >= FIRST_WITH_LEVEL_0 or LOWEST_SUPPORTED.get(name, level)
        ],
        finalized_features_epoch=max(context.node.image.offset - 1, 0),
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ],
    )


def respond_to_unknown_version(lowest: int, highest: int) -> bytearray:
    """Response body in the v0 layout, with our version range of ApiVersions for newer clients."""
    return write_message(
        ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=18, min_version=lowest, max_version=highest)],
        ),
        0,
    )


def api_of(ranges: Callable[[], Ranges]) -> Api:
    """Make the Api. `ranges`: returns the version ranges of the whole table, this Api included."""

    def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        return respond(request, context, ranges())

    return api(0, 4, ApiVersionsRequest, handle, access=EVERYBODY)
