"""Changes of topics by clients, counted against their quota (KIP-599).

Clients from version `strict_from` on know THROTTLING_QUOTA_EXCEEDED and are refused; older ones
only get a throttle time. The controller counts: cluster/quotas/mutation_quotas.
"""

from __future__ import annotations

from typing import TypeVar

from ...cluster.control.metered_request import MeteredRequest
from ...controller.controller_calls import MeteredChange
from ..ports.context import RequestContext

A = TypeVar("A")


async def metered_change(
    request: MeteredRequest[A], context: RequestContext, *, timeout_ms: int, strict_from: int
) -> tuple[A, int]:
    """Carry out a change; returns the answer, and the throttle time of the client in ms.

    Raises what Controller.change raises.
    """
    node = context.node
    if node.quotas is None:
        return await node.controller.change(request, timeout_ms=timeout_ms), 0
    call = MeteredChange(
        request,
        timeout_ms,
        context.session.principal.name,
        context.client_id or "",
        context.api_version >= strict_from,
    )
    return await node.controller.ask(call)
