"""A link of the chain, as a process: python -m bradbury.tests.crash.chains.chain_links KIND ...

    source   transactions of one record in each partition; every fourth is aborted on purpose
    copier   a member of a group that moves records to the same partition of the next topic; every
             third transaction is aborted on purpose
    reader   read_committed of all topics from the beginning; goes on until it is told to end

All on librdkafka (Java's are in tests/compatibility/KafkaTransactionsProgram.java, our own in
own_links). What a source begins
is written down before it is sent, and its end after it was told. A process that cannot go on, as one
that is fenced, ends with FENCED; SIGTERM ends it well.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from bradbury.protocol.errors import ConnectionFailed, KafkaError as OwnError

from .chain_history import ABORTED_COPY, Lines, Part, write_part

FENCED = 3
CALL_SECONDS = 10.0
TRIES = 4
"""Then another process may do better: librdkafka's may never find the coordinator again."""
HANGS_SECONDS = 45.0
FIRST_OFFSET = 0
"""Where a partition begins, by its number, nothing is deleted: librdkafka (2.16) that asks for it gets
the answer twice where the first is outdated by a new leader or a seek, and half a second later goes
back to the beginning of what it reads long since (rd_kafka_toppar_handle_Offset).
"""
TRANSACTION_TIMEOUT_MS = 6_000
SESSION_MS = 6_000


class CannotGoOn(Exception):
    """Another process has this transactional id, or the client says that it is at its end."""


def producer_of(options: argparse.Namespace) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": options.servers,
            "client.id": options.name,
            "transactional.id": options.id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 2,
            "log_level": 3,
        }
    )
    _again(lambda: producer.init_transactions(CALL_SECONDS), tries=10)
    return producer


def _again(call: Any, tries: int = TRIES) -> None:
    """Until it is through: a call may be made again after an error that says so."""
    for _ in range(tries):
        try:
            call()
        except KafkaException as failure:
            error = failure.args[0]
            if error.retriable() and not error.fatal():
                continue
            raise
        else:
            return
    raise CannotGoOn("too many tries")


def _abort(producer: Producer) -> None:
    _again(lambda: producer.abort_transaction(CALL_SECONDS))


class Watchdog:
    """Ends the process when a transaction does not end: calls of librdkafka's may never return."""

    def __init__(self) -> None:
        self.deadline: float | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(1)
            deadline = self.deadline
            if deadline is not None and time.monotonic() > deadline:
                os._exit(FENCED)


class Link:
    """What it shares with the others: its transactions, and how they end."""

    def __init__(self, options: argparse.Namespace, lines: Lines) -> None:
        self.options = options
        self.lines = lines
        self.watchdog = Watchdog()
        self.producer = producer_of(options)
        self.note("ready")

    def note(self, event: str, **fields: Any) -> None:
        self.lines.write(event=event, time=time.monotonic_ns(), **fields)

    def end(self, number: int, *, aborts: bool, send: Any) -> bool:
        """One transaction. True if it was committed; raises CannotGoOn."""
        self.watchdog.deadline = time.monotonic() + HANGS_SECONDS
        try:
            return self._end(number, aborts=aborts, send=send)
        finally:
            self.watchdog.deadline = None

    def _end(self, number: int, *, aborts: bool, send: Any) -> bool:
        self.note("begin", number=number)
        try:
            self.producer.begin_transaction()
            send()
            if aborts:
                self.producer.flush(CALL_SECONDS)
            else:
                _again(lambda: self.producer.commit_transaction(CALL_SECONDS))
                self.note("committed", number=number)
                return True
        except (KafkaException, BufferError) as failure:
            error = failure.args[0]
            self.note("failed", number=number, error=str(failure)[:200])
            if isinstance(failure, KafkaException) and error.fatal():
                raise CannotGoOn(str(failure)) from None
        try:
            _abort(self.producer)
        except KafkaException as failure:
            raise CannotGoOn(str(failure)) from None
        self.note("aborted", number=number)
        return False


def parts_of(
    options: argparse.Namespace, number: int, *, aborts: bool
) -> Iterator[tuple[int, str]]:
    """A source's records of one transaction: partition and value. Their amounts add up to 0."""
    for index in range(options.partitions):
        amount = number if index % 2 else -number
        verdict = "a" if aborts else "c"
        part = Part(options.name, number, index, options.partitions, verdict, amount)
        yield index, write_part(part)


def write_transactions(
    options: argparse.Namespace,
    stopping: list[int],
    end: Callable[..., bool],
    produce: Callable[[str, str, str, int], Any],
) -> None:
    """One after the other. end: as Link.end. produce: topic, value, key, partition."""
    number = 0
    topic, _ = options.topics.split(",", 1)
    while not stopping:
        number += 1
        aborts = number % 4 == 0

        def send(number: int = number, *, aborts: bool = aborts) -> None:
            for index, value in parts_of(options, number, aborts=aborts):
                produce(topic, value, f"{index}", index)

        end(number, aborts=aborts, send=send)
        time.sleep(1 / options.rate)


