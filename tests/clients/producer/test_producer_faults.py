"""What reaches the log when connections break, answers get lost and brokers misbehave?"""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import bradbury
from bradbury.clients.admin.admin import Admin
from bradbury.protocol.errors import (
    ConnectionFailed,
    RecordListTooLarge,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from bradbury.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.metadata import MetadataRequest
from bradbury.protocol.messages.produce import ProduceRequest, ProduceResponse
from bradbury.protocol.records.record_batch import read_header
from bradbury.tests.support.wire.fault_proxy import FaultProxy
from bradbury.tests.support.wire.scripted_broker import (
    CUT_OFF,
    GARBAGE,
    HANG_UP,
    HUGE,
    SILENCE,
    WRONG_CORRELATION_ID,
    AtVersion,
    Fault,
    ScriptedBroker,
    answer,
)

NewTopic = Callable[..., str]
PRODUCE, INIT_PRODUCER_ID = 0, 22


def stamp(request: ProduceRequest) -> tuple[int, int, int]:
    """(producer id, epoch, sequence) of the request's first batch."""
    records = request.topic_data[0].partition_data[0].records
    assert records is not None
    header = read_header(records)
    return header.producer_id, header.producer_epoch, header.base_sequence


def values_in(bootstrap: str, topic: str) -> list[bytes]:
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        end = sum(consumer.end_offsets().values())
        found: list[bytes] = []
        while len(found) < end:
            found += consumer.poll(5000).column("value").to_pylist()
    return found


@pytest.mark.parametrize("lost", [1, 4])
def test_a_lost_answer_doubles_nothing(bootstrap: str, new_topic: NewTopic, lost: int) -> None:
    topic = new_topic()
    with FaultProxy(bootstrap) as proxy:
        with bradbury.Producer(proxy.address, linger_ms=0, retry_backoff_ms=10) as producer:
            producer.send(topic, b"0").result(60)
            proxy.lose_answer(PRODUCE, lost)
            futures = [producer.send_batch(topic, [b"%d" % n] * 3) for n in range(1, 40)]
            ranges = [future.result(60).ranges[0] for future in futures]
        assert proxy.lost == lost
    assert [one.start for one in ranges] == list(range(1, 118, 3))
    assert values_in(bootstrap, topic) == [b"0"] + [
        b"%d" % n for n in range(1, 40) for _ in range(3)
    ]


def test_order_survives_lost_answers_with_many_requests_in_flight(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    with FaultProxy(bootstrap) as proxy:
        with bradbury.Producer(
            proxy.address, linger_ms=1, batch_size=500, retry_backoff_ms=1
        ) as producer:
            for number in range(2000):
                if number % 400 == 200:
                    proxy.lose_answer(PRODUCE)
                producer.send(topic, b"%05d" % number, partition=number % 2)
        assert proxy.lost >= 1
    values = values_in(bootstrap, topic)
    assert sorted(values) == [b"%05d" % number for number in range(2000)]
    for parity in (0, 1):
        mine = [value for value in values if int(value) % 2 == parity]
        assert mine == sorted(mine)


def test_a_batch_in_doubt_is_not_doubled_when_another_partition_refuses_one(
    bootstrap: str, new_topic: NewTopic
) -> None:
    """librdkafka raises its epoch for all partitions then: see tests/compatibility."""
    topic = new_topic(2, segment_bytes="1048576", max_message_bytes="4000000")
    with FaultProxy(bootstrap) as proxy:
        with bradbury.Producer(
            proxy.address, retry_backoff_ms=1000, batch_size=3_000_000, max_request_size=4_000_000
        ) as producer:
            producer.send(topic, b"first", partition=0).result(60)
            proxy.lose_answer(PRODUCE)
            in_doubt = producer.send(topic, b"in doubt", partition=0)
            while not proxy.lost:
                threading.Event().wait(0.01)
            refused = producer.send(topic, bytes(1_500_000), partition=1)
            with pytest.raises(RecordListTooLarge):
                refused.result(30)
            assert in_doubt.result(30).offset == 1
            assert producer.send(topic, b"later", partition=0).result(30).offset == 2
    assert values_in(bootstrap, topic) == [b"first", b"in doubt", b"later"]


def test_what_is_larger_than_a_segment_goes_in_parts(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(segment_bytes="1048576", max_message_bytes="4000000")
    values = [b"%04d" % number * 1000 for number in range(700)]  # 2.8 MB
    with bradbury.Producer(bootstrap, batch_size=4_000_000, max_request_size=4_000_000) as producer:
        producer.send_batch(topic, values).result(30)
    assert values_in(bootstrap, topic) == values


def test_a_lost_producer_id_is_asked_for_again(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with FaultProxy(bootstrap) as proxy:
        proxy.lose_answer(INIT_PRODUCER_ID)
        with bradbury.Producer(proxy.address, retry_backoff_ms=10) as producer:
            assert producer.send(topic, b"x").result(60).offset == 0


@pytest.mark.parametrize("fault", [HANG_UP, CUT_OFF, GARBAGE, WRONG_CORRELATION_ID, HUGE])
def test_after_a_broken_answer_the_same_batch_is_sent_again(fault: Fault) -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, fault, answer(base_offset=5))
        with bradbury.Producer(broker.address, retry_backoff_ms=1) as producer:
            assert producer.send("t", b"x").result(60).offset == 5
        first, second = broker.wait_for(ProduceRequest, 2)
    assert stamp(first) == stamp(second) == (7, 0, 0)


def test_a_request_without_answer_is_given_up_and_sent_again() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, SILENCE, answer())
        with bradbury.Producer(
            broker.address, request_timeout_ms=200, delivery_timeout_ms=10_000, retry_backoff_ms=1
        ) as producer:
            assert producer.send("t", b"x").result(60).offset == 0
        assert len(broker.wait_for(ProduceRequest, 2)) == 2


@pytest.mark.parametrize("code", [6, 3, 5, 7, 19, 20, 56])
def test_a_retriable_refusal_is_retried_with_a_new_look_at_the_leaders(code: int) -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, answer(error_code=code), answer(base_offset=3))
        with bradbury.Producer(broker.address, retry_backoff_ms=1) as producer:
            assert producer.send("t", b"x").result(60).offset == 3
        first, second = broker.wait_for(ProduceRequest, 2)
        assert stamp(first) == stamp(second)
        if code in (3, 5, 6, 56):
            assert len(broker.wait_for(MetadataRequest, 2)) >= 2


def test_a_final_refusal_fails_the_records_and_only_them() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, answer(error_code=29), answer(base_offset=1))
        with bradbury.Producer(broker.address) as producer:
            refused = producer.send("t", b"x")
            with pytest.raises(TopicAuthorizationFailed, match="t-0"):
                refused.result(60)
            assert producer.send("t", b"y").result(60).offset == 1
        first, second = broker.wait_for(ProduceRequest, 2)
    assert stamp(first) == (7, 0, 0)
    assert stamp(second) == (7, 1, 0)  # a new epoch: the broker has none of the first


