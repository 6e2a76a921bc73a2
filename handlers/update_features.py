"""UpdateFeatures (API key 57): there is no feature whose level could be changed (KIP-584).

ApiVersions names none, and each that is asked for is refused by its name. As in Apache Kafka the
first error is that of the whole request; up to version 1 each feature has its own, too.
"""

from __future__ import annotations

from ..protocol.error_code import ErrorCode
from ..protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from .context import RequestContext


def handle(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    results = [
        UpdatableFeatureResult(
            feature=each.feature,
            error_code=ErrorCode.INVALID_UPDATE_VERSION,
            error_message=f"there is no feature {each.feature!r} whose level can be changed",
        )
        for each in request.feature_updates
    ]
    if not results:
        return UpdateFeaturesResponse(error_message=None)
    if context.api_version < 2:
        return UpdateFeaturesResponse(error_message=None, results=results)
    return UpdateFeaturesResponse(
        error_code=results[0].error_code, error_message=results[0].error_message
    )
