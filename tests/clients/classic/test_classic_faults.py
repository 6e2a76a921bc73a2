"""What do the clients of 0.7 do when brokers answer nonsense, hang up, or are killed?"""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import bradbury
from bradbury.clients.classic import (
    EARLIEST_TIME,
    ConsumerConnector,
    ConsumerTimeoutException,
    DefaultEventHandler,
    Encoder,
    FetchRequest,
    InvalidMessageSize,
    Producer,
    ProducerConfig,
    ProducerData,
    QueueClosed,
    QueueItem,
    SimpleConsumer,
    SyncProducer,
)
from bradbury.protocol.columns.columns import encode_batch
from bradbury.protocol.errors import (
    ConnectionFailed,
    KafkaError,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from bradbury.protocol.messages import fetch as wire
from bradbury.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from bradbury.protocol.records.record_batch import stamp
from bradbury.tests.support.wire.scripted_broker import (
    CUT_OFF,
    GARBAGE,
    HANG_UP,
    HUGE,
    SILENCE,
    WRONG_CORRELATION_ID,
    Fault,
    ScriptedBroker,
)

SECONDS = 60.0


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({"t": 1}) as scripted:
        yield scripted


@pytest.fixture
def consumer(broker: ScriptedBroker) -> Iterator[SimpleConsumer]:
    with SimpleConsumer("127.0.0.1", broker.port, 2_000) as simple:
        yield simple


def batch(base_offset: int, count: int, size: int = 10) -> bytes:
    rows = pa.array([b"%0*d" % (size, base_offset + row) for row in range(count)])
    made = bytearray(encode_batch(None, rows, 0))
    stamp(made, base_offset=base_offset, leader_epoch=1)
    return bytes(made)


def answer(
    *records: bytes, code: int = 0, high_watermark: int = 100, topic: str = "t"
) -> wire.FetchResponse:
    return wire.FetchResponse(
        responses=[
            wire.FetchableTopicResponse(
                topic=topic,
                partitions=[
                    wire.PartitionData(number, code, high_watermark, high_watermark, 0, records=one)
                    for number, one in enumerate(records)
                ],
            )
        ]
    )


def test_a_message_that_a_broker_cuts_off_at_the_end_is_left_for_the_next_fetch(
    broker: ScriptedBroker, consumer: SimpleConsumer
) -> None:
    broker.on(wire.FetchRequest, answer(batch(0, 3) + batch(3, 4)[:-1]), answer(batch(3, 4)))
    first = consumer.fetch(FetchRequest("t", 0, 0, 1000))
    assert first.is_cut
    assert [offset for _, offset in first] == [1, 2, 3]
    second = consumer.fetch(FetchRequest("t", 0, first.next_offset, 1000))
    assert [offset for _, offset in second] == [4, 5, 6, 7]
    assert not second.is_cut


def test_a_first_message_that_a_broker_cuts_off_says_how_much_is_needed(
    broker: ScriptedBroker, consumer: SimpleConsumer
) -> None:
    whole = batch(0, 30)
    broker.on(wire.FetchRequest, answer(whole[:100]), answer(whole[:5]))
    with pytest.raises(InvalidMessageSize, match=f"take {len(whole)} bytes, and max_size is 100"):
        consumer.fetch(FetchRequest("t", 0, 0, 100))
    with pytest.raises(InvalidMessageSize, match="take more than 5 bytes"):
        consumer.fetch(FetchRequest("t", 0, 0, 5))


def test_a_multifetch_is_one_request(broker: ScriptedBroker, consumer: SimpleConsumer) -> None:
    broker.on(wire.FetchRequest, answer(batch(0, 3), batch(0, 4)))
    found = consumer.multifetch([FetchRequest("t", 0, 0, 1000), FetchRequest("t", 1, 0, 1000)])
    assert [len(list(one)) for one in found] == [3, 4]
    [request] = broker.wait_for(wire.FetchRequest)
    assert [part.partition for part in request.topics[0].partitions] == [0, 1]


def test_a_part_for_which_the_answer_had_no_room_is_asked_for_alone(
    broker: ScriptedBroker, consumer: SimpleConsumer
) -> None:
    broker.on(wire.FetchRequest, answer(batch(0, 3), b""), answer(b"", batch(0, 4)))
    found = consumer.multifetch([FetchRequest("t", 0, 0, 1000), FetchRequest("t", 1, 0, 1000)])
    assert [len(list(one)) for one in found] == [3, 4]
    requests = broker.wait_for(wire.FetchRequest, 2)
    assert [part.partition for part in requests[1].topics[0].partitions] == [1]


@pytest.mark.parametrize("fault", [HANG_UP, CUT_OFF, GARBAGE, WRONG_CORRELATION_ID, HUGE])
def test_a_broken_answer_is_asked_for_once_more_and_then_an_error(
    broker: ScriptedBroker, consumer: SimpleConsumer, fault: Fault
) -> None:
    broker.on(wire.FetchRequest, fault, answer(batch(0, 3)))
    assert len(list(consumer.fetch(FetchRequest("t", 0, 0, 1000)))) == 3
    broker.on(wire.FetchRequest, fault)
    with pytest.raises(ConnectionFailed):
        consumer.fetch(FetchRequest("t", 0, 0, 1000))
    broker.on(wire.FetchRequest, answer(batch(0, 3)))
    assert len(list(consumer.fetch(FetchRequest("t", 0, 0, 1000)))) == 3


@pytest.mark.slow
def test_no_answer_is_an_error_after_so_timeout(
    broker: ScriptedBroker, consumer: SimpleConsumer
) -> None:
    broker.on(wire.FetchRequest, SILENCE)
    began = time.monotonic()
    with pytest.raises(ConnectionFailed, match="no answer to Fetch in time"):
        consumer.fetch(FetchRequest("t", 0, 0, 1000))
    assert 2 <= time.monotonic() - began < 20


def test_an_answer_about_something_else_is_an_error(
    broker: ScriptedBroker, consumer: SimpleConsumer
) -> None:
    broker.on(wire.FetchRequest, answer(batch(0, 1), topic="other"), wire.FetchResponse())
    for _ in range(2):
        with pytest.raises(KafkaError, match="t-0 at .*: it is missing in the answer"):
            consumer.fetch(FetchRequest("t", 0, 0, 1000))
    broker.on(ListOffsetsRequest, ListOffsetsResponse())
    with pytest.raises(KafkaError, match="t-0 at .*: it is missing in the answer"):
        consumer.get_offsets_before("t", 0, EARLIEST_TIME, 1)


def test_what_a_broker_refuses_has_its_name(
    broker: ScriptedBroker, consumer: SimpleConsumer
) -> None:
    broker.on(wire.FetchRequest, wire.FetchResponse(error_code=29), answer(b"", code=29))
    for _ in range(2):
        with pytest.raises(TopicAuthorizationFailed):
            consumer.fetch(FetchRequest("t", 0, 0, 1000))


def test_a_broker_that_no_longer_knows_the_question_is_named(
    broker: ScriptedBroker, consumer: SimpleConsumer
) -> None:
    broker.versions[ListOffsetsRequest] = (1, 11)  # Apache Kafka 4
    with pytest.raises(UnsupportedVersion, match="speaks versions 1 to 11"):
        consumer.get_offsets_before("t", 0, EARLIEST_TIME, 1)


# --- killed --------------------------------------------------------------------------------------

SERVER = """
    import sys, bradbury
    with bradbury.local(sys.argv[1], port=int(sys.argv[2])) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        sys.stdin.read()
"""


def start_broker(data_dir: Path, port: int) -> "subprocess.Popen[str]":
    """Ready when it returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVER), str(data_dir), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


class Failures(DefaultEventHandler):
    """Sends, and notes why batches failed."""

    def __init__(self) -> None:
        self.reasons: list[type[Exception]] = []

    def handle(
        self, events: Sequence[QueueItem[bytes]], producer: SyncProducer, encoder: Encoder[bytes]
    ) -> None:
        try:
            super().handle(events, producer, encoder)
        except Exception as error:
            self.reasons.append(type(error))
            raise


def test_a_close_waits_for_two_batches_at_most_that_no_broker_takes() -> None:
    failures = Failures()
    with bradbury.local() as cluster:
        with bradbury.Admin(cluster.bootstrap_servers) as admin:
            admin.create_topic("t")
        config = ProducerConfig(
            bootstrap=cluster.bootstrap_servers,
            producer_type="async",
            batch_size=1,
            queue_time_ms=0,
            socket_timeout_ms=100,
            delivery_timeout_ms=300,
        )
        producer = Producer[str, bytes](config, event_handler=failures)
        producer.send(ProducerData("t", None, b"so that it knows the topic"))
        with bradbury.Consumer(
            "t", bootstrap=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            assert consumer.poll().num_rows == 1
    producer.send(ProducerData("t", None, [b"%d" % number for number in range(10)]))
    producer.close()
    timed_out = failures.reasons.count(RequestTimedOut)
    assert 1 <= timed_out <= 2
    assert failures.reasons[timed_out:] == [QueueClosed] * (10 - timed_out)
    assert producer.failed_count == 10


@pytest.mark.slow
def test_a_broker_that_is_killed_and_comes_back_costs_neither_messages_nor_order(
    tmp_path: Path,
) -> None:
    """A queue in front, a stream behind, and kill -9 twice in between."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    servers = f"127.0.0.1:{port}"
    process = start_broker(tmp_path, port)
    found: list[int] = []
    failures: list[Exception] = []
    try:
        with bradbury.Admin(servers) as admin:
            admin.create_topic("t")
        connector = ConsumerConnector.create(
            {
                "groupid": "g",
                "bootstrap.servers": servers,
                "consumer.timeout.ms": 200,
                "heartbeat.interval.ms": 100,
            }
        )
        [stream] = connector.create_message_streams({"t": 1})["t"]

        def read() -> None:
            deadline = time.monotonic() + SECONDS
            while len(set(found)) < 3000 and time.monotonic() < deadline:
                try:
                    found.append(int(next(stream).message.payload or b""))
                except ConsumerTimeoutException:
                    pass
                except Exception as error:
                    failures.append(error)

        reading = threading.Thread(target=read)
        reading.start()
        producer = Producer[str, bytes](
            {
                "broker.list": servers,
                "producer.type": "async",
                "queue.time": 10,
                "batch.size": 50,
                "queue.enqueueTimeout.ms": -1,
            }
        )
        for number in range(3000):
            producer.send(ProducerData("t", None, b"%d" % number))
            if number in (1000, 2000):
                process.send_signal(signal.SIGKILL)
                process.wait()
                process = start_broker(tmp_path, port)
        producer.close(SECONDS)
        reading.join(SECONDS)
        connector.shutdown()
        assert producer.failed_count == 0
        assert failures == []
        assert set(found) == set(range(3000))
        firsts = list(dict.fromkeys(found))  # a rebalance may bring some again
        assert firsts == sorted(firsts)
    finally:
        process.kill()
        process.wait()
