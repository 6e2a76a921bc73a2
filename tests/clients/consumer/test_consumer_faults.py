"""Does a consumer hand out each record once, whatever the connections and brokers do?"""

from collections.abc import Callable

import pyarrow as pa
import pytest

import bradbury
from bradbury.clients.fetch import fetch_failures
from bradbury.protocol.columns.columns import encode_batch
from bradbury.protocol.errors import ConnectionFailed, CorruptMessage, TopicAuthorizationFailed
from bradbury.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from bradbury.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from bradbury.protocol.messages.metadata import MetadataRequest
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import ControlType, encode_control_batch
from bradbury.tests.support.wire.fault_proxy import FaultProxy
from bradbury.tests.support.wire.scripted_broker import (
    CUT_OFF,
    GARBAGE,
    HANG_UP,
    HUGE,
    WRONG_CORRELATION_ID,
    Fault,
    ScriptedBroker,
)

NewTopic = Callable[..., str]
FETCH, OFFSET_COMMIT, JOIN_GROUP = 1, 8, 11


def log(*batch_sizes: int) -> list[bytes]:
    """Batches at consecutive offsets; a record's value is its offset."""
    batches, offset = [], 0
    for size in batch_sizes:
        rows = pa.array([b"%d" % (offset + row) for row in range(size)])
        batch = bytearray(encode_batch(None, rows, 0))
        stamp(batch, base_offset=offset, leader_epoch=1)
        batches.append(bytes(batch))
        offset += size
    return batches


def fetched(request: FetchRequest, records: bytes = b"", code: int = 0) -> FetchResponse:
    topic = request.topics[0]
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(part.partition, code, 100, 100, 0, records=records)
                    for part in topic.partitions
                ],
            )
        ]
    )


def served(batches: list[bytes]) -> Callable[[FetchRequest], FetchResponse]:
    """The batch with the record at the offset that is asked for, one at a time."""

    def respond(request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        for batch in batches:
            first, last = int.from_bytes(batch[:8], "big"), int.from_bytes(batch[23:27], "big")
            if offset <= first + last:
                return fetched(request, batch)
        return fetched(request)

    return respond


def beginning(request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(part.partition_index, offset=0)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def read(broker: ScriptedBroker, count: int) -> list[int]:
    with bradbury.Consumer(
        "t", bootstrap=broker.address, auto_offset_reset="earliest", retry_backoff_ms=1
    ) as consumer:
        found: list[int] = []
        while len(found) < count:
            table = consumer.poll(10_000)
            assert table.num_rows
            found += [int(value) for value in table.column("value").to_pylist()]
    return found


@pytest.mark.parametrize("fault", [HANG_UP, CUT_OFF, GARBAGE, WRONG_CORRELATION_ID, HUGE])
def test_after_a_broken_answer_it_goes_on_at_the_same_record(fault: Fault) -> None:
    answers = served(log(3, 4, 2))
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ListOffsetsRequest, beginning)
        broker.on(FetchRequest, answers, fault, answers)
        assert read(broker, 9) == list(range(9))


@pytest.mark.parametrize("code", [3, 5, 6, 74, 75, 78, 56])
def test_a_leader_that_has_moved_is_looked_for(code: int) -> None:
    answers = served(log(3))
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ListOffsetsRequest, beginning)
        broker.on(FetchRequest, lambda request: fetched(request, code=code), answers)
        assert read(broker, 3) == [0, 1, 2]
        assert len(broker.wait_for(MetadataRequest, 2)) >= 2


def test_what_lasts_is_said_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fetch_failures, "SAID_AFTER_SECONDS", 0.0)
    answers = served(log(3))
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ListOffsetsRequest, beginning)
        broker.on(FetchRequest, *[lambda request: fetched(request, code=56)] * 3, answers)
        assert read(broker, 3) == [0, 1, 2]
    said = [one.message for one in caplog.records if one.name == fetch_failures.__name__]
    assert said[0].startswith("t-0 cannot be fetched for 0 s: the broker cannot use the disk")
    assert said[0].endswith(" (KAFKA_STORAGE_ERROR); retrying")
    assert said[1] == "t-0 can be fetched again"


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    first, second = log(3, 4)
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ListOffsetsRequest, beginning)
        broker.on(
            FetchRequest,
            lambda request: fetched(request, first + second[:50]),
            served([first, second]),
        )
        assert read(broker, 7) == list(range(7))


def test_an_answer_without_one_whole_batch_is_asked_for_again_larger() -> None:
    whole = log(50)[0]
    with ScriptedBroker({"t": 1}) as broker:

        def cut(request: FetchRequest) -> FetchResponse:
            limit = request.topics[0].partitions[0].partition_max_bytes
            return fetched(request, whole[:limit])

        broker.on(ListOffsetsRequest, beginning)
        broker.on(FetchRequest, cut)
        with bradbury.Consumer(
            "t",
            bootstrap=broker.address,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=100,
        ) as consumer:
            assert consumer.poll(10_000).num_rows == 50


