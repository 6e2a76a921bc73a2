"""One member of a group, as a process: python -m bradbury.tests.groups_soak.member KIND ...

It subscribes, writes down every record it is handed, and only then commits it. SIGTERM makes it
leave the group properly; kill -9 is for the harness. What it sees goes to a file of JSON lines.

The four clients have one loop and a class each for what differs. A commit that is refused is written
down and left: whoever has the partition now reads those records again.
"""

import argparse
import asyncio
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from bradbury.tests.groups_soak.history import Lines

POLL_SECONDS = 0.3
SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
MAX_POLL_INTERVAL_MS = 15_000
MOST_RECORDS = 500
MOST_FAILURES = 30

Records = dict[int, list[tuple[int, int]]]
"""(offset, value) by partition."""


class Member(Protocol):
    def poll(self) -> Records: ...

    def commit(self, offsets: dict[int, int]) -> None: ...

    def close(self) -> None: ...


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """What kafka-python and aiokafka call by the same names."""
    return {
        "bootstrap_servers": options.servers,
        "client_id": options.name,
        "group_id": options.group,
        "group_instance_id": options.instance,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
        "metadata_max_age_ms": 10_000,
    }


class KafkaPythonMember:
    def __init__(self, options: argparse.Namespace, lines: Lines) -> None:
        from kafka import ConsumerRebalanceListener, KafkaConsumer
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        self._topic = options.topic
        self._consumer = consumer = KafkaConsumer(
            partition_assignment_strategy=[RangePartitionAssignor], **_settings(options)
        )

        class Listener(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked: Any) -> None:
                lines.event("revoked", partitions=[one.partition for one in revoked])

            def on_partitions_assigned(self, assigned: Any) -> None:
                generation = consumer._coordinator._generation
                _assigned(
                    lines,
                    generation.member_id,
                    generation.generation_id,
                    (one.partition for one in consumer.assignment()),
                )

        consumer.subscribe([options.topic], listener=Listener())

    def poll(self) -> Records:
        found = self._consumer.poll(timeout_ms=int(POLL_SECONDS * 1000), max_records=MOST_RECORDS)
        return {
            key.partition: [(one.offset, int(one.value)) for one in records]
            for key, records in found.items()
        }

    def commit(self, offsets: dict[int, int]) -> None:
        from kafka.structs import OffsetAndMetadata, TopicPartition

        self._consumer.commit(
            {
                TopicPartition(self._topic, partition): OffsetAndMetadata(offset, "", -1)
                for partition, offset in offsets.items()
            },
            timeout_ms=10_000,
        )

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class ConfluentMember:
    def __init__(self, options: argparse.Namespace, lines: Lines) -> None:
        from confluent_kafka import Consumer

        self._topic = options.topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.servers,
                "client.id": options.name,
                "group.id": options.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": options.strategy,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
                "topic.metadata.refresh.interval.ms": 10_000,
                **({"group.instance.id": options.instance} if options.instance else {}),
            }
        )
        is_cooperative = options.strategy == "cooperative-sticky"

        def on_assign(consumer: Any, partitions: list[Any]) -> None:
            now = {one.partition for one in partitions}
            if is_cooperative:
                now |= {one.partition for one in consumer.assignment()}
            _assigned(lines, consumer.memberid(), None, now)

        def on_revoke(_: Any, partitions: list[Any]) -> None:
            lines.event("revoked", partitions=[one.partition for one in partitions])

        def on_lost(_: Any, partitions: list[Any]) -> None:
            lines.event("lost", partitions=[one.partition for one in partitions])

        self._consumer.subscribe(
            [options.topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost
        )

    def poll(self) -> Records:
        found: Records = {}
        for message in self._consumer.consume(MOST_RECORDS, POLL_SECONDS):
            if message.error() is None:
                value = int(message.value())
                found.setdefault(message.partition(), []).append((message.offset(), value))
        return found

    def commit(self, offsets: dict[int, int]) -> None:
        from confluent_kafka import TopicPartition

        wanted = [TopicPartition(self._topic, *one) for one in offsets.items()]
        for one in self._consumer.commit(offsets=wanted, asynchronous=False):
            if one.error:
                raise RuntimeError(str(one.error))

    def close(self) -> None:
        self._consumer.close()


class AiokafkaMember:
    def __init__(self, options: argparse.Namespace, lines: Lines) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.abc import ConsumerRebalanceListener
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        self._loop = asyncio.new_event_loop()
        self._topic = options.topic
        member = self

        class Listener(ConsumerRebalanceListener):
            async def on_partitions_revoked(self, revoked: Any) -> None:
                lines.event("revoked", partitions=[one.partition for one in revoked])

            async def on_partitions_assigned(self, assigned: Any) -> None:
                coordinator = member._consumer._coordinator
                partitions = [one.partition for one in assigned]
                _assigned(lines, coordinator.member_id, coordinator.generation, partitions)

        async def start() -> Any:
            consumer = AIOKafkaConsumer(
                partition_assignment_strategy=[RangePartitionAssignor], **_settings(options)
            )
            self._consumer = consumer
            consumer.subscribe([options.topic], listener=Listener())
            await consumer.start()

        self._loop.run_until_complete(start())

    def poll(self) -> Records:
        get = self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000), max_records=MOST_RECORDS)
        return {
            key.partition: [(one.offset, int(one.value)) for one in records]
            for key, records in self._loop.run_until_complete(get).items()
        }

    def commit(self, offsets: dict[int, int]) -> None:
        from aiokafka import TopicPartition

        wanted = {TopicPartition(self._topic, number): one for number, one in offsets.items()}
        self._loop.run_until_complete(asyncio.wait_for(self._consumer.commit(wanted), 10))

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())


