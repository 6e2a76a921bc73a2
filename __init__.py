"""Bradbury: the Kafka-compatible, replicated log that lives inside a Ray cluster.

    import bradbury

    cluster = bradbury.up()                 # brokers on every node of this Ray cluster
    with bradbury.Producer() as producer:   # inside any Ray task: no address needed
        producer.send("flights", key=b"UA1545", value=b"{}")

Every public name below is imported on first use, so `import bradbury` stays cheap and needs
neither Ray nor Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import classic
    from .clients.admin.admin import Admin
    from .clients.consumer.async_consumer import AsyncConsumer
    from .clients.consumer.consumer import Consumer
    from .clients.consumer.thread_waiter import Wakeup
    from .clients.consumer_group.group import ConsumerGroup
    from .clients.consumer_group.processing.function import BatchFailed
    from .clients.consumer_group.worker_actors import ConsumerActor, ProducerActor
    from .clients.group.assignor import Assignor
    from .clients.group.rebalance_listener import RebalanceListener
    from .clients.producer.async_producer import AsyncProducer
    from .clients.producer.producer import Producer
    from .clients.queue.queue import Queue
    from .clients.queue.received_item import Empty, Full, ReceivedItem
    from .clients.schemas.registry_serializer import RegistrySerializer
    from .clients.schemas.schema_registry import SchemaRegistry
    from .clients.wire.interceptors import ConsumerInterceptor, ProducerInterceptor, ProducerRecord
    from .clients.wire.record_metadata import (
        BatchMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
    )
    from .launch.cluster import Cluster, connect, up
    from .launch.local import LocalCluster, local
    from .pipelines.flows.run_flow import run_flow
    from .pipelines.loads.load import load
    from .pipelines.migrations.migration import Migration
    from .pipelines.mirrors.background_mirror import Mirror
    from .pipelines.mirrors.mirror import mirror
    from .pipelines.ray_data.committed_batches import committed_batches
    from .pipelines.ray_data.read_topic import read_topic
    from .pipelines.ray_data.write_topic import write_topic
    from .pipelines.replays.replay_table import replay
    from .pipelines.serving.lag_policy import TopicLagPolicy
    from .pipelines.serving.serve_topic import serve_topic
    from .pipelines.spark.session import spark
    from .pipelines.spark.topic_view import topic_view
    from .pipelines.training.topic_dataset import TopicDataset
    from .protocol.security.acl_binding import (
        AclBinding,
        AclFilter,
        AclOperation,
        AclPermission,
        PatternType,
        ResourceType,
    )
    from .protocol.topic_partition import TopicPartition

# public name -> module that owns it
_OWNERS = {
    "AclBinding": ".protocol.security.acl_binding",
    "AclFilter": ".protocol.security.acl_binding",
    "AclOperation": ".protocol.security.acl_binding",
    "AclPermission": ".protocol.security.acl_binding",
    "Admin": ".clients.admin.admin",
    "Assignor": ".clients.group.assignor",
    "AsyncConsumer": ".clients.consumer.async_consumer",
    "AsyncProducer": ".clients.producer.async_producer",
    "BatchFailed": ".clients.consumer_group.processing.function",
    "BatchMetadata": ".clients.wire.record_metadata",
    "Cluster": ".launch.cluster",
    "Consumer": ".clients.consumer.consumer",
    "ConsumerActor": ".clients.consumer_group.worker_actors",
    "ConsumerGroup": ".clients.consumer_group.group",
    "ConsumerInterceptor": ".clients.wire.interceptors",
    "ReceivedItem": ".clients.queue.received_item",
    "Empty": ".clients.queue.received_item",
    "Full": ".clients.queue.received_item",
    "LocalCluster": ".launch.local",
    "Migration": ".pipelines.migrations.migration",
    "Mirror": ".pipelines.mirrors.background_mirror",
    "OffsetAndMetadata": ".clients.wire.record_metadata",
    "OffsetAndTimestamp": ".clients.wire.record_metadata",
    "Producer": ".clients.producer.producer",
    "ProducerActor": ".clients.consumer_group.worker_actors",
    "ProducerInterceptor": ".clients.wire.interceptors",
    "PatternType": ".protocol.security.acl_binding",
    "ProducerRecord": ".clients.wire.interceptors",
    "Queue": ".clients.queue.queue",
    "RegistrySerializer": ".clients.schemas.registry_serializer",
    "SchemaRegistry": ".clients.schemas.schema_registry",
    "RebalanceListener": ".clients.group.rebalance_listener",
    "ResourceType": ".protocol.security.acl_binding",
    "RecordMetadata": ".clients.wire.record_metadata",
    "TopicDataset": ".pipelines.training.topic_dataset",
    "TopicLagPolicy": ".pipelines.serving.lag_policy",
    "TopicPartition": ".protocol.topic_partition",
    "Wakeup": ".clients.consumer.thread_waiter",
    "connect": ".launch.cluster",
    "local": ".launch.local",
    "committed_batches": ".pipelines.ray_data.committed_batches",
    "load": ".pipelines.loads.load",
    "mirror": ".pipelines.mirrors.mirror",
    "read_topic": ".pipelines.ray_data.read_topic",
    "replay": ".pipelines.replays.replay_table",
    "run_flow": ".pipelines.flows.run_flow",
    "serve_topic": ".pipelines.serving.serve_topic",
    "spark": ".pipelines.spark.session",
    "topic_view": ".pipelines.spark.topic_view",
    "up": ".launch.cluster",
    "write_topic": ".pipelines.ray_data.write_topic",
}

# public name -> the module that it is
_MODULES = {"classic": ".classic"}

__all__ = [
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Admin",
    "Assignor",
    "AsyncConsumer",
    "AsyncProducer",
    "BatchFailed",
    "BatchMetadata",
    "Cluster",
    "Consumer",
    "ConsumerActor",
    "ConsumerGroup",
    "ConsumerInterceptor",
    "Empty",
    "Full",
    "LocalCluster",
    "Migration",
    "Mirror",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PatternType",
    "Producer",
    "ProducerActor",
    "ProducerInterceptor",
    "ProducerRecord",
    "Queue",
    "RebalanceListener",
    "ReceivedItem",
    "RecordMetadata",
    "RegistrySerializer",
    "ResourceType",
    "SchemaRegistry",
    "TopicDataset",
    "TopicLagPolicy",
    "TopicPartition",
    "Wakeup",
    "__version__",
    "classic",
    "committed_batches",
    "connect",
    "load",
    "local",
    "mirror",
    "read_topic",
    "replay",
    "run_flow",
    "serve_topic",
    "spark",
    "topic_view",
    "up",
    "write_topic",
]


def __getattr__(name: str) -> object:
    value: object
    if name in _OWNERS:
        value = getattr(import_module(_OWNERS[name], __name__), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name], __name__)
    else:
        raise AttributeError(f"module 'bradbury' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_OWNERS, *_MODULES])
