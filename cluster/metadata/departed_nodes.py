"""Recently fenced nodes: Metadata still lists them for a while, though they lead nothing.

librdkafka (2.16) removes a broker that Metadata no longer lists. If the same response has a new
leader for a partition, the removal overtakes the partition's move to it: the client has no leader
for it until its next metadata request, a second later. That happened at every second kill -9 of a
leader's process, and never since such nodes are listed. Apache Kafka lists a broker that died until
its session expires, by default after 9 s.
"""

from __future__ import annotations

from .metadata_image import MetadataImage, NodeImage

LISTED_MS = 3_000
"""Time for which a fenced node is listed; longer than the second between two metadata requests of
clients.
"""


class DepartedNodes:
    """Nodes that this process saw leave service. A process that starts later has none to list."""

    def __init__(self) -> None:
        self._since: dict[int, int] = {}

    def on_metadata(self, before: MetadataImage, after: MetadataImage, *, now_ms: int) -> None:
        """Note nodes that leave service. `now_ms`: of a monotonic clock, here and below."""
        if after.nodes is before.nodes:
            return
        for node_id, node in after.nodes.items():
            known = before.nodes.get(node_id)
            if not node.fenced:
                self._since.pop(node_id, None)
            elif known is not None and not known.fenced:
                self._since[node_id] = now_ms

    def listed(self, image: MetadataImage, *, now_ms: int) -> list[NodeImage]:
        """Nodes in service and recently fenced ones, in id order."""
        since = self._since
        return [
            node
            for node_id, node in sorted(image.nodes.items())
            if not node.fenced or now_ms - since.get(node_id, -LISTED_MS) < LISTED_MS
        ]
