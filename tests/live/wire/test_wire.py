"""What exactly does the broker answer? Seen at the socket, request by request."""

import itertools

import pytest

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from bradbury.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from bradbury.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from bradbury.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceResponse,
)
from bradbury.protocol.records.record_batch import check_batch, read_header
from bradbury.protocol.records.records import encode_records
from bradbury.tests.support.wire.raw_client import RawClient
from bradbury.tests.support.wire.raw_topics import make_topic, produce, produce_request

_names = itertools.count(1)
NOW = 1_700_000_000_000


def batch(*values: bytes, **options) -> bytes:
    return bytes(encode_records([(NOW, None, value, ()) for value in values], **options))


def fetch_request(topic: str, offset: int, *, partition: int = 0, **options):
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=options.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=options.pop("current_leader_epoch", -1),
    )
    defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    return FetchRequest(
        **(defaults | options), topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )


def fetch(client: RawClient, topic: str, offset: int, *, version: int = 12, **options):
    answer = client.call(fetch_request(topic, offset, **options), FetchResponse, version)
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


def test_api_versions_is_answered_to_a_client_from_the_future_in_the_oldest_layout(
    client: RawClient,
) -> None:
    answer = client.call(ApiVersionsRequest(), ApiVersionsResponse, 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST  # no software name
    named = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")
    answer = client.call(named, ApiVersionsResponse, 3)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert ranges[18] == (0, 4)
    frame = client.frame(named, 4)
    frame[6:8] = (99).to_bytes(2, "big")
    client.socket.sendall(frame)
    number, fallback = client.receive(ApiVersionsResponse, 0)
    assert number == 3
    assert fallback.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.api_key, api.max_version) for api in fallback.api_keys] == [(18, 4)]


def test_lower_bounds_are_those_that_clients_look_for(client: RawClient) -> None:
    """Any of these higher silently takes features from librdkafka, aiokafka or kafkajs."""
    answer = client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    lowest = {api.api_key: api.min_version for api in answer.api_keys}
    expected = {0: 0, 1: 0, 2: 0, 3: 0, 8: 1, 9: 1, 10: 0, 11: 0, 12: 0, 13: 0, 14: 0}
    expected |= {18: 0, 19: 2, 20: 1, 22: 0, 23: 2, 32: 1, 60: 0}
    assert {key: lowest[key] for key in expected} == expected


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_stamps_offsets_at_every_version(client: RawClient, version: int) -> None:
    topic = make_topic(client)
    request = produce_request(topic, batch(b"a", b"b"))
    metadata = client.call(
        MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), MetadataResponse, 12
    )
    request.topic_data[0].topic_id = metadata.topics[0].topic_id
    offsets = []
    for _ in range(2):
        answer = client.call(request, ProduceResponse, version)
        part = answer.responses[0].partition_responses[0]
        assert part.error_code == 0
        offsets.append(part.base_offset)
    assert offsets == [0, 2]


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_gives_the_stored_bytes_at_every_version(client: RawClient, version: int) -> None:
    topic = make_topic(client)
    sent = batch(b"a", b"b")
    produce(client, topic, sent)
    metadata = client.call(
        MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), MetadataResponse, 12
    )
    request = fetch_request(topic, 0)
    request.topics[0].topic_id = metadata.topics[0].topic_id
    answer = client.call(request, FetchResponse, version)
    part = answer.responses[0].partitions[0]
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 2, 2)
    header = check_batch(part.records)
    assert header.base_offset == 0
    assert bytes(part.records)[16:] == sent[16:]  # offset and leader epoch are the broker's


