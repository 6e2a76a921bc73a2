"""Transactions of Bradbury and of Apache Kafka 4.1.1, side by side on this machine. Run by hand:

    python -m bradbury.benchmarks.transactions [--quick] [--rounds 5] [--ids 1000]
        [--json figures.json]

Both are started and ended here and take turns, as in versus_kafka; a ratio is the median of the
ratios of the rounds. The producer is librdkafka by its batch calls; records have 100 B, and go to 8
partitions:

    exactly once       transactions of 100 ms, one after another
    exactly once by 2  the same by two producers at once
    idempotent         the same producer without transactions
    commit             the time of commit_transaction for one record in each of the 8 partitions,
                       when the disk has nothing else to write
    commit under load  the same right after the throughput, which the disk still writes back
    concurrent ids     so many open transactions at once, one record each: raw requests by one
                       client, and what the broker's memory grows by
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.table import Table

from bradbury.cli.terminal.output import table_console
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from bradbury.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from bradbury.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.records import encode_records
from bradbury.tests.support.wire.raw_client import RawClient

from .support.contestants import Arena, Bradbury, Contestant, Kafka, alone
from .support.librdkafka import DO_NOT_COPY, PRODUCER, Client, Message
from .support.measures import BIG_BATCHES, Goal, new_topic

PARTITIONS = 8
SIZE = 100
BLOCK = 1_000
TRANSACTION_SECONDS = 0.1
WARM_UP_ROUNDS = 1
CALL_MS = 60_000
GOALS = {
    "exactly once, records/s": Goal(">=", 1.2),
    "exactly once by 2, records/s": Goal(">=", 1.2),
    "commit p50, ms": Goal("<=", 1.0),
    "commit p99, ms": Goal("<=", 1.0),
}
OWN_GOAL = Goal(">=", 0.85)
"""Goal for Bradbury's own ratio of exactly once to idempotent."""


class TransactionsClient(Client):
    """librdkafka's transactional producer; without a transactional id, its idempotent one."""

    def __init__(self, servers: str, topic: str, transactional_id: str | None) -> None:
        settings = {**BIG_BATCHES, "acks": "all", "linger.ms": "5", "enable.idempotence": "true"}
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        super().__init__(PRODUCER, servers, topic, settings)
        self._payload = ctypes.create_string_buffer(b"x" * SIZE, SIZE)
        self._block = (Message * BLOCK)(
            *[Message(payload=ctypes.addressof(self._payload), len=SIZE) for _ in range(BLOCK)]
        )
        self._one = (Message * 1)(Message(payload=ctypes.addressof(self._payload), len=SIZE))
        for name in ("init_transactions", "begin_transaction", "commit_transaction"):
            getattr(self._library, f"rd_kafka_{name}").restype = ctypes.c_void_p
        self._library.rd_kafka_error_string.restype = ctypes.c_char_p
        if transactional_id is not None:
            self._check(self._library.rd_kafka_init_transactions(self._handle, CALL_MS))

    def _check(self, error: int | None) -> None:
        if error:
            text = self._library.rd_kafka_error_string(ctypes.c_void_p(error))
            raise RuntimeError(text.decode())

    def begin(self) -> None:
        self._check(self._library.rd_kafka_begin_transaction(self._handle))

    def commit(self) -> None:
        self._check(self._library.rd_kafka_commit_transaction(self._handle, CALL_MS))

    def put(self, partition: int, messages: Any) -> int:
        """Enqueue messages; returns how many were accepted: none if the queue is full."""
        taken: int = self._library.rd_kafka_produce_batch(
            self._topic, partition, DO_NOT_COPY, messages, len(messages)
        )
        if taken < len(messages):
            self._library.rd_kafka_poll(self._handle, 1)
        return taken

    def put_for(self, seconds: float, number: int = 0) -> int:
        """Send records for this many seconds, partition by partition; returns their number."""
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            count += self.put(number % PARTITIONS, self._block)
            number += 1
        return count

    def put_one_each(self) -> None:
        for partition in range(PARTITIONS):
            assert self.put(partition, self._one) == 1

    def wait(self) -> None:
        while self._library.rd_kafka_outq_len(self._handle):
            self._library.rd_kafka_poll(self._handle, 1)