def test_a_duplicate_is_a_success() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, answer(error_code=46, base_offset=-1))
        with bradbury.Producer(broker.address) as producer:
            assert producer.send("t", b"x").result(60).offset == -1


def test_what_stays_undelivered_says_why_and_whether_it_may_be_there() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, HANG_UP)
        with bradbury.Producer(
            broker.address, request_timeout_ms=1_000, delivery_timeout_ms=1_500, retry_backoff_ms=20
        ) as producer:
            with pytest.raises(RequestTimedOut, match=r"may have been appended.*closed the conn"):
                producer.send("t", b"x").result(60)


def test_memory_is_bounded_and_a_blocked_send_says_so() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, SILENCE)
        producer = bradbury.Producer(
            broker.address, buffer_memory=10_000, max_block_ms=1_500, batch_size=1000, linger_ms=0
        )
        with pytest.raises(RequestTimedOut, match="buffer_memory=10000"):
            for _ in range(1000):
                producer.send("t", b"x" * 100)
        assert producer._memory.held <= 10_000
        with pytest.raises(RequestTimedOut, match="not acknowledged within"):
            producer.flush(0.05)
        producer.close(timeout=0.05)


def test_a_blocked_send_goes_on_when_there_is_room() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        hold = threading.Event()

        def late(request: ProduceRequest) -> ProduceResponse:
            hold.wait(60)
            return answer()(request)

        broker.on(ProduceRequest, late)
        with bradbury.Producer(broker.address, buffer_memory=2000, linger_ms=0) as producer:
            broker_has_one = threading.Thread(
                target=lambda: (broker.wait_for(ProduceRequest), hold.set())
            )
            broker_has_one.start()
            futures = [producer.send("t", b"x" * 500) for _ in range(20)]
            assert all(future.result(60) for future in futures)
            broker_has_one.join()


