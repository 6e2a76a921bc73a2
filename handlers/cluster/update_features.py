"""UpdateFeatures (API key 57): the level of a feature cannot be changed (KIP-584).

Features and levels: cluster/metadata/features. A request for the current level succeeds, and any
other is refused with the name of the feature. As in Apache Kafka the first error is that of the
whole request.
"""

from __future__ import annotations

from ...cluster.metadata.features import FEATURES
from ...protocol.error_code import ErrorCode
from ...protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ..authorization.cluster_access import UPDATE_FEATURES
from ..ports.api import api
from ..ports.context import RequestContext


def handle(request: UpdateFeaturesRequest, _context: RequestContext) -> UpdateFeaturesResponse:
    for each in request.feature_updates:
        if FEATURES.get(each.feature) != each.max_version_level:
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=_why(each)
            )
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=each.feature, error_message=None)
            for each in request.feature_updates
        ],
    )


def _why(asked: FeatureUpdateKey) -> str:
    level = FEATURES.get(asked.feature)
    if level is None:
        return f"there is no feature {asked.feature!r} whose level can be changed"
    return f"{asked.feature} is at level {level} and cannot be changed"


API = api(0, 2, UpdateFeaturesRequest, handle, access=UPDATE_FEATURES)
