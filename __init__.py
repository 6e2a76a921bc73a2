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
    from .actors.launch import Cluster, connect, up
    from .actors.local import LocalCluster, local
    from .clients.admin import Admin
    from .clients.consumer import Consumer
    from .clients.producer import Producer
    from .clients.ray_actors import ConsumerActor, ProducerActor
    from .clients.topic_partition import BatchMetadata, RecordMetadata, TopicPartition
    from .pipelines.spark.session import spark

# public name -> module that owns it
_OWNERS = {
    "Admin": ".clients.admin",
    "BatchMetadata": ".clients.topic_partition",
    "Cluster": ".actors.launch",
    "Consumer": ".clients.consumer",
    "ConsumerActor": ".clients.ray_actors",
    "LocalCluster": ".actors.local",
    "Producer": ".clients.producer",
    "ProducerActor": ".clients.ray_actors",
    "RecordMetadata": ".clients.topic_partition",
    "TopicPartition": ".clients.topic_partition",
    "connect": ".actors.launch",
    "local": ".actors.local",
    "spark": ".pipelines.spark.session",
    "up": ".actors.launch",
}

__all__ = [
    "Admin",
    "BatchMetadata",
    "Cluster",
    "Consumer",
    "ConsumerActor",
    "LocalCluster",
    "Producer",
    "ProducerActor",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
    "connect",
    "local",
    "spark",
    "up",
]


def __getattr__(name: str) -> object:
    owner = _OWNERS.get(name)
    if owner is None:
        raise AttributeError(f"module 'bradbury' has no attribute {name!r}")
    value = getattr(import_module(owner, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_OWNERS])