def run_source(options: argparse.Namespace, lines: Lines, stopping: list[int]) -> None:
    link = Link(options, lines)
    write_transactions(options, stopping, link.end, link.producer.produce)


def run_copier(options: argparse.Namespace, lines: Lines, stopping: list[int]) -> None:
    taken, given = options.topics.split(",")
    link = Link(options, lines)
    consumer = Consumer(
        {
            "bootstrap.servers": options.servers,
            "client.id": options.name,
            "group.id": options.group,
            "isolation.level": options.isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 1_000,
            "log_level": 4,  # with it: positions that are reset, and why
        }
    )
    consumer.subscribe([taken])
    number = 0
    while not stopping:
        messages = _good(consumer.consume(100, 0.2), options.name, lines)
        if not messages:
            continue
        number += 1
        aborts = number % 3 == 0
        after = {one.partition(): one.offset() + 1 for one in messages}
        first = {one.partition(): one.offset() for one in reversed(messages)}
        link.note("taken", number=number, first=first, after=after)

        def send(messages: Any = messages, after: Any = after, *, aborts: bool = aborts) -> None:
            mark = ABORTED_COPY.encode() if aborts else b""
            for one in messages:
                link.producer.produce(given, one.value() + mark, one.key(), one.partition())
            offsets = [TopicPartition(taken, *each) for each in after.items()]
            if options.careless:  # for the proof that this is found
                consumer.commit(offsets=offsets, asynchronous=False)
                return
            membership = consumer.consumer_group_metadata()
            _again(
                lambda: link.producer.send_offsets_to_transaction(offsets, membership, CALL_SECONDS)
            )

        if not link.end(number, aborts=aborts, send=send):
            committed = rewind(consumer)
            link.note("rewound", committed=committed)
            if gone := [partition for partition, offset in committed.items() if offset < 0]:
                link.note("reset", error=f"{options.name}: no committed offset of {gone}")
                raise CannotGoOn("offsets of the group are gone")
    consumer.close()


def was_reset(name: str, message: Message) -> list[str]:
    """A line if a client was told that what it reads is not there, which never happens here."""
    error = message.error()
    if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET:
        return []
    return [f"{name}, {message.topic()}/{message.partition()}: {error.str()}"]


def _good(messages: list[Message], name: str, lines: Lines) -> list[Message]:
    """Those that are records."""
    for one in messages:
        for text in was_reset(name, one):
            lines.write(event="reset", time=time.monotonic_ns(), error=text)
    return [one for one in messages if one.error() is None]


def rewind(consumer: Consumer) -> dict[int, int]:
    """Back to what the group has committed: somebody else may have gone on from there meanwhile.

    Returns that, by partition.
    """
    found: dict[int, int] = {}
    assigned = consumer.assignment()
    if not assigned:
        return found
    try:
        for place in consumer.committed(assigned, CALL_SECONDS):
            if place.error is not None:
                raise CannotGoOn(str(place.error))
            if place.offset >= 0:
                consumer.seek(TopicPartition(place.topic, place.partition, place.offset))
            found[place.partition] = place.offset
    except KafkaException as error:
        raise CannotGoOn(str(error)) from None
    return found


def run_reader(options: argparse.Namespace, lines: Lines, stopping: list[int]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": options.servers,
            "client.id": options.name,
            "group.id": options.name,
            "isolation.level": options.isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 3,
        }
    )
    consumer.assign(
        [
            TopicPartition(topic, partition, FIRST_OFFSET)
            for topic in options.topics.split(",")
            for partition in range(options.partitions)
        ]
    )
    while not stopping:
        records: dict[str, list[tuple[int, str]]] = {}
        for one in _good(consumer.consume(500, 0.3), options.name, lines):
            place = f"{one.topic()}/{one.partition()}"
            records.setdefault(place, []).append((one.offset(), one.value().decode()))
        if records:
            lines.write(event="records", time=time.monotonic_ns(), records=records)
    consumer.close()


LINKS = {"source": run_source, "copier": run_copier, "reader": run_reader}


def main(links: Mapping[str, Callable[[argparse.Namespace, Lines, list[int]], None]]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(links))
    for name in ("servers", "topics", "name", "history"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--id", help="the transactional id")
    parser.add_argument("--group")
    parser.add_argument("--partitions", type=int, default=0)
    parser.add_argument("--rate", type=float, default=20, help="transactions a second")
    parser.add_argument("--isolation", default="read_committed")
    parser.add_argument("--careless", action="store_true", help="offsets outside of transactions")
    options = parser.parse_args()
    stopping: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        stopping.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the harness, which ends us
    try:
        links[options.kind](options, Lines(Path(options.history)), stopping)
    except (CannotGoOn, KafkaException, OwnError, ConnectionFailed) as error:
        print(error, file=sys.stderr)
        sys.exit(FENCED)


if __name__ == "__main__":
    main(LINKS)
