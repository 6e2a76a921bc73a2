"""Settings of a client metrics subscription (KIP-714): the clients, their metrics and the interval.

A broker requests metrics from clients only if a plugin receives them. There is no such plugin here,
so clients are not asked, as with an Apache Kafka without a ClientTelemetryReceiver; subscriptions
are stored in the cluster's metadata and can be described.
Source: apache/kafka server/.../metrics/ClientMetricsConfigs.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..protocol.config_key import split_list
from ..protocol.errors import InvalidConfig, InvalidRequest

INTERVAL: Final = "interval.ms"
METRICS: Final = "metrics"
MATCH: Final = "match"
NAMES: Final = (INTERVAL, MATCH, METRICS)
DEFAULTS: Final = {INTERVAL: "300000", MATCH: "", METRICS: ""}
INTERVAL_BOUNDS_MS: Final = (100, 3_600_000)
MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def check_client_metrics(configs: Mapping[str, str]) -> None:
    """Check the settings of a subscription. Raises InvalidRequest, or InvalidConfig for an invalid
    pattern.
    """
    for name in configs:
        if name not in NAMES:
            raise InvalidRequest(f"unknown client metrics config {name!r}")
    lowest, highest = INTERVAL_BOUNDS_MS
    interval = configs.get(INTERVAL, str(lowest)).strip()
    if not re.fullmatch(r"[+-]?\d+", interval):
        raise InvalidConfig(f"{INTERVAL} must be an integer, got {interval!r}")
    if not lowest <= int(interval) <= highest:
        raise InvalidRequest(f"{INTERVAL} must be {lowest} to {highest}, got {interval}")
    for pattern in split_list(configs.get(MATCH, "")):
        name, equals, value = pattern.partition("=")
        try:
            re.compile(value.strip())
        except re.error:
            equals = ""
        if not equals or not value or name.strip() not in MATCHED:
            raise InvalidConfig(
                f"{MATCH} is a list of name=pattern of {', '.join(MATCHED)}, got {pattern!r}"
            )
