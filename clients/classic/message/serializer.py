"""Values to payloads and back (kafka.serializer of 0.7)."""

from __future__ import annotations

from typing import Protocol, TypeVar

from .message import Message

EventIn = TypeVar("EventIn", contravariant=True)
EventOut = TypeVar("EventOut", covariant=True)


class Encoder(Protocol[EventIn]):
    """Makes the payload of a message out of a value that is sent."""

    def to_message(self, event: EventIn) -> bytes | None: ...


class Decoder(Protocol[EventOut]):
    """Makes what a stream hands out. A message whose decoding raises counts as handed out."""

    def to_event(self, message: Message) -> EventOut: ...


class DefaultEncoder:
    """Bytes as they are; None is a tombstone."""

    def to_message(self, event: bytes | bytearray | memoryview | None) -> bytes | None:
        if event is None or isinstance(event, bytes):
            return event
        if isinstance(event, bytearray | memoryview):
            return bytes(event)
        raise TypeError(
            f"{type(event).__name__} is not bytes: give an encoder, e.g. StringEncoder()"
        )


class StringEncoder:
    """Text as UTF-8."""

    def to_message(self, event: str) -> bytes:
        return event.encode()


class DefaultDecoder:
    """The message itself."""

    def to_event(self, message: Message) -> Message:
        return message


class StringDecoder:
    """The payload as text; a tombstone is the empty text."""

    def to_event(self, message: Message) -> str:
        """Raises UnicodeDecodeError: the payload is no UTF-8."""
        return (message.payload or b"").decode()