def test_a_fetch_in_the_middle_of_a_batch_returns_the_whole_batch(client: RawClient) -> None:
    topic = make_topic(client)
    produce(client, topic, batch(b"a", b"b", b"c"))
    produce(client, topic, batch(b"d"))
    part = fetch(client, topic, 1)
    assert read_header(part.records).base_offset == 0
    assert len(part.records) > read_header(part.records).size
    assert read_header(fetch(client, topic, 3).records).base_offset == 3
    assert len(fetch(client, topic, 4).records) == 0
    assert fetch(client, topic, 5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(client, topic, -1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_first_batch_comes_whole_however_small_the_limits(client: RawClient) -> None:
    topic = make_topic(client, partitions=2)
    for partition in range(2):
        produce(client, topic, batch(b"x" * 5000), partition=partition)
    request = fetch_request(topic, 0, partition_max_bytes=10, max_bytes=10)
    request.topics[0].partitions.append(
        FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=10)
    )
    answer = client.call(request, FetchResponse, 12)
    sizes = [len(part.records) for part in answer.responses[0].partitions]
    assert sizes[0] > 5000
    assert sizes[1] == 0


def test_a_long_poll_is_answered_when_enough_has_come(client: RawClient, servers: str) -> None:
    topic = make_topic(client)
    one = batch(b"x" * 100)
    waiting = client.send(fetch_request(topic, 0, max_wait_ms=30_000, min_bytes=2 * len(one)), 12)
    with RawClient(servers) as producer:
        produce(producer, topic, one)
        produce(producer, topic, one)
    number, answer = client.receive(FetchResponse, 12)
    assert number == waiting
    assert len(answer.responses[0].partitions[0].records) == 2 * len(one)


def test_a_long_poll_ends_empty_at_its_time(client: RawClient) -> None:
    topic = make_topic(client)
    part = fetch(client, topic, 0, max_wait_ms=50)
    assert (part.error_code, part.high_watermark, len(part.records)) == (0, 0, 0)


def test_a_reader_at_the_end_of_an_old_segment_does_not_wait_for_more(client: RawClient) -> None:
    """A slice never crosses segments, so what follows must not be waited for."""
    topic = make_topic(client, segment_bytes="1000")
    for _ in range(4):
        produce(client, topic, batch(b"x" * 600))
    part = fetch(client, topic, 0, max_wait_ms=60_000, min_bytes=1_000_000)
    assert 0 < len(part.records) < 1000


def test_answers_come_in_the_order_of_the_requests(client: RawClient, servers: str) -> None:
    topic = make_topic(client)
    parked = client.send(fetch_request(topic, 0, max_wait_ms=30_000), 12)
    behind = client.send(MetadataRequest(topics=[]), 12)
    with RawClient(servers) as producer:
        produce(producer, topic, batch(b"wakes"))
    assert client.receive(FetchResponse, 12)[0] == parked
    assert client.receive(MetadataResponse, 12)[0] == behind


def test_without_acks_there_is_no_answer_and_an_error_ends_the_connection(servers: str) -> None:
    with RawClient(servers) as client:
        topic = make_topic(client)
        client.send(produce_request(topic, batch(b"a"), acks=0), 9)
        sent = client.send(MetadataRequest(topics=[]), 12)
        assert client.receive(MetadataResponse, 12)[0] == sent
        assert fetch(client, topic, 0).high_watermark == 1
        client.send(produce_request("no-such-topic", batch(b"a"), acks=0), 9)
        assert client.is_closed_by_peer()


def damaged(records: bytes, position: int, value: int) -> bytes:
    changed = bytearray(records)
    changed[position] = value
    return bytes(changed)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (b"short", ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (damaged(batch(b"a"), 16, 1), ErrorCode.INVALID_RECORD),
        (damaged(batch(b"a"), 68, 0xFF), ErrorCode.CORRUPT_MESSAGE),
        (damaged(batch(b"a"), 60, 9), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a", base_offset=5), ErrorCode.INVALID_RECORD),
    ],
    ids=["none", "short", "cut", "two", "old magic", "crc", "count", "offset"],
)
def test_a_bad_batch_gets_kafkas_code_and_is_not_appended(
    client: RawClient, records: bytes, code: ErrorCode
) -> None:
    topic = make_topic(client)
    answer = produce(client, topic, records)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert fetch(client, topic, 0).high_watermark == 0


def test_one_bad_partition_does_not_hold_back_the_others(client: RawClient) -> None:
    topic = make_topic(client, partitions=2)
    request = produce_request(topic, b"junk" * 30)
    request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch(b"a")))
    request.topic_data[0].partition_data.append(PartitionProduceData(index=7, records=batch(b"a")))
    answers = client.call(request, ProduceResponse, 9).responses[0].partition_responses
    assert answers[0].error_code != 0
    assert (answers[1].error_code, answers[1].base_offset) == (0, 0)
    assert answers[2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_idempotent_batch_sent_again_is_there_once_with_its_first_offset(
    client: RawClient,
) -> None:
    topic = make_topic(client)
    given = client.call(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4)
    options = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    first = batch(b"a", b"b", base_sequence=0, **options)
    assert produce(client, topic, first).base_offset == 0
    assert produce(client, topic, batch(b"c", base_sequence=2, **options)).base_offset == 2
    again = produce(client, topic, first)
    assert (again.error_code, again.base_offset) == (0, 0)
    gap = produce(client, topic, batch(b"e", base_sequence=9, **options))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert fetch(client, topic, 0).high_watermark == 3


def test_every_producer_gets_an_id_of_its_own(client: RawClient) -> None:
    ids = {
        client.call(
            InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4
        ).producer_id
        for _ in range(1500)  # more than one block
    }
    assert len(ids) == 1500


def test_records_of_a_topic_that_is_fsynced_are_answered_and_read(client: RawClient) -> None:
    topic = make_topic(client, flush_messages="1")
    for number in range(20):
        assert produce(client, topic, batch(b"%d" % number)).base_offset == number
    assert fetch(client, topic, 0).high_watermark == 20


def list_offset(client: RawClient, topic: str, timestamp: int, version: int = 8):
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    return client.call(request, ListOffsetsResponse, version).topics[0].partitions[0]


def test_questions_of_list_offsets(client: RawClient) -> None:
    topic = make_topic(client)
    assert list_offset(client, topic, -3).offset == -1
    times = [NOW + 10, NOW + 30, NOW + 20]
    produce(client, topic, bytes(encode_records([(time, None, b"", ()) for time in times])))
    assert list_offset(client, topic, -1).offset == 3
    assert list_offset(client, topic, -2).offset == 0
    newest = list_offset(client, topic, -3)
    assert (newest.offset, newest.timestamp) == (1, NOW + 30)
    assert list_offset(client, topic, -4).offset == 0
    assert list_offset(client, topic, NOW + 11).offset == 1
    assert list_offset(client, topic, NOW + 31).offset == -1
    assert list_offset(client, topic, -3, version=1).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(client, "nowhere", -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_leader_epochs_fence_and_end(client: RawClient) -> None:
    topic = make_topic(client)
    produce(client, topic, batch(b"a"))
    assert fetch(client, topic, 0, current_leader_epoch=0).error_code == 0
    newer = fetch(client, topic, 0, current_leader_epoch=5)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    answer = client.call(request, OffsetForLeaderEpochResponse, 4).topics[0].partitions[0]
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 1)


def test_a_topic_is_made_by_asking_for_it_only_if_that_is_allowed(client: RawClient) -> None:
    wanted = [MetadataRequestTopic(name=f"auto-{next(_names)}")]
    refused = client.call(
        MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse, 12
    )
    assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made = client.call(MetadataRequest(topics=wanted), MetadataResponse, 12)
    assert made.topics[0].error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE)
    again = client.call(MetadataRequest(topics=wanted), MetadataResponse, 12)
    assert (again.topics[0].error_code, len(again.topics[0].partitions)) == (0, 1)


def test_the_cluster_describes_itself(client: RawClient) -> None:
    answer = client.call(DescribeClusterRequest(), DescribeClusterResponse, 1)
    assert answer.cluster_id
    assert [broker.broker_id for broker in answer.brokers] == [1]
    assert answer.controller_id == 1
