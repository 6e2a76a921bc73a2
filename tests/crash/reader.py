"""A consumer without a group, as a process: python -m bradbury.tests.crash.reader KIND ...

It assigns itself all partitions from their beginnings and writes down all it is handed. With --until
it ends when it has passed those offsets; SIGTERM ends it at any time.
"""

import argparse
import asyncio
import json
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

from bradbury.tests.crash.history import Lines
from bradbury.tests.groups_soak.member import (
    POLL_SECONDS,
    AiokafkaMember,
    ConfluentMember,
    KafkaPythonMember,
)


class ConfluentReader(ConfluentMember):
    def __init__(self, options: argparse.Namespace) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        self._topic = options.topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.servers,
                "client.id": options.name,
                "group.id": options.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 3,
            }
        )
        self._consumer.assign(
            [
                TopicPartition(options.topic, number, OFFSET_BEGINNING)
                for number in range(options.partitions)
            ]
        )


class KafkaPythonReader(KafkaPythonMember):
    def __init__(self, options: argparse.Namespace) -> None:
        from kafka import KafkaConsumer, TopicPartition

        self._topic = options.topic
        self._consumer = KafkaConsumer(
            bootstrap_servers=options.servers,
            client_id=options.name,
            group_id=None,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        partitions = [TopicPartition(options.topic, n) for n in range(options.partitions)]
        self._consumer.assign(partitions)
        self._consumer.seek_to_beginning(*partitions)

    def close(self) -> None:
        self._consumer.close()


class AiokafkaReader(AiokafkaMember):
    def __init__(self, options: argparse.Namespace) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        self._topic = options.topic
        self._loop = asyncio.new_event_loop()

        async def start() -> Any:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=options.servers,
                client_id=options.name,
                group_id=None,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            await consumer.start()
            partitions = [TopicPartition(options.topic, n) for n in range(options.partitions)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            return consumer

        self._consumer = self._loop.run_until_complete(start())


KINDS = {
    "confluent": ConfluentReader,
    "kafka-python": KafkaPythonReader,
    "aiokafka": AiokafkaReader,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(KINDS))
    for name in ("servers", "topic", "name", "history"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--partitions", required=True, type=int)
    parser.add_argument("--until", type=json.loads, default=None)
    options = parser.parse_args()
    stopping: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        stopping.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the harness, which ends us
    lines = Lines(Path(options.history))
    wanted = {int(number): end for number, end in (options.until or {}).items() if end}
    reader = KINDS[options.kind](options)
    lines.write(event="assigned", time=time.monotonic_ns())
    while not stopping and (options.until is None or wanted):
        try:
            records = reader.poll()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:300]
            lines.write(event="poll-failed", time=time.monotonic_ns(), error=text)
            time.sleep(POLL_SECONDS)
            continue
        if records:
            lines.write(event="records", time=time.monotonic_ns(), records=records)
        for number, found in records.items():
            if number in wanted and found[-1][0] + 1 >= wanted[number]:
                del wanted[number]
    lines.write(event="left", time=time.monotonic_ns())
    reader.close()


if __name__ == "__main__":
    main()
