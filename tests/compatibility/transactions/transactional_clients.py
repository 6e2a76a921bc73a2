"""Transactional producers of three Python clients under one interface, and readers of all of them."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bradbury.tests.compatibility.support.compatibility import Tool

SECONDS = 60.0
Place = tuple[str, int]
"""topic, partition"""


class TransactionalClient(Protocol):
    """A producer with a transactional id; initialised, thus the only one of that id."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: str) -> None: ...

    def flush(self) -> None: ...

    def send_offsets(self, offsets: Mapping[Place, int], group: Any) -> None:
        """group: what the `membership` of one of this client's consumers gave, or a name."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentTransactions:
    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(SECONDS)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        self._producer.produce(topic, value, value, partition)

    def flush(self) -> None:
        assert self._producer.flush(SECONDS) == 0

    def send_offsets(self, offsets: Mapping[Place, int], group: Any) -> None:
        from confluent_kafka import TopicPartition

        wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        self._producer.send_offsets_to_transaction(wanted, group, SECONDS)

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(SECONDS)

    def close(self) -> None:
        del self._producer

    @staticmethod
    def membership(servers: str, group: str, topic: str) -> tuple[Any, Callable[[], None]]:
        """A member of the group that has its assignment: what it commits with, and its leaving."""
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        deadline = time.monotonic() + SECONDS
        while not consumer.assignment():
            assert time.monotonic() < deadline, "nothing was assigned"
            consumer.poll(0.1)
        return consumer.consumer_group_metadata(), consumer.close


class KafkaPythonTransactions:
    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=servers,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=5,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        self._producer.send(topic, value.encode(), value.encode(), partition=partition)

    def flush(self) -> None:
        self._producer.flush(SECONDS)

    def send_offsets(self, offsets: Mapping[Place, int], group: Any) -> None:
        from kafka import OffsetAndMetadata, TopicPartition

        wanted = {
            TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(wanted, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(5)

    @staticmethod
    def membership(servers: str, group: str, topic: str) -> tuple[Any, Callable[[], None]]:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic, bootstrap_servers=servers, group_id=group, enable_auto_commit=False
        )
        deadline = time.monotonic() + SECONDS
        while not consumer.assignment():
            assert time.monotonic() < deadline, "nothing was assigned"
            consumer.poll(100)
        return consumer.group_metadata(), consumer.close


class AiokafkaTransactions:
    """aiokafka commits offsets with a group's name alone: no generation fences it."""

    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        from aiokafka import AIOKafkaProducer

        self._loop = asyncio.new_event_loop()

        async def start() -> Any:
            producer = AIOKafkaProducer(
                bootstrap_servers=servers,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                linger_ms=5,
            )
            await producer.start()
            return producer

        self._producer = self._run(start())

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, SECONDS))

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: str) -> None:
        self._run(self._producer.send(topic, value.encode(), value.encode(), partition=partition))

    def flush(self) -> None:
        self._run(self._producer.flush())

    def send_offsets(self, offsets: Mapping[Place, int], group: Any) -> None:
        from aiokafka import TopicPartition

        wanted = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(wanted, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._loop.close()

    @staticmethod
    def membership(servers: str, group: str, topic: str) -> tuple[Any, Callable[[], None]]:
        return group, lambda: None


CLIENTS: dict[str, Any] = {
    "confluent-kafka": ConfluentTransactions,
    "aiokafka": AiokafkaTransactions,
    "kafka-python": KafkaPythonTransactions,
}
FENCED = {
    "confluent-kafka": ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
    "aiokafka": ("ProducerFenced",),
    "kafka-python": ("ProducerFencedError", "InvalidProducerEpochError"),
}
"""What each of them says where another producer has its id, or the coordinator has aborted."""


def what(error: Exception) -> str:
    """The error's name: librdkafka has one class for all."""
    inner = error.args[0] if error.args else None
    name = getattr(inner, "name", None)
    return str(name()) if callable(name) else type(error).__name__


# --- reading -------------------------------------------------------------------------------------


def read_with_confluent(servers: str, place: Place, isolation: str) -> list[str]:
    """All of a partition's records up to where a reader of that isolation comes now."""
    from confluent_kafka import Consumer, IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    level = IsolationLevel[isolation.upper()]
    admin = AdminClient({"bootstrap.servers": servers})
    asked = {TopicPartition(*place): OffsetSpec.latest()}
    [future] = admin.list_offsets(asked, isolation_level=level).values()
    end = future.result(SECONDS).offset
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(*place, 0)])
    found: list[str] = []
    deadline = time.monotonic() + SECONDS
    try:
        while consumer.position([TopicPartition(*place)])[0].offset < end:
            assert time.monotonic() < deadline, f"{place}: {found} of {end}"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                break  # up to the last stable offset; behind the last record stand markers
            found.append(message.value().decode())
    finally:
        consumer.close()
    return found


def read_with_kafka_python(servers: str, place: Place, isolation: str) -> list[str]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, isolation_level=isolation, group_id=None)
    partition = TopicPartition(*place)
    try:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek(partition, 0)
        found: list[str] = []
        deadline = time.monotonic() + SECONDS
        while consumer.position(partition) < end:
            assert time.monotonic() < deadline, f"{place}: {found} of {end}"
            for records in consumer.poll(300).values():
                found += [record.value.decode() for record in records]
        return found
    finally:
        consumer.close()


def read_with_aiokafka(servers: str, place: Place, isolation: str) -> list[str]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def work() -> list[str]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, isolation_level=isolation, group_id=None
        )
        await consumer.start()
        try:
            partition = TopicPartition(*place)
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]
            consumer.seek(partition, 0)
            found: list[str] = []
            # Its position does not go past a marker that no record follows.
            while await consumer.position(partition) < end:
                polled = await consumer.getmany(timeout_ms=1_000)
                found += [one.value.decode() for each in polled.values() for one in each]
                if not polled:
                    break
            return found
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(work(), SECONDS))


READERS = {
    "confluent-kafka": read_with_confluent,
    "aiokafka": read_with_aiokafka,
    "kafka-python": read_with_kafka_python,
}


def committed_offset(servers: str, group: str, place: Place) -> int | None:
    """What the group has committed there, as anybody is told who insists on stable offsets."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        [found] = consumer.committed([TopicPartition(*place)], SECONDS)
        return found.offset if found.offset >= 0 else None
    finally:
        consumer.close()


__all__ = ["CLIENTS", "FENCED", "READERS", "Place", "Tool", "TransactionalClient"]
