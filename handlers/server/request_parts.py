"""Long requests in parts: a request about thousands of items must not delay all other clients.

Many APIs have a list of independent items. Such a request is handled as several smaller ones, one
after another, with other clients' requests in between, and the responses are merged; the handler
is not involved. Order is kept; a topic that was split is one topic again in the response.

A commit of offsets is one batch in the log only up to Parts.size offsets; beyond, each part is one.

Requests whose items depend on each other are not split (Fetch has one byte budget, CreateTopics a
check for duplicates).
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

from ...protocol.schema import Message
from ..ports.api import Parts


def is_long(parts: Parts, request: Message) -> bool:
    """Whether `request` is to be handled in parts."""
    things = getattr(request, parts.asked)
    if not things:
        return False
    size, below = parts.size, parts.asked_below
    if below is None or len(things) > size:
        return len(things) > size
    if len(things) == 1:  # most requests
        return len(getattr(things[0], below)) > size
    count = 0
    for thing in things:
        count += len(getattr(thing, below))
    return count > size


def split(parts: Parts, request: Message) -> Iterator[Message]:
    """Split a request into ones of at most `size` items each, in order."""
    things = getattr(request, parts.asked)
    chunks = _chunks(things, parts.size)
    if parts.asked_below is not None:
        chunks = _chunks_below(things, parts.asked_below, parts.size)
    for chunk in chunks:
        part = copy(request)
        setattr(part, parts.asked, chunk)
        yield part


def _chunks(things: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(things), size):
        yield things[start : start + size]


def _chunks_below(topics: list[Any], below: str, size: int) -> Iterator[list[Any]]:
    """Split topics by the items below them. A topic without items counts as one item."""
    chunk: list[Any] = []
    room = size
    for topic in topics:
        things = getattr(topic, below)
        start = 0
        while True:
            taken = things[start : start + room]
            piece = copy(topic)
            setattr(piece, below, taken)
            chunk.append(piece)
            start += len(taken)
            room -= max(len(taken), 1)
            if room == 0:
                yield chunk
                chunk, room = [], size
            if start >= len(things):
                break
    if chunk:
        yield chunk


def join(parts: Parts, whole: Any, response: Any) -> Any:
    """Add the answers of `response` to `whole` (None at first). Both may be changed."""
    if whole is None:
        return response
    answers = getattr(whole, parts.answered)
    added = getattr(response, parts.answered)
    below = parts.answered_below
    if below is not None and answers and added and _same_topic(answers[-1], added[0]):
        getattr(answers[-1], below).extend(getattr(added[0], below))
        added = added[1:]
    answers.extend(added)
    return whole


def _same_topic(one: Any, other: Any) -> bool:
    name = "topic" if hasattr(one, "topic") else "name"
    return bool(
        getattr(one, name) == getattr(other, name)
        and getattr(one, "topic_id", None) == getattr(other, "topic_id", None)
    )
