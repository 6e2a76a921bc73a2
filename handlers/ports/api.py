"""One API as declared in its handler's file: versions, message class, handler, long requests.

Each handler ends with `API = api(...)`; server/table collects them. Ranges follow Apache Kafka
4.1's; a lower bound is never above Kafka's, because librdkafka, aiokafka and kafkajs read their
features from the lower bounds. How to add an API: docs/adding-an-api.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ...protocol.schema import Message
from .access import Access
from .context import RequestContext

Handler = Callable[[Any, RequestContext], Any | Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Parts:
    """Position of a request's list: `asked` in the request, `answered` in the response.

    The `..._below` fields are set where the items are one level deeper, in a list of topics. `size`
    items are handled at a time: about 2 ms of work. For the split see server/request_parts.
    """

    asked: str
    answered: str
    size: int = 200
    asked_below: str | None = None
    answered_below: str | None = None


@dataclass(frozen=True, slots=True)
class Api:
    """One API. `lowest` and `highest` are advertised and served.

    `parts`: how a long request is split; None: it is handled as a whole. `access`: the rights that
    a client needs; None: on a node with an authorizer the API is refused to all clients.
    """

    key: int
    name: str
    lowest: int
    highest: int
    first_flexible: int
    request: type[Message]
    handle: Handler
    parts: Parts | None
    access: Access | None


def api(
    lowest: int,
    highest: int,
    request: type[Message],
    handle: Handler,
    parts: Parts | None = None,
    *,
    access: Access | None = None,
) -> Api:
    name = request.__name__.removesuffix("Request")
    return Api(
        request.API_KEY, name, lowest, highest, request.FLEXIBLE, request, handle, parts, access
    )
