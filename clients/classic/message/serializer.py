"""Encoders and decoders of payloads (kafka.serializer of 0.7)."""

from __future__ import annotations

from typing import Protocol, TypeVar

from .message import Message

EventIn = TypeVar("EventIn", contravariant=True)
EventOut = TypeVar("EventOut", covariant=True)


class Encoder(Protocol[EventIn]):
    """Encoder of a value to the payload of a message."""

    def to_message(self, event: EventIn) -> bytes | None: ...


class Decoder(Protocol[EventOut]):
    """Decoder of a stream's messages. A message whose decoding raises counts as consumed."""

    def to_event(self, message: Message) -> EventOut: ...


class DefaultEncoder:
    """Encoder for bytes, which stay as they are; None is a tombstone."""

    def to_message(self, event: bytes | bytearray | memoryview | None) -> bytes | None:
        if event is None or isinstance(event, bytes):
            return event
        if isinstance(event, bytearray | memoryview):
            return bytes(event)
        raise TypeError(
            f"{type(event).__name__} is not bytes: pass an encoder, e.g. StringEncoder()"
        )


class StringEncoder:
    """Encoder of strings to UTF-8."""

    def to_message(self, event: str) -> bytes:
        """Encode `event`. Raises TypeError: it is not a string."""
        if not isinstance(event, str):
            raise TypeError(
                f"StringEncoder takes str, not {event!r}; without an encoder it is bytes"
            )
        return event.encode()


class DefaultDecoder:
    """Decoder that returns the message itself."""

    def to_event(self, message: Message) -> Message:
        return message


class StringDecoder:
    """Decoder of UTF-8 payloads to strings; a tombstone becomes the empty string."""

    def to_event(self, message: Message) -> str:
        """Decode the payload. Raises UnicodeDecodeError: it is not UTF-8."""
        return (message.payload or b"").decode()