def test_a_closed_producer_fails_what_is_left() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, SILENCE)
        producer = bradbury.Producer(broker.address, linger_ms=0)
        future = producer.send("t", b"x")
        broker.wait_for(ProduceRequest)
        producer.close(timeout=0.05)
        with pytest.raises(RequestTimedOut, match="the producer was closed"):
            future.result(60)


def test_an_older_broker_is_met_at_its_versions() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.versions[ProduceRequest] = (3, 5)
        broker.versions[MetadataRequest] = (0, 4)
        broker.versions[InitProducerIdRequest] = (0, 0)
        asked: list[object] = []

        def old(request: ApiVersionsRequest) -> ApiVersionsResponse:
            asked.append(request)
            return broker.api_versions(request)

        broker.on(ApiVersionsRequest, old)
        broker.on(ProduceRequest, answer(base_offset=9))
        with bradbury.Producer(broker.address) as producer:
            assert producer.send("t", b"x").result(60).offset == 9


def test_a_broker_that_is_too_old_is_said_to_be() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.versions[ProduceRequest] = (0, 2)
        with bradbury.Producer(broker.address) as producer:
            with pytest.raises(UnsupportedVersion, match=r"Produce.*0 to 2.*upgrade"):
                producer.send("t", b"x").result(60)


def test_version_negotiation_goes_down_to_what_the_broker_offers() -> None:
    """KIP-511: a broker that does not know our ApiVersions version answers in the oldest layout."""
    with ScriptedBroker({"t": 1}) as broker:
        broker.versions[ApiVersionsRequest] = (0, 2)
        refusal = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 2)])
        broker.on(ApiVersionsRequest, AtVersion(refusal, 0), broker.api_versions)
        broker.on(ProduceRequest, answer())
        with bradbury.Producer(broker.address) as producer:
            assert producer.send("t", b"x").result(60).offset == 0


def test_a_fatal_producer_id_refusal_fails_the_records() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(InitProducerIdRequest, InitProducerIdResponse(error_code=31))
        with bradbury.Producer(broker.address) as producer:
            with pytest.raises(Exception, match="CLUSTER_AUTHORIZATION_FAILED"):
                producer.send("t", b"x").result(60)


def test_no_broker_is_one_line_with_the_remedy() -> None:
    started = time.monotonic()
    with bradbury.Producer("127.0.0.1:1") as producer:
        with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1.*is the cluster up\?"):
            producer.send("t", b"x")
    assert time.monotonic() - started < 20


SERVER = """
    import sys, bradbury
    with bradbury.local(sys.argv[1], port=int(sys.argv[2])) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        sys.stdin.read()
"""


def start_broker(data_dir: Path, port: int) -> tuple["subprocess.Popen[str]", str]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVER), str(data_dir), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@pytest.mark.slow
def test_kill_9_of_the_broker_loses_and_doubles_no_acknowledged_record(tmp_path: Path) -> None:
    process, bootstrap = start_broker(tmp_path, 0)
    port = int(bootstrap.rpartition(":")[2])
    try:
        with Admin(bootstrap) as admin:
            admin.create_topic("t", 2)
        with bradbury.Producer(bootstrap, linger_ms=1, batch_size=2000) as producer:
            futures = []
            for number in range(6000):
                futures.append(producer.send("t", b"%06d" % number, b"%d" % (number % 5)))
                if number in (1500, 4000):
                    futures[-500].result(30)  # it is in the middle of things
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    process, _ = start_broker(tmp_path, port)
            producer.flush(60)
            placed = {future.result(0)[1:3] for future in futures}
            assert len(placed) == 6000
        values = values_in(bootstrap, "t")
        assert sorted(values) == [b"%06d" % number for number in range(6000)]
        for key in range(5):
            mine = [value for value in values if int(value) % 5 == key]
            assert mine == sorted(mine)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()
