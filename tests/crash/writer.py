"""A producer, as a process: python -m bradbury.tests.crash.writer KIND ...

Numbers at a steady rate, round robin over the partitions, several requests in flight. Every number
is written down before it is sent, and again when its fate is known. SIGTERM: it sends no more, and
waits for the fate of what it has sent.

The clients retry by themselves, without end (DELIVERY_SECONDS). One that gives up for good (a fatal
error) is replaced by a new one, a new session; what the old one had not been told is unknown.
"""

import argparse
import asyncio
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from bradbury.tests.crash.history import WRITER_VALUES, Lines

DELIVERY_SECONDS = 300
FLUSH_SECONDS = 120
TICK_SECONDS = 0.02
MOST_UNKNOWN = 20_000
"""Records whose fate is not known yet; then it waits."""

Fates = list[tuple[int, int, int]]
"""(partition, offset, value) of what was acknowledged."""


class ClientFailed(Exception):
    """It will not send anything any more."""


class Client(Protocol):
    def send(self, partition: int, value: int) -> None: ...

    def fates(self, seconds: float) -> tuple[Fates, list[tuple[int, str]]]:
        """What became known: acknowledged, and failed (value, error). Waits a little if nothing."""

    def close(self) -> None: ...


class ConfluentClient:
    def __init__(self, options: argparse.Namespace) -> None:
        from confluent_kafka import Producer

        self._topic = options.topic
        self._acked: Fates = []
        self._failed: list[tuple[int, str]] = []
        self._fatal: str | None = None
        acks = (
            {"enable.idempotence": True, "max.in.flight.requests.per.connection": 5}
            if options.acks == "all"
            else {"acks": options.acks}
        )
        self._producer = Producer(
            {
                "bootstrap.servers": options.servers,
                "client.id": options.name,
                "linger.ms": 5,
                "message.timeout.ms": DELIVERY_SECONDS * 1000,
                "error_cb": self._on_error,
                "log_level": 3,
                **acks,
            }
        )

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self._fatal = str(error)

    def send(self, partition: int, value: int) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.produce(
                self._topic, b"%d" % value, partition=partition, on_delivery=self._delivered
            )
        except KafkaException as error:
            raise ClientFailed(str(error)) from None

    def _delivered(self, error: Any, message: Any) -> None:
        value = int(message.value())
        if error is None:
            self._acked.append((message.partition(), message.offset(), value))
        else:
            self._failed.append((value, str(error)))

    def fates(self, seconds: float) -> tuple[Fates, list[tuple[int, str]]]:
        self._producer.poll(seconds)
        acked, failed = self._acked, self._failed
        self._acked, self._failed = [], []
        if self._fatal and not (acked or failed):
            raise ClientFailed(self._fatal)
        return acked, failed

    def close(self) -> None:
        self._producer.purge()


