"""The interfaces of Kafka's 0.7 design, over today's wire. Documented in docs/classic.md.

consumer/   SimpleConsumer: one broker, offsets in the caller's hands;
            ConsumerConnector: a group's streams, blocking iterators, one thread each
producer/   Producer: synchronous or through a queue; encoder, partitioner, handlers
message/    messages, serializers, settings, exceptions

They are thin layers over bradbury.Consumer and Producer, which do requests, batches, groups and
compression. So a connector can share a group with members of any other client.
"""

from .consumer.consumer_config import ConsumerConfig
from .consumer.consumer_connector import ConsumerConnector
from .consumer.kafka_stream import KafkaStream
from .consumer.simple_consumer import EARLIEST_TIME, LATEST_TIME, FetchRequest, SimpleConsumer
from .consumer.topic_filter import Blacklist, TopicFilter, Whitelist
from .message.errors import ConsumerTimeoutException, InvalidMessageSize, QueueClosed, QueueFull
from .message.message import Message, MessageAndMetadata, MessageAndOffset
from .message.message_set import MessageSet
from .message.serializer import (
    Decoder,
    DefaultDecoder,
    DefaultEncoder,
    Encoder,
    StringDecoder,
    StringEncoder,
)
from .producer.event_handler import (
    CallbackHandler,
    DefaultEventHandler,
    EventHandler,
    QueueItem,
)
from .producer.partitioner import DefaultPartitioner, Partitioner
from .producer.producer import Producer, ProducerData
from .producer.producer_config import ProducerConfig
from .producer.sync_producer import ProducerRequest, SyncProducer

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
