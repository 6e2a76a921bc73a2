"""Messages as the 0.7 interfaces return them."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Message(NamedTuple):
    """Message. Keys and timestamps (milliseconds since 1970) did not exist in 0.7."""

    payload: bytes | None
    key: bytes | None = None
    timestamp_ms: int = -1


class MessageAndOffset(NamedTuple):
    """Message with the offset to fetch after it, which is not the message's own offset."""

    message: Message
    offset: int


class MessageAndMetadata(NamedTuple, Generic[T]):
    """Item of a stream. message: decoded by the stream's decoder. offset: that of the message."""

    message: T
    topic: str
    partition: int
    offset: int
    key: bytes | None
    timestamp_ms: int
