"""A node's main metrics as Ray application metrics (ray.util.metrics), beside Ray's own.

Every record call of ray.util.metrics costs some 10 us, so nothing is recorded per request: the
counters of the node are sampled every PERIOD_SECONDS and their increase is reported. All metrics
are at the node's own endpoint (metrics_endpoint); these are sums of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ray.util.metrics import Counter, Gauge

if TYPE_CHECKING:
    from ..node import Node

PERIOD_SECONDS = 10.0


class RayMetrics:
    """Reporter of a node's figures to Ray's metrics. `run` it forever, on the node's loop."""

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        tags = ("node",)
        self._counters = {
            key: Counter(f"bradbury_{key}", description=text, tag_keys=tags)
            for key, text in (
                ("requests", "Requests answered"),
                ("errors", "Error codes in responses"),
                ("bytes_in", "Bytes of record batches appended"),
                ("bytes_out", "Bytes of record batches given to consumers"),
            )
        }
        self._gauges = {
            key: Gauge(f"bradbury_{key}", description=text, tag_keys=tags)
            for key, text in (
                ("open_connections", "Open connections of clients"),
                ("partitions", "Partitions of the node"),
                ("request_memory", "Bytes held for requests and answers"),
            )
        }
        for metric in (*self._counters.values(), *self._gauges.values()):
            metric.set_default_tags({"node": name})
        self._reported: dict[str, int] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            self.report()

    def report(self) -> None:
        """Report what has grown since the last call. Cost: about 0.1 ms, and 1 us per partition."""
        for key, total in self._totals().items():
            grown = total - self._reported.get(key, 0)
            self._reported[key] = total
            if grown > 0:
                self._counters[key].inc(grown)
        node, host = self._node, self._node.storage.partition_host
        self._gauges["open_connections"].set(node.socket_server.connection_count)
        self._gauges["partitions"].set(0 if host is None else len(host.replicas))
        self._gauges["request_memory"].set(node.socket_server.memory.used)

    def _totals(self) -> dict[str, int]:
        metrics = self._node.metrics
        apis = metrics.apis.values()
        replicas = (
            []
            if self._node.storage.partition_host is None
            else self._node.storage.partition_host.replicas
        )
        return {
            "requests": sum(api.requests for api in apis),
            "errors": sum(sum(api.errors.values()) for api in apis),
            "bytes_in": sum(replica.bytes_in for replica in replicas),
            "bytes_out": sum(metrics.bytes_out.values()),
        }
