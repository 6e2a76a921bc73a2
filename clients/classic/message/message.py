"""Messages as the interfaces of 0.7 hand them out."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Message(NamedTuple):
    """One message. Keys and timestamps (milliseconds since 1970) are younger than 0.7."""

    payload: bytes | None
    key: bytes | None = None
    timestamp_ms: int = -1


class MessageAndOffset(NamedTuple):
    """offset: where to fetch on when this message is done; not the message's own."""

    message: Message
    offset: int


class MessageAndMetadata(NamedTuple, Generic[T]):
    """What a stream hands out. message: as the stream's decoder made it. offset: its own."""

    message: T
    topic: str
    partition: int
    offset: int
    key: bytes | None
    timestamp_ms: int
