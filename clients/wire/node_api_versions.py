"""Versions of the requests that one broker supports, and the finalized features of its cluster.

Source: NodeApiVersions.java in apache/kafka's clients (KIP-35, KIP-584).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.errors import UnsupportedVersion
from ...protocol.messages.api_versions import ApiVersionsResponse
from ...protocol.schema import Message


class FinalizedFeatures(NamedTuple):
    """Finalized features of the cluster: their levels, as of an epoch."""

    epoch: int
    levels: Mapping[str, int]


class NodeApiVersions:
    """API versions and features of the broker at an address; empty before its first answer."""

    def __init__(self, address: object) -> None:
        self._address = address
        self._versions: dict[int, tuple[int, int]] = {}
        self.features = FinalizedFeatures(-1, {})

    def update(self, response: ApiVersionsResponse) -> None:
        """Store the broker's answer."""
        self._versions = {
            row.api_key: (row.min_version, row.max_version) for row in response.api_keys
        }
        self.features = FinalizedFeatures(
            response.finalized_features_epoch,
            {feature.name: feature.max_version_level for feature in response.finalized_features},
        )

    def highest(self, api_key: int) -> int:
        """The broker's highest version of a request; 0 if it does not support it."""
        return self._versions.get(api_key, (0, 0))[1]

    def latest_usable(
        self, request: type[Message], min_version: int = 0, max_version: int | None = None
    ) -> int:
        """The highest version both sides support within these limits. Raises UnsupportedVersion."""
        first, last = request.VERSIONS
        first = max(first, min_version)
        if max_version is not None:
            last = min(last, max_version)
        name = request.__name__.removesuffix("Request")
        theirs = self._versions.get(request.API_KEY)
        if theirs is None:
            raise UnsupportedVersion(f"the broker at {self._address} does not offer {name}")
        version = min(last, theirs[1])
        if version < max(first, theirs[0]):
            raise UnsupportedVersion(
                f"{name}: the broker at {self._address} speaks versions {theirs[0]} to "
                f"{theirs[1]}, this client {first} to {last}; upgrade the older of the two"
            )
        return version
