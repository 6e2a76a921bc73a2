"""Many librdkafka producers at once, each with its own connections and small requests."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from .contestants import Contestant
from .librdkafka import PRODUCER, Client
from .measures import delete_topic, new_topic

SIZE = 200
ONE_RECORD = {
    "acks": "1",
    "linger.ms": "0",
    "batch.num.messages": "1",
    "max.in.flight.requests.per.connection": "5",
}
"""Settings of a producer that sends a request for each record."""


class Produced(NamedTuple):
    """Throughput and CPU. rate: records a second. cpu, client_cpu: microseconds a record."""

    rate: float
    cpu: float
    client_cpu: float


def produce_all(broker: Contestant, clients: list[Client], count: int) -> Produced:
    """Produce `count` records with each client at once, until all are acknowledged."""
    total = count * len(clients)
    threads = [threading.Thread(target=each.produce, args=(count, SIZE)) for each in clients]
    cpu, own, began = broker.cpu_seconds(), time.process_time(), time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    seconds = time.perf_counter() - began
    spent = broker.cpu_seconds() - cpu
    client = time.process_time() - own
    return Produced(total / seconds, spent * 1e6 / total, client * 1e6 / total)


def measure_producers(
    broker: Contestant,
    topic: str,
    settings: dict[str, str],
    producers: int,
    total: int,
    *,
    partitions: int = 4,
    replicas: int = 1,
    config: dict[str, str] | None = None,
) -> Produced:
    """Produce `total` records of SIZE bytes in all, each producer to its own partition."""
    new_topic(broker, topic, partitions, replicas, config)
    clients = [
        Client(PRODUCER, broker.bootstrap_servers, topic, settings, partition=each % partitions)
        for each in range(producers)
    ]
    try:
        produce_all(broker, clients, 20)  # connected
        return produce_all(broker, clients, total // producers)
    finally:
        for each in clients:
            each.close()
        delete_topic(broker, topic)
