"""A cluster of one node, ours or Apache Kafka's, for what any broker does."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker

from .kafka_jars import require_kafka


@contextmanager
def ours(folder: Path) -> Iterator[str]:
    """Its bootstrap servers."""
    with bradbury.local(data_dir=str(folder)) as cluster:
        yield cluster.bootstrap_servers


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """Its bootstrap servers. Skips where there are no jars."""
    require_kafka()
    with KafkaBroker(folder, heap="256m") as broker:
        yield broker.bootstrap_servers