def exactly_once(broker: Contestant, topic: str, seconds: float) -> dict[str, float]:
    return {"exactly once, records/s": _transactions(broker, topic, seconds)}


def exactly_once_by_two(broker: Contestant, topic: str, seconds: float) -> dict[str, float]:
    with ThreadPoolExecutor(2) as pool:
        rates = pool.map(lambda number: _transactions(broker, topic, seconds, number), (1, 2))
        return {"exactly once by 2, records/s": sum(rates)}


def _transactions(broker: Contestant, topic: str, seconds: float, number: int = 0) -> float:
    """Records a second of one producer."""
    client = TransactionsClient(broker.bootstrap_servers, topic, f"{topic}-id-{number}")
    try:
        count = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            client.begin()
            count += client.put_for(TRANSACTION_SECONDS, number)
            client.commit()
        return count / (time.perf_counter() - began)
    finally:
        client.close()


def idempotent(broker: Contestant, topic: str, seconds: float) -> dict[str, float]:
    client = TransactionsClient(broker.bootstrap_servers, topic, None)
    try:
        began = time.perf_counter()
        count = client.put_for(seconds)
        client.wait()
        return {"idempotent, records/s": count / (time.perf_counter() - began)}
    finally:
        client.close()


def commit_latency(
    broker: Contestant, topic: str, seconds: float, name: str = "commit"
) -> dict[str, float]:
    client = TransactionsClient(broker.bootstrap_servers, topic, f"{topic}-id")
    try:
        times = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            client.begin()
            client.put_one_each()
            began = time.perf_counter()
            client.commit()
            times.append((time.perf_counter() - began) * 1_000)
    finally:
        client.close()
    times = sorted(times[len(times) // 10 :])  # the first ones find the coordinator
    return {
        f"{name} p50, ms": times[len(times) // 2],
        f"{name} p99, ms": times[min(len(times) - 1, len(times) * 99 // 100)],
    }


def concurrent_ids(broker: Contestant, topic: str, count: int) -> dict[str, float]:
    """Begin `count` transactions, so that all are open, then commit all."""
    before = broker.rss_bytes()
    began = time.perf_counter()
    with RawClient(broker.bootstrap_servers) as client:
        ids = [f"{topic}-{number}" for number in range(count)]
        _find_coordinators(client, ids)
        given = [_begin(client, topic, one, n % PARTITIONS) for n, one in enumerate(ids)]
        grown = broker.rss_bytes() - before
        for one, (producer_id, epoch) in zip(ids, given, strict=True):
            request = EndTxnRequest(
                transactional_id=one,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=True,
            )
            assert _again(client, request, EndTxnResponse, 3).error_code == 0
    return {
        f"{count} concurrent ids, s": time.perf_counter() - began,
        f"{count} concurrent ids, MB": grown / 1e6,
    }


RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


def _again(client: RawClient, request: Any, cls: Any, version: int) -> Any:
    while (answer := client.call(request, cls, version)).error_code in RETRIABLE:
        time.sleep(0.01)
    return answer


def _find_coordinators(client: RawClient, ids: list[str]) -> None:
    while True:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=ids)
        answer = client.call(request, FindCoordinatorResponse, 4)
        codes = {one.error_code for one in answer.coordinators}
        if codes == {0}:
            return
        assert codes <= RETRIABLE | {0}, codes
        time.sleep(0.05)


def _begin(client: RawClient, topic: str, one: str, partition: int) -> tuple[int, int]:
    """Begin a transaction with one record, by the protocol before KIP-890's second part."""
    asked = InitProducerIdRequest(transactional_id=one, transaction_timeout_ms=60_000)
    given = _again(client, asked, InitProducerIdResponse, 4)
    assert given.error_code == 0, given
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=one,
        v3_and_below_producer_id=given.producer_id,
        v3_and_below_producer_epoch=given.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
    )
    answer = client.call(added, AddPartitionsToTxnResponse, 3)
    [result] = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert result.partition_error_code == 0, answer
    batch = encode_records(
        [(int(time.time() * 1_000), None, b"x" * SIZE, ())],
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        transactional_id=one,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    sent = client.call(request, ProduceResponse, 9)
    assert sent.responses[0].partition_responses[0].error_code == 0, sent
    return given.producer_id, given.producer_epoch


def compare(brokers: list[Contestant], rounds: int, seconds: float, ids: int) -> Any:
    """Pairs (Bradbury, Kafka), one for each round after the warm-up, by name of the measure."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds + WARM_UP_ROUNDS):
        found: dict[str, dict[str, float]] = {}
        for broker in brokers if number % 2 else reversed(brokers):
            with alone(broker, brokers):
                topic = new_topic(broker, f"transactions-{number}", PARTITIONS)
                os.sync()  # what the other one has left the disk to write
                found[broker.name] = {
                    **commit_latency(broker, topic, seconds),
                    **exactly_once(broker, topic, seconds),
                    **exactly_once_by_two(broker, topic, seconds),
                    **idempotent(broker, topic, seconds),
                    **commit_latency(broker, topic, seconds, "commit under load"),
                    **concurrent_ids(broker, topic, ids),
                }
        if number >= WARM_UP_ROUNDS:
            for name, value in found["Bradbury"].items():
                pairs.setdefault(name, []).append((value, found["Kafka"][name]))
    return pairs


def figures_of(pairs: dict[str, list[tuple[float, float]]]) -> dict[str, dict[str, Any]]:
    figures: dict[str, dict[str, Any]] = {}
    for name, each in pairs.items():
        ratio = statistics.median(ours / theirs if theirs else 0.0 for ours, theirs in each)
        goal = GOALS.get(name)
        figures[name] = {
            "bradbury": statistics.median(ours for ours, _ in each),
            "kafka": statistics.median(theirs for _, theirs in each),
            "ratio": ratio,
            "goal": None if goal is None else str(goal),
            "met": None if goal is None else goal.is_met(ratio),
        }
    both = [pairs["exactly once, records/s"], pairs["idempotent, records/s"]]
    shares = [
        [once[side] / plain[side] for once, plain in zip(*both, strict=True)] for side in (0, 1)
    ]
    ours, theirs = (statistics.median(side) for side in shares)
    figures["exactly once / idempotent"] = {
        "bradbury": ours,
        "kafka": theirs,
        "ratio": ours / theirs,
        "goal": f"ours {OWN_GOAL}",
        "met": OWN_GOAL.is_met(ours),
    }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="run two short rounds")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--ids", type=int, default=1_000)
    parser.add_argument("--dir", help="directory for the data of both; by default a temporary one")
    parser.add_argument("--json", type=Path, help="file to write all figures to")
    options = parser.parse_args()
    rounds = options.rounds or (2 if options.quick else 5)
    seconds = 2.0 if options.quick else 6.0
    with Arena(options.dir) as folder, Bradbury(folder) as ours, Kafka(folder) as theirs:
        figures = figures_of(compare([ours, theirs], rounds, seconds, options.ids))
    table = Table("measure", "Bradbury", "Kafka", "ratio", "goal", "", title="median of the rounds")
    for name, one in figures.items():
        met = one["met"]
        verdict = "" if met is None else "met" if met else "missed"
        row = (f"{one[side]:,.2f}" for side in ("bradbury", "kafka", "ratio"))
        table.add_row(name, *row, one["goal"] or "", verdict)
    table_console().print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
