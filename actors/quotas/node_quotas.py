"""Quotas of clients, as one node enforces them: cluster/quotas with the node's clock.

Each listening process has its own, as each of Kafka's brokers has: a quota is what a client may use
of one node. Changes of topics are the exception; the controller counts them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ...cluster.broker_config import BrokerConfig
from ...cluster.metadata.client_quotas import ClientQuotas
from ...cluster.quotas.client_quota_rates import ClientQuotaRates
from ...cluster.quotas.quota_entity import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from ...cluster.quotas.quota_limits import AddressLimits, QuotaLimits
from ...handlers.ports.quota_port import AskedBy
from ...handlers.ports.request_metrics import Histogram
from ...protocol.config_key import INT_MAX


class NodeQuotas:
    """Quotas of one node. Implements handlers.ports.quota_port.Quotas.

    `throttles`: histograms of throttle times, by quota; see Quotas.hold.
    """

    def __init__(self, config: BrokerConfig, throttles: Mapping[str, Histogram]) -> None:
        samples = config.quota_window_num
        window_ms = config.quota_window_size_seconds * 1000
        measured: dict[str, Any] = {"samples": samples, "window_ms": window_ms}
        none = QuotaLimits({}, "")
        self._produce = ClientQuotaRates(none, **measured)
        self._fetch = ClientQuotaRates(none, **measured)
        self._request = ClientQuotaRates(none, **measured, longest_ms=window_ms)
        self._addresses = ClientQuotaRates(none, **measured, longest_ms=window_ms)
        self._counts_time = False
        self._throttles = throttles

    def follow(self, quotas: ClientQuotas) -> NodeQuotas | None:
        """Use these quotas from now on. Returns None if there are none, and nothing to check."""
        for rates, key in (
            (self._produce, PRODUCER_BYTE_RATE),
            (self._fetch, CONSUMER_BYTE_RATE),
            (self._request, REQUEST_PERCENTAGE),
        ):
            rates.follow(QuotaLimits(quotas, key))
        self._addresses.follow(AddressLimits(quotas, CONNECTION_CREATION_RATE))
        self._counts_time = bool(QuotaLimits(quotas, REQUEST_PERCENTAGE))
        return self if quotas else None

    @property
    def counts_time(self) -> bool:
        """Whether any client has a quota of request time."""
        return self._counts_time

    def produced(self, context: AskedBy) -> int:
        """Count the request's bytes; see Quotas."""
        assert context.trace is not None
        return self._produce.record(*_who(context), context.trace.request_bytes, _now_ms())

    def fetched(self, context: AskedBy, size: int) -> int:
        """Count the response's bytes; see Quotas."""
        return self._fetch.record(*_who(context), size, _now_ms())

    def not_fetched(self, context: AskedBy, size: int) -> None:
        """Take back the bytes of a response that was not sent; see Quotas."""
        self._fetch.take_back(*_who(context), size, _now_ms())

    def most_fetched(self, context: AskedBy) -> int:
        """Bytes that a client within its quota may fetch at once; see Quotas."""
        return int(min(self._fetch.most_at_once(*_who(context)), INT_MAX))

    def handled(self, context: AskedBy) -> int:
        """Count the request's time; see Quotas. 100 percent are one second of each second."""
        if not self._counts_time or context.trace is None:
            return 0
        percent = 100 * context.trace.busy_seconds(time.perf_counter())
        return self._request.record(*_who(context), percent, _now_ms())

    def connecting(self, address: str) -> int:
        """Count a new connection; see Quotas. One that has to wait is not counted."""
        now_ms = _now_ms()
        throttle_ms = self._addresses.record(address, "", 1, now_ms)
        if throttle_ms:
            self._addresses.take_back(address, "", 1, now_ms)
            self._throttles["connection"].observe(throttle_ms / 1000)
        return throttle_ms

    def hold(self, context: AskedBy, quota: str, throttle_ms: int) -> None:
        """Record a throttled response; see Quotas."""
        self._throttles[quota].observe(throttle_ms / 1000)
        if context.trace is not None:
            context.trace.throttle_ms = throttle_ms


def _who(context: AskedBy) -> tuple[str, str]:
    return context.session.principal.name, context.client_id or ""


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
