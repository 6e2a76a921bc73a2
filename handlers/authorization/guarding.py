"""Guards: remove from a request the items that are not authorized, and merge their errors into the
handler's response.

Invariants: an item that is not authorized never reaches a handler. If no item remains, the handler
is not called, unless its response has more than the requested items (Metadata: the brokers). The
response has the items in the order of the request if the handler keeps that order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Any

from ...protocol.error_code import ErrorCode
from ...protocol.schema import Message
from ...protocol.security.acl_binding import AclOperation, ResourceType
from ..ports.access import Access, Guard, Need, Rights
from ..ports.context import RequestContext

Handle = Callable[[Any, RequestContext], Any]

CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Error code of a refusal, by resource type; see AclEntry.authorizationError."""
MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's messages of the error codes (Errors.java)."""


def need(operation: AclOperation, resource: ResourceType, what: str = "") -> Need:
    return Need(operation, resource, CODES[resource].name, what)


def then(answer: Any, finish: Callable[[Any], Any]) -> Any:
    """Apply `finish` to a handler's answer, now or when it is awaited."""
    if isinstance(answer, Awaitable):
        return _later(answer, finish)
    return finish(answer)


async def _later(answer: Awaitable[Any], finish: Callable[[Any], Any]) -> Any:
    return finish(await answer)


def without(request: Message, field: str, kept: list[Any]) -> Any:
    """Copy of the request with only the `kept` items in `field`."""
    less = copy(request)
    setattr(less, field, kept)
    return less


def merged(asked: Sequence[Any], refused: dict[int, Any], answers: list[Any]) -> list[Any]:
    """Merge the answers of a handler with a guard's; `refused` by position in the request."""
    if len(answers) + len(refused) != len(asked):
        return answers + list(refused.values())
    remaining = iter(answers)
    return [refused[place] if place in refused else next(remaining) for place in range(len(asked))]


def each(
    asked: str,
    answered: str,
    refusal_of: Callable[[Any, RequestContext, Rights], Any | None],
    response: type[Message],
) -> Guard:
    """Make a guard that checks each item of a list.

    refusal_of: returns the answer to an item that is not allowed, or None.
    """

    def guard(request: Any, context: RequestContext, rights: Rights, handle: Handle) -> Any:
        things = getattr(request, asked)
        refused: dict[int, Any] = {}
        for place, thing in enumerate(things):
            refusal = refusal_of(thing, context, rights)
            if refusal is not None:
                refused[place] = refusal
        if not refused:
            return handle(request, context)
        if len(refused) == len(things):
            answer: Any = response()
            setattr(answer, answered, list(refused.values()))
            return answer
        kept = [thing for place, thing in enumerate(things) if place not in refused]

        def finish(answer: Any) -> Any:
            setattr(answer, answered, merged(things, refused, getattr(answer, answered)))
            return answer

        return then(handle(without(request, asked, kept), context), finish)

    return guard


def whole(
    allowed: Need,
    name_of: Callable[[Any], str] | None,
    refuse: Callable[[Any, ErrorCode], Any],
) -> Access:
    """Access to an API about one named resource; `name_of` None: about the cluster."""
    code = CODES[allowed.resource]

    def guard(request: Any, context: RequestContext, rights: Rights, handle: Handle) -> Any:
        if name_of is None:
            may = rights.may_cluster(allowed.operation)
        else:
            may = rights.may(allowed.operation, allowed.resource, name_of(request))
        return handle(request, context) if may else refuse(request, code)

    return Access((allowed,), guard)


def on_cluster(operation: AclOperation, refuse: Callable[[Any, ErrorCode], Any]) -> Access:
    return whole(need(operation, ResourceType.CLUSTER), None, refuse)


def with_message(response: type[Message]) -> Callable[[Any, ErrorCode], Any]:
    """Make a function that refuses with the response's own error code and message."""

    def refuse(_request: Any, code: ErrorCode) -> Any:
        made: Any = response()
        made.error_code, made.error_message = code, MESSAGES[code]
        return made

    return refuse


def with_code(response: type[Message]) -> Callable[[Any, ErrorCode], Any]:
    def refuse(_request: Any, code: ErrorCode) -> Any:
        made: Any = response()
        made.error_code = code
        return made

    return refuse
