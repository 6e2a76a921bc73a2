"""What does a consumer with a fetch session see, and what does an idle one cost? (KIP-227)"""

import itertools

import pytest

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bradbury.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.records import encode_records
from bradbury.tests.support.wire.raw_client import RawClient

_names = itertools.count(1)
VERSIONS = [7, 12, 16]
BATCH = bytes(encode_records([(1_700_000_000_000, None, b"x" * 100, ())]))


class Consumer:
    """A client of one topic that counts its session's epochs as Kafka's own does."""

    def __init__(self, client: RawClient, partitions: int, version: int = 12) -> None:
        self.client = client
        self.version = version
        self.topic = f"sessions-{next(_names)}"
        topic = CreatableTopic(name=self.topic, num_partitions=partitions, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=20_000)
        answer = client.call(request, CreateTopicsResponse, 7).topics[0]
        assert answer.error_code == 0
        self.topic_id = answer.topic_id
        self.session_id = 0
        self.epoch = 0

    def request(self, offsets: dict[int, int], *, forget=(), **options) -> FetchRequest:
        wanted = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
            for number, offset in offsets.items()
        ]
        asked = FetchTopic(topic=self.topic, topic_id=self.topic_id, partitions=wanted)
        forgotten = ForgottenTopic(
            topic=self.topic, topic_id=self.topic_id, partitions=list(forget)
        )
        defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
        return FetchRequest(
            **(defaults | options),
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[asked] if wanted else [],
            forgotten_topics_data=[forgotten] if forget else [],
        )

    def take(self, answer: FetchResponse) -> dict[int, tuple[int, int, int]]:
        """partition -> (error, high watermark, bytes of records)."""
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        self.session_id = answer.session_id
        self.epoch += 1
        return {
            part.partition_index: (part.error_code, part.high_watermark, len(part.records))
            for topic in answer.responses
            for part in topic.partitions
        }

    def fetch(self, offsets: dict[int, int] | None = None, **options):
        request = self.request(offsets or {}, **options)
        return self.take(self.client.call(request, FetchResponse, self.version))

    def produce(self, partition: int, client: RawClient | None = None) -> None:
        data = [PartitionProduceData(index=partition, records=BATCH)]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=data)],
        )
        answer = (client or self.client).call(request, ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.fixture
def client(servers: str):
    with RawClient(servers) as client:
        yield client


@pytest.mark.parametrize("version", VERSIONS)
def test_after_the_first_answer_only_what_changed_is_sent(client: RawClient, version: int) -> None:
    consumer = Consumer(client, 4, version)
    first = consumer.fetch(dict.fromkeys(range(4), 0))
    assert first == dict.fromkeys(range(4), (0, 0, 0))
    assert consumer.session_id > 0
    assert consumer.fetch() == {}
    consumer.produce(2)
    size = len(BATCH)
    assert consumer.fetch() == {2: (0, 1, size)}
    assert consumer.fetch() == {2: (0, 1, size)}  # its place was not moved on
    assert consumer.fetch({2: 1}) == {}
    consumer.produce(2)
    consumer.produce(0)
    assert consumer.fetch() == {2: (0, 2, size), 0: (0, 1, size)}
    assert consumer.fetch({2: 2, 0: 1}) == {}


def test_a_parked_incremental_fetch_is_woken_by_any_of_its_partitions(
    client: RawClient, servers: str
) -> None:
    consumer = Consumer(client, 3)
    consumer.fetch(dict.fromkeys(range(3), 0))
    with RawClient(servers) as producer:
        for partition in (1, 2, 1):
            sent = client.send(consumer.request({}, max_wait_ms=30_000), 12)
            consumer.produce(partition, producer)
            number, answer = client.receive(FetchResponse, 12)
            assert number == sent
            ((reported, (error, mark, size)),) = consumer.take(answer).items()
            assert (reported, error, size) == (partition, 0, len(BATCH))
            assert consumer.fetch({partition: mark}) == {}


def test_min_bytes_counts_over_all_partitions_of_the_session(
    client: RawClient, servers: str
) -> None:
    consumer = Consumer(client, 3)
    consumer.fetch(dict.fromkeys(range(3), 0))
    client.send(consumer.request({}, max_wait_ms=30_000, min_bytes=2 * len(BATCH)), 12)
    with RawClient(servers) as producer:
        consumer.produce(0, producer)
        consumer.produce(2, producer)
    reported = consumer.take(client.receive(FetchResponse, 12)[1])
    assert {partition: size for partition, (_, _, size) in reported.items()} == {
        0: len(BATCH),
        2: len(BATCH),
    }


def test_forgotten_and_added_partitions(client: RawClient) -> None:
    consumer = Consumer(client, 3)
    consumer.fetch({0: 0, 1: 0})
    for partition in range(3):
        consumer.produce(partition)
    assert set(consumer.fetch({2: 0}, forget=[0])) == {1, 2}
    assert set(consumer.fetch({1: 1, 2: 1})) == set()
    assert set(consumer.fetch({0: 0})) == {0}
    assert consumer.fetch(forget=[0, 1, 2]) == {}
    assert consumer.session_id == 0  # a session without partitions is over


def test_small_answers_serve_every_partition_in_turn(client: RawClient) -> None:
    consumer = Consumer(client, 4)
    offsets = dict.fromkeys(range(4), 0)
    consumer.fetch(offsets)
    for partition in range(4):
        consumer.produce(partition)
        consumer.produce(partition)
    served = []
    for _ in range(8):
        reported = consumer.fetch(max_bytes=len(BATCH))
        (partition,) = [number for number, (_, _, size) in reported.items() if size]
        served.append(partition)
    assert served == [0, 1, 2, 3, 0, 1, 2, 3]


def test_wrong_sessions_and_epochs_are_refused(client: RawClient) -> None:
    consumer = Consumer(client, 1)
    consumer.fetch({0: 0})
    for session_id, epoch, code in (
        (consumer.session_id, 5, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (123, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (consumer.session_id, -7, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ):
        request = consumer.request({})
        request.session_id, request.session_epoch = session_id, epoch
        answer = client.call(request, FetchResponse, 12)
        assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])
    answer = client.call(consumer.request({}), FetchResponse, 13)
    assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert consumer.fetch() == {}  # none of that has moved it


def test_a_session_is_ended_or_replaced_by_its_client(client: RawClient) -> None:
    consumer = Consumer(client, 2)
    consumer.fetch({0: 0, 1: 0})
    before = consumer.session_id
    consumer.epoch = 0
    assert len(consumer.fetch({0: 0})) == 1
    assert consumer.session_id not in (0, before)
    last = consumer.session_id
    consumer.epoch = -1
    assert len(consumer.fetch({0: 0, 1: 0})) == 2
    assert consumer.session_id == 0
    request = consumer.request({})
    request.session_id, request.session_epoch = last, 1
    answer = client.call(request, FetchResponse, 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("version", "code"),
    [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)],
)
def test_a_topic_that_is_deleted_is_an_error_in_each_answer(
    client: RawClient, servers: str, version: int, code: ErrorCode
) -> None:
    consumer = Consumer(client, 2, version)
    consumer.fetch({0: 0, 1: 0})
    client.send(consumer.request({}, max_wait_ms=30_000), version)
    with RawClient(servers) as admin:
        deleted = DeleteTopicState(name=consumer.topic)
        request = DeleteTopicsRequest(topics=[deleted], timeout_ms=5000)
        assert admin.call(request, DeleteTopicsResponse, 6).responses[0].error_code == 0
    reported = consumer.take(client.receive(FetchResponse, version)[1])
    # The first answer may come while the partitions have no leader and the topic still a name.
    moving = {code, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert {error for error, _, _ in reported.values()} <= moving
    assert reported
    assert {error for error, _, _ in consumer.fetch().values()} == {code}


def test_an_idle_fetch_of_many_partitions_is_cheap_to_ask_and_to_answer(
    client: RawClient,
) -> None:
    count = 2_000
    consumer = Consumer(client, count)
    full = consumer.request(dict.fromkeys(range(count), 0))
    client.send(full, 12)
    whole = client.receive_frame()
    consumer.session_id = int.from_bytes(whole[11:15], "big")
    consumer.epoch = 1
    assert consumer.fetch() == {}
    client.send(consumer.request({}), 12)
    assert len(client.receive_frame()) < 50 < 50_000 < len(whole)