class _Gathering:
    """Fates that another thread, or a task, finds out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acked: Fates = []
        self._failed: list[tuple[int, str]] = []

    def acked(self, partition: int, offset: int, value: int) -> None:
        with self._lock:
            self._acked.append((partition, offset, value))

    def failed(self, value: int, error: BaseException) -> None:
        with self._lock:
            self._failed.append((value, f"{type(error).__name__}: {error}"[:200]))

    def take(self) -> tuple[Fates, list[tuple[int, str]]]:
        with self._lock:
            acked, failed = self._acked, self._failed
            self._acked, self._failed = [], []
        return acked, failed


class KafkaPythonClient:
    def __init__(self, options: argparse.Namespace) -> None:
        from kafka import KafkaProducer

        self._topic = options.topic
        self._gathering = _Gathering()
        is_idempotent = options.acks == "all"
        self._producer = KafkaProducer(
            bootstrap_servers=options.servers,
            client_id=options.name,
            acks="all" if is_idempotent else int(options.acks),
            enable_idempotence=is_idempotent,
            max_in_flight_requests_per_connection=5,
            linger_ms=5,
            delivery_timeout_ms=DELIVERY_SECONDS * 1000,
            max_block_ms=DELIVERY_SECONDS * 1000,
        )

    def send(self, partition: int, value: int) -> None:
        future = self._producer.send(self._topic, b"%d" % value, partition=partition)
        gathering = self._gathering
        future.add_callback(lambda found: gathering.acked(partition, found.offset, value))
        future.add_errback(lambda error: gathering.failed(value, error))

    def fates(self, seconds: float) -> tuple[Fates, list[tuple[int, str]]]:
        found = self._gathering.take()
        if not any(found):
            time.sleep(seconds)
        return found

    def close(self) -> None:
        self._producer.close(timeout=1)


class AiokafkaClient:
    def __init__(self, options: argparse.Namespace) -> None:
        from aiokafka import AIOKafkaProducer

        self._topic = options.topic
        self._gathering = _Gathering()
        self._loop = asyncio.new_event_loop()
        is_idempotent = options.acks == "all"

        async def start() -> Any:
            producer = AIOKafkaProducer(
                bootstrap_servers=options.servers,
                client_id=options.name,
                acks="all" if is_idempotent else int(options.acks),
                enable_idempotence=is_idempotent,
                linger_ms=5,
                request_timeout_ms=40_000,
                retry_backoff_ms=100,
            )
            await producer.start()
            return producer

        self._producer = self._loop.run_until_complete(start())

    def send(self, partition: int, value: int) -> None:
        asked = self._producer.send(self._topic, b"%d" % value, partition=partition)
        try:
            future = self._loop.run_until_complete(asked)
        except Exception as error:
            raise ClientFailed(f"{type(error).__name__}: {error}") from None
        gathering = self._gathering

        def known(done: Any) -> None:
            error = done.exception()
            if error is None:
                gathering.acked(partition, done.result().offset, value)
            else:
                gathering.failed(value, error)

        future.add_done_callback(known)

    def fates(self, seconds: float) -> tuple[Fates, list[tuple[int, str]]]:
        self._loop.run_until_complete(asyncio.sleep(seconds))
        return self._gathering.take()

    def close(self) -> None:
        async def stop() -> None:
            await asyncio.wait_for(self._producer.stop(), 5)

        try:
            self._loop.run_until_complete(stop())
        except Exception as error:  # what is not known by now is unknown
            print(f"stop: {error!r}")


KINDS: dict[str, Callable[[argparse.Namespace], Client]] = {
    "confluent": ConfluentClient,
    "kafka-python": KafkaPythonClient,
    "aiokafka": AiokafkaClient,
}


class Writer:
    def __init__(self, options: argparse.Namespace, lines: Lines) -> None:
        self._options = options
        self._lines = lines
        self._partitions = options.partitions
        self._next = options.number * WRITER_VALUES
        self._unknown: set[int] = set()
        self._client = KINDS[options.kind](options)

    def run(self, stopping: list[int]) -> None:
        begin = time.monotonic()
        first = self._next
        while not stopping:
            due = int((time.monotonic() - begin) * self._options.rate) - (self._next - first)
            count = min(due, MOST_UNKNOWN - len(self._unknown), self._options.rate)
            try:
                if count > 0:
                    self._send(count)
                self._note(TICK_SECONDS)
            except ClientFailed as error:
                self._start_again(str(error))
        deadline = time.monotonic() + FLUSH_SECONDS
        try:
            while self._unknown and time.monotonic() < deadline:
                self._note(TICK_SECONDS)
        except ClientFailed as error:
            self._start_again(str(error))
        self._lines.write(event="left", time=time.monotonic_ns(), unknown=len(self._unknown))
        self._client.close()

    def _send(self, count: int) -> None:
        first = self._next
        self._next += count
        self._lines.write(event="send", time=time.monotonic_ns(), first=first, count=count)
        self._unknown.update(range(first, first + count))
        for value in range(first, first + count):
            self._client.send(value % self._partitions, value)

    def _note(self, seconds: float) -> None:
        acked, failed = self._client.fates(seconds)
        now = time.monotonic_ns()
        if acked:
            self._lines.write(event="acked", time=now, records=acked)
            self._unknown.difference_update(value for _, _, value in acked)
        for error in {error for _, error in failed}:
            values = [value for value, text in failed if text == error]
            # No client tells whether one of its tries may have reached the log.
            self._lines.write(event="failed", time=now, values=values, error=error, certain=False)
            self._unknown.difference_update(values)

    def _start_again(self, error: str) -> None:
        self._lines.write(event="session", time=time.monotonic_ns(), error=error)
        self._client.close()
        self._unknown.clear()
        self._client = KINDS[self._options.kind](self._options)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(KINDS))
    for name in ("servers", "topic", "name", "history"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("number", "partitions", "rate"):
        parser.add_argument(f"--{name}", required=True, type=int)
    parser.add_argument("--acks", default="all")
    options = parser.parse_args()
    stopping: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        stopping.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the harness, which ends us
    Writer(options, Lines(Path(options.history))).run(stopping)


if __name__ == "__main__":
    main()