class BradburyMember:
    def __init__(self, options: argparse.Namespace, lines: Lines) -> None:
        import bradbury
        from bradbury.clients.group.rebalance_listener import RebalanceListener

        member = self

        class Listener(RebalanceListener):
            def on_partitions_revoked(self, partitions: Any) -> None:
                lines.event("revoked", partitions=[one.partition for one in partitions])

            def on_partitions_lost(self, partitions: Any) -> None:
                lines.event("lost", partitions=[one.partition for one in partitions])

            def on_partitions_assigned(self, partitions: Any) -> None:
                now = member._consumer.group_metadata()
                numbers = [one.partition for one in partitions]
                _assigned(lines, now.member_id, now.generation, numbers)

        self._topic = options.topic
        self._consumer = bradbury.Consumer(
            options.topic,
            bootstrap=options.servers,
            client_id=options.name,
            group=options.group,
            group_instance_id=options.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=options.strategy,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            max_poll_records=MOST_RECORDS,
            listener=Listener(),
        )

    def poll(self) -> Records:
        table = self._consumer.poll(int(POLL_SECONDS * 1000))
        found: Records = {}
        columns = (table.column(name).to_pylist() for name in ("partition", "offset", "value"))
        for partition, offset, value in zip(*columns, strict=True):
            found.setdefault(partition, []).append((offset, int(value)))
        return found

    def commit(self, offsets: dict[int, int]) -> None:
        self._consumer.commit({(self._topic, number): one for number, one in offsets.items()})

    def close(self) -> None:
        self._consumer.close()


class CarelessMember(ConfluentMember):
    """Forgets one record of every poll, and commits past it: what the checker is there to find."""

    def poll(self) -> Records:
        found = super().poll()
        return {number: records[1:] or records for number, records in found.items()}


KINDS = {
    "careless": CarelessMember,
    "kafka-python": KafkaPythonMember,
    "confluent": ConfluentMember,
    "aiokafka": AiokafkaMember,
    "bradbury": BradburyMember,
}


def _assigned(
    lines: Lines, member_id: str | None, generation: int | None, partitions: Iterable[int]
) -> None:
    lines.event(
        "assigned",
        member_id=member_id or "",
        generation=generation,
        partitions=sorted(partitions),
    )


def run(member: Member, lines: Lines, stopping: list[int]) -> None:
    """Until SIGTERM. An exception that comes again and again ends the member."""
    failures = 0
    while not stopping:
        try:
            records = member.poll()
        except Exception as error:
            lines.event("poll-failed", error=f"{type(error).__name__}: {error}"[:300])
            failures += 1
            if failures == MOST_FAILURES:
                raise
            time.sleep(POLL_SECONDS)
            continue
        failures = 0
        if not records:
            continue
        lines.event("records", records=records)
        offsets = {number: found[-1][0] + 1 for number, found in records.items()}
        try:
            member.commit(offsets)
        except Exception as error:
            lines.event("commit-failed", error=f"{type(error).__name__}: {error}"[:300])
        else:
            lines.event("committed", offsets=offsets)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(KINDS))
    for name in ("servers", "topic", "group", "name", "history"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--instance", default=None)
    parser.add_argument("--strategy", default="range")
    options = parser.parse_args()
    stopping: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        stopping.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the harness, which ends us
    lines = Lines(Path(options.history))
    lines.event("started", kind=options.kind)
    member = KINDS[options.kind](options, lines)
    try:
        run(member, lines, stopping)
    finally:
        member.close()
        lines.event("left")


if __name__ == "__main__":
    main()
