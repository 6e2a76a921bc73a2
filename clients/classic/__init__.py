"""The interfaces of Kafka's 0.7 design, over today's wire. Documented in docs/classic.md.

    SimpleConsumer     one broker, offsets in the caller's hands
    ConsumerConnector  a group's streams: blocking iterators, one thread each
    Producer           synchronous or through a queue; encoder, partitioner, handlers

They are thin: requests, batches, groups and compression are those of bradbury.Consumer, Producer
and the modules under them. So a connector shares a group with members of every other client.
"""

from .consumer_config import ConsumerConfig
from .consumer_connector import ConsumerConnector
from .errors import ConsumerTimeoutException, InvalidMessageSize, QueueClosed, QueueFull
from .event_handler import CallbackHandler, DefaultEventHandler, EventHandler, QueueItem
from .kafka_stream import KafkaStream
from .message import Message, MessageAndMetadata, MessageAndOffset
from .message_set import MessageSet
from .partitioner import DefaultPartitioner, Partitioner
from .producer import Producer, ProducerData
from .producer_config import ProducerConfig
from .serializer import (
    Decoder,
    DefaultDecoder,
    DefaultEncoder,
    Encoder,
    StringDecoder,
    StringEncoder,
)
from .simple_consumer import EARLIEST_TIME, LATEST_TIME, FetchRequest, SimpleConsumer
from .sync_producer import ProducerRequest, SyncProducer
from .topic_filter import Blacklist, TopicFilter, Whitelist

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "Blacklist",
    "CallbackHandler",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerTimeoutException",
    "Decoder",
    "DefaultDecoder",
    "DefaultEncoder",
    "DefaultEventHandler",
    "DefaultPartitioner",
    "Encoder",
    "EventHandler",
    "FetchRequest",
    "InvalidMessageSize",
    "KafkaStream",
    "Message",
    "MessageAndMetadata",
    "MessageAndOffset",
    "MessageSet",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerData",
    "ProducerRequest",
    "QueueClosed",
    "QueueFull",
    "QueueItem",
    "SimpleConsumer",
    "StringDecoder",
    "StringEncoder",
    "SyncProducer",
    "TopicFilter",
    "Whitelist",
]
