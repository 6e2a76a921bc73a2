"""The interfaces of Kafka's 0.7 design, over today's wire. Documented in docs/classic.md.

    SimpleConsumer     one broker, offsets in the caller's hands
    ConsumerConnector  a group's streams: blocking iterators, one thread each
    Producer           synchronous or through a queue; encoder, partitioner, handlers

They are thin: requests, batches, groups and compression are those of bradbury.Consumer, Producer
and the modules under them. So a connector shares a group with members of every other client.
"""

from .errors import ConsumerTimeoutException, InvalidMessageSize, QueueClosed, QueueFull
from .message import Message, MessageAndMetadata, MessageAndOffset
from .message_set import MessageSet
from .serializer import (
    Decoder,
    DefaultDecoder,
    DefaultEncoder,
    Encoder,
    StringDecoder,
    StringEncoder,
)
from .simple_consumer import EARLIEST_TIME, LATEST_TIME, FetchRequest, SimpleConsumer

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "ConsumerTimeoutException",
    "Decoder",
    "DefaultDecoder",
    "DefaultEncoder",
    "Encoder",
    "FetchRequest",
    "InvalidMessageSize",
    "Message",
    "MessageAndMetadata",
    "MessageAndOffset",
    "MessageSet",
    "QueueClosed",
    "QueueFull",
    "SimpleConsumer",
    "StringDecoder",
    "StringEncoder",
]