def with_size(batch: bytes, size: int) -> bytes:
    """Its header says that so many bytes follow the length."""
    return batch[:8] + size.to_bytes(4, "big", signed=True) + batch[12:]


@pytest.mark.parametrize("size", [0, -1, 48, 10**6, 2**31 - 1])
def test_a_batch_that_lies_about_its_size_is_raised_and_can_be_passed(size: int) -> None:
    good, bad, last = log(3, 3, 3)
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ListOffsetsRequest, beginning)
        broker.on(FetchRequest, served([good, with_size(bad, size), last]))
        with bradbury.Consumer(
            "t", bootstrap=broker.address, auto_offset_reset="earliest", retry_backoff_ms=1
        ) as consumer:
            assert consumer.poll(10_000).num_rows == 3
            for _ in range(2):
                with pytest.raises(CorruptMessage, match="the batch at offset 3 has"):
                    consumer.poll(10_000)
            consumer.seek(("t", 0), 6)
            assert consumer.poll(10_000).column("value").to_pylist() == [b"6", b"7", b"8"]


def test_a_damaged_batch_is_raised_and_can_be_skipped() -> None:
    good, bad, last = log(3, 3, 3)
    broken = bad[:-1] + bytes([bad[-1] ^ 0xFF])
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ListOffsetsRequest, beginning)
        broker.on(FetchRequest, served([good, broken, last]))
        with bradbury.Consumer(
            "t", bootstrap=broker.address, auto_offset_reset="earliest"
        ) as consumer:
            assert consumer.poll(10_000).num_rows == 3
            for _ in range(2):
                with pytest.raises(CorruptMessage):
                    consumer.poll(10_000)
            assert consumer.position(("t", 0)) == 3
            consumer.seek(("t", 0), 6)
            assert consumer.poll(10_000).column("value").to_pylist() == [b"6", b"7", b"8"]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_the_position_is_behind_a_marker_that_came_in_an_answer_of_its_own(
    one_by_one: bool,
) -> None:
    """Both answers are there before the first poll."""
    marker = bytearray(
        encode_control_batch(
            ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=0
        )
    )
    stamp(marker, base_offset=3, leader_epoch=1)
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ListOffsetsRequest, beginning)
        broker.on(FetchRequest, served([*log(3), bytes(marker)]))
        with bradbury.Consumer(
            bootstrap=broker.address,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            consumer.assign([("t", 0)])
            broker.wait_for(FetchRequest, 3)
            if one_by_one:
                found = [int(each.value or b"") for each in consumer.records(timeout_ms=100)]
            else:
                found = [int(value) for value in consumer.poll(10_000)["value"].to_pylist()]
            assert (found, consumer.position(("t", 0))) == ([0, 1, 2], 4)


def test_a_final_refusal_is_raised_in_poll() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ListOffsetsRequest, beginning)
        broker.on(FetchRequest, lambda request: fetched(request, code=29))
        with bradbury.Consumer(
            "t", bootstrap=broker.address, auto_offset_reset="earliest"
        ) as consumer:
            with pytest.raises(TopicAuthorizationFailed, match="t-0"):
                consumer.poll(10_000)


def test_lost_answers_lose_and_double_nothing(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with bradbury.Producer(bootstrap, batch_size=500) as producer:
        producer.send_batch(topic, [b"%d" % number for number in range(3000)]).result(60)
    with FaultProxy(bootstrap) as proxy:
        with bradbury.Consumer(
            topic,
            bootstrap=proxy.address,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=2000,
            retry_backoff_ms=1,
        ) as consumer:
            found: list[int] = []
            while len(found) < 3000:
                proxy.lose_answer(FETCH)
                found += map(int, consumer.poll(10_000, max_records=500)["value"].to_pylist())
        assert proxy.lost >= 3
    assert found == list(range(3000))


def test_a_group_survives_lost_answers(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with bradbury.Producer(bootstrap) as producer:
        producer.send_batch(topic, [b"%d" % number for number in range(100)]).result(60)
    with FaultProxy(bootstrap) as proxy:
        proxy.lose_answer(JOIN_GROUP)
        with bradbury.Consumer(
            topic,
            bootstrap=proxy.address,
            group=f"survives-{topic}",
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            retry_backoff_ms=1,
        ) as consumer:
            count = 0
            while count < 100:
                count += consumer.poll(20_000).num_rows
            proxy.lose_answer(OFFSET_COMMIT)
            consumer.commit()
            assert sum(consumer.committed().values()) == 100
        assert proxy.lost == 2


def test_no_broker_is_one_line_with_the_remedy() -> None:
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1.*is the cluster up\?"):
        bradbury.Consumer("t", bootstrap="127.0.0.1:1")
