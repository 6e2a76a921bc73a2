"""State that the connections of one node share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...handlers.ports.client_session import ClientSession
from ...handlers.ports.context import Node
from ..loop.line_limit import LineLimit
from ..loop.node_metrics import NodeMetrics
from .refusal_delay import RefusalDelay
from .request_memory import RequestMemory


class ClosedConnection(Protocol):
    """Connection that was closed."""

    session: ClientSession
    peer: str


@dataclass(slots=True)
class Shared:
    """State that all connections of one node share."""

    node: Node
    scratch: bytearray
    memory: RequestMemory
    metrics: NodeMetrics
    lines: LineLimit
    refusals: RefusalDelay
    on_close: Callable[[ClosedConnection], None]
