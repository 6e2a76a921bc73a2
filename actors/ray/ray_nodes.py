"""The living Ray nodes, and the draining ones, as the GCS reports them.

Both calls block on another process: make them in a thread.
"""

from __future__ import annotations

import ray
from ray._raylet import GcsClient  # type: ignore[attr-defined]  # missing in Ray's stub

from .placement import RayNode

ANSWER_SECONDS = 5.0


def living_nodes() -> dict[str, RayNode]:
    """Living Ray nodes by Ray's id, which is new at each start of a node."""
    return {
        node["NodeID"]: RayNode(
            node["NodeManagerAddress"], node.get("Labels") or {}, node["Resources"]
        )
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    }


class DrainingNodes:
    """Reader of the Ray nodes that are being drained; for use in one thread."""

    def __init__(self) -> None:
        self._address: str = ray.get_runtime_context().gcs_address
        self._client: GcsClient | None = None

    def deadlines_ms(self) -> dict[str, int]:
        """Deadlines of draining nodes (ms since 1970; 0: none), by Ray's id. Raises what Ray does.

        After a failure a new connection is made: the GCS may have been restarted.
        """
        client, self._client = self._client or GcsClient(address=self._address), None
        draining: dict[str, int] = client.get_draining_nodes(timeout=ANSWER_SECONDS)
        self._client = client
        return draining
