"""A link of the chain on our own clients: python -m bradbury.tests.crash.chains.own_links KIND ...

The sources and copiers of chain_links, with the same lines, by bradbury.Producer and Consumer.
"""

import argparse
import time
from typing import Any

import bradbury
from bradbury.protocol.errors import (
    ApplicationRecoverable,
    ConnectionFailed,
    KafkaError,
    OffsetOutOfRange,
    TransactionAbortable,
)

from .chain_history import ABORTED_COPY, Lines
from .chain_links import (
    CALL_SECONDS,
    HANGS_SECONDS,
    SESSION_MS,
    TRANSACTION_TIMEOUT_MS,
    TRIES,
    CannotGoOn,
    Watchdog,
    main,
    write_transactions,
)

TIMEOUT_MS = int(CALL_SECONDS * TRIES * 1_000)
"""Our calls repeat by themselves what librdkafka's leave to their caller."""


class OwnLink:
    """What it shares with the other: its transactions, and how they end."""

    def __init__(self, options: argparse.Namespace, lines: Lines) -> None:
        self.options = options
        self.lines = lines
        self.watchdog = Watchdog()
        self.producer = bradbury.Producer(
            options.servers,
            client_id=options.name,
            transactional_id=options.id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            max_block_ms=TIMEOUT_MS,
            linger_ms=2,
        )
        self.producer.init_transactions()
        self.note("ready")

    def note(self, event: str, **fields: Any) -> None:
        self.lines.write(event=event, time=time.monotonic_ns(), **fields)

    def end(self, number: int, *, aborts: bool, send: Any) -> bool:
        """One transaction. True if it was committed; raises CannotGoOn."""
        self.watchdog.deadline = time.monotonic() + HANGS_SECONDS
        self.note("begin", number=number)
        try:
            self.producer.begin()
            send()
            if aborts:
                self.producer.flush(CALL_SECONDS)
            else:
                self.producer.commit()
                self.note("committed", number=number)
                return True
        except (TransactionAbortable, KafkaError, ConnectionFailed) as failure:
            self.note("failed", number=number, error=str(failure)[:200])
            if isinstance(failure, ApplicationRecoverable):
                raise CannotGoOn(str(failure)) from None
        finally:
            self.watchdog.deadline = None
        try:
            self.producer.abort()
        except (KafkaError, ConnectionFailed) as failure:
            raise CannotGoOn(str(failure)) from None
        self.note("aborted", number=number)
        return False


def run_source(options: argparse.Namespace, lines: Lines, stopping: list[int]) -> None:
    link = OwnLink(options, lines)

    def produce(topic: str, value: str, key: str, partition: int) -> None:
        link.producer.send(topic, value, key, partition=partition)

    write_transactions(options, stopping, link.end, produce)


def run_copier(options: argparse.Namespace, lines: Lines, stopping: list[int]) -> None:
    taken, given = options.topics.split(",")
    link = OwnLink(options, lines)
    consumer = bradbury.Consumer(
        taken,
        bootstrap=options.servers,
        client_id=options.name,
        group=options.group,
        isolation_level=options.isolation,
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_poll_records=100,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
    )
    number = 0
    while not stopping:
        try:
            table = consumer.poll(timeout_ms=200)
        except OffsetOutOfRange as error:
            link.note("reset", error=f"{options.name}: {error}")
            raise CannotGoOn(str(error)) from None
        if not table.num_rows:
            continue
        number += 1
        aborts = number % 3 == 0
        rows = list(
            zip(
                *(table[name].to_pylist() for name in ("partition", "offset", "key", "value")),
                strict=True,
            )
        )
        first: dict[int, int] = {}
        after: dict[int, int] = {}
        for partition, offset, _, _ in rows:
            first.setdefault(partition, offset)
            after[partition] = offset + 1
        link.note("taken", number=number, first=first, after=after)

        def send(rows: Any = rows, after: Any = after, *, aborts: bool = aborts) -> None:
            mark = ABORTED_COPY.encode() if aborts else b""
            for partition, _, key, value in rows:
                link.producer.send(given, value + mark, key, partition=partition)
            offsets = {(taken, partition): offset for partition, offset in after.items()}
            link.producer.send_offsets(offsets, consumer.group_metadata())

        if not link.end(number, aborts=aborts, send=send):
            committed = {
                partition.partition: -1 if offset is None else offset
                for partition, offset in consumer.committed().items()
            }
            for partition, offset in committed.items():
                if offset >= 0:
                    consumer.seek((taken, partition), offset)
            link.note("rewound", committed=committed)
            if gone := [partition for partition, offset in committed.items() if offset < 0]:
                link.note("reset", error=f"{options.name}: no committed offset of {gone}")
                raise CannotGoOn("offsets of the group are gone")
    consumer.close()


if __name__ == "__main__":
    main({"source": run_source, "copier": run_copier})
