"""What happens to a client beyond its quota, and what to others? Seen at the socket.

Lower bounds of times alone are looked at: a machine that stands still makes no test fail. What is
measured are two slices of a second, so that a client may use at once what it is given for one.
"""

import itertools
import time
from collections.abc import Iterator

import pytest

import bradbury
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from bradbury.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from bradbury.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
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
from bradbury.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from bradbury.protocol.messages.metadata import MetadataRequest, MetadataResponse
from bradbury.protocol.messages.produce import ProduceResponse
from bradbury.protocol.records.records import encode_records
from bradbury.tests.support.wire.raw_client import RawClient
from bradbury.tests.support.wire.raw_topics import make_topic, produce_request

_names = itertools.count(1)
NOW = 1_700_000_000_000
TWO_SLICES = {"quota.window.num": "2", "controller.quota.window.num": "2"}
OTHER_ADDRESS = "127.0.0.2"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with bradbury.local(config=TWO_SLICES) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> Iterator[RawClient]:
    with RawClient(servers, client_id="admin") as client:
        yield client


@pytest.fixture
def name() -> str:
    """Of a client that no other test has."""
    return f"client-{next(_names)}"


def alter(client: RawClient, entity: dict[str, str | None], version: int = 1, **values):
    """Each value a quota, None takes it back. Returns (error code, message)."""
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )
    request = AlterClientQuotasRequest(entries=[entry])
    answer = client.call(request, AlterClientQuotasResponse, version)
    (outcome,) = answer.entries
    return outcome.error_code, outcome.error_message


def batch(size: int, count: int = 1) -> bytes:
    return bytes(encode_records([(NOW, None, b"x" * size, ())] * count))


def produce(client: RawClient, topic: str, size: int, **options) -> ProduceResponse:
    version = options.pop("version", 9)
    return client.call(produce_request(topic, batch(size), **options), ProduceResponse, version)


def fetch(client: RawClient, topic: str, offset: int, **options) -> FetchResponse:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        **({"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | options),
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return client.call(request, FetchResponse, 12)


def seconds_until_served(client: RawClient, since: float) -> float:
    """From then until the connection is read from again."""
    client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    return time.monotonic() - since


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(admin: RawClient, name: str, version: int) -> None:
    entity = {"user": "alice", "client-id": name}
    assert alter(admin, entity, version, producer_byte_rate=1024.0) == (0, None)
    asked = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type="client-id", match_type=0, match=name)]
    )
    (entry,) = admin.call(asked, DescribeClientQuotasResponse, version).entries
    assert {each.entity_type: each.entity_name for each in entry.entity} == entity
    assert [(each.key, each.value) for each in entry.values] == [("producer_byte_rate", 1024.0)]
    assert alter(admin, entity, version, producer_byte_rate=None) == (0, None)
    assert admin.call(asked, DescribeClientQuotasResponse, version).entries == []


def test_what_may_not_be_is_refused(admin: RawClient) -> None:
    code, message = alter(admin, {"user": "alice"}, producer_byte_rate=-1.0)
    assert code == ErrorCode.INVALID_REQUEST
    assert message == "Quota producer_byte_rate must be greater than 0"
    asked = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type="group", match_type=2, match=None)]
    )
    answer = admin.call(asked, DescribeClientQuotasResponse, 1)
    assert (answer.error_code, answer.error_message, answer.entries) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "Unsupported entity type group",
        None,
    )


def test_a_producer_beyond_its_quota_is_told_and_its_connection_held(
    servers: str, admin: RawClient, name: str
) -> None:
    topic = make_topic(admin)
    assert alter(admin, {"client-id": name}, producer_byte_rate=2000.0) == (0, None)
    with RawClient(servers, client_id=name) as held, RawClient(servers) as other:
        since = time.monotonic()
        answer = produce(held, topic, 4000)
        assert answer.responses[0].partition_responses[0].error_code == 0, "it is appended"
        assert answer.throttle_time_ms >= 1000, "4000 bytes at 2000 a second, one second of it free"
        assert produce(other, topic, 4000).throttle_time_ms == 0
        assert seconds_until_served(held, since) >= answer.throttle_time_ms / 1000
        # Nobody counts against it what came before it had the quota.
        assert alter(admin, {"client-id": name}, producer_byte_rate=None) == (0, None)
        assert produce(held, topic, 40_000).throttle_time_ms == 0


@pytest.mark.parametrize("version", [3, 5, 9, 12])
def test_every_layout_of_the_answer_says_it(
    servers: str, admin: RawClient, name: str, version: int
) -> None:
    topic = make_topic(admin)
    assert alter(admin, {"client-id": name}, producer_byte_rate=1.0) == (0, None)
    with RawClient(servers, client_id=name) as held:
        assert produce(held, topic, 100, version=version).throttle_time_ms > 50_000


def test_frames_that_are_there_already_wait_too(servers: str, admin: RawClient, name: str) -> None:
    topic = make_topic(admin)
    assert alter(admin, {"client-id": name}, producer_byte_rate=2000.0) == (0, None)
    with RawClient(servers, client_id=name) as held:
        since = time.monotonic()
        both = held.frame(produce_request(topic, batch(4000)), 9)
        both += held.frame(ApiVersionsRequest(), 0)
        held.socket.sendall(both)
        _, answer = held.receive(ProduceResponse, 9)
        assert answer.throttle_time_ms >= 1000
        held.receive(ApiVersionsResponse, 0)
        assert time.monotonic() - since >= answer.throttle_time_ms / 1000


def test_without_an_answer_the_connection_is_held_all_the_same(
    servers: str, admin: RawClient, name: str
) -> None:
    topic = make_topic(admin)
    assert alter(admin, {"client-id": name}, producer_byte_rate=2000.0) == (0, None)
    with RawClient(servers, client_id=name) as held:
        since = time.monotonic()
        held.send(produce_request(topic, batch(4000), acks=0), 9)
        assert seconds_until_served(held, since) >= 1.0


def test_a_request_of_which_only_the_beginning_is_there_is_not_slow_meanwhile(
    servers: str, admin: RawClient, name: str
) -> None:
    topic = make_topic(admin)
    assert alter(admin, {"client-id": name}, producer_byte_rate=40_000.0) == (0, None)
    with RawClient(servers, client_id=name) as held:
        first = held.frame(produce_request(topic, batch(80_000)), 9)
        second = held.frame(produce_request(topic, batch(1_000)), 9)
        held.socket.sendall(first + second[:500])
        _, answer = held.receive(ProduceResponse, 9)
        assert answer.throttle_time_ms >= 1000
        held.socket.sendall(second[500:])
        _, answer = held.receive(ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_consumer_beyond_its_quota_is_given_nothing_and_goes_on_later(
    servers: str, admin: RawClient, name: str, epoch: int
) -> None:
    topic = make_topic(admin)
    for _ in range(6):
        produce(admin, topic, 1500)
    assert alter(admin, {"client-id": name}, consumer_byte_rate=4000.0) == (0, None)
    with RawClient(servers, client_id=name) as held, RawClient(servers) as other:
        answer = fetch(held, topic, 0, session_epoch=epoch)
        (partition,) = answer.responses[0].partitions
        assert answer.throttle_time_ms == 0
        assert len(partition.records) < 4000, "no more at once than it is given for a second"
        assert (answer.session_id != 0) == (epoch == 0)
        since = time.monotonic()
        again = {"session_id": answer.session_id, "session_epoch": 1} if epoch == 0 else {}
        answer = fetch(held, topic, 2, **again)
        assert answer.throttle_time_ms > 0
        assert answer.responses == []
        assert (answer.session_id != 0) == (epoch == 0)
        assert len(fetch(other, topic, 0).responses[0].partitions[0].records) > 8000
        assert seconds_until_served(held, since) >= answer.throttle_time_ms / 1000
        waited = 0
        while not answer.responses:
            waited += 1
            again = {"session_id": answer.session_id, "session_epoch": 1 + waited}
            answer = fetch(held, topic, 2, **(again if epoch == 0 else {}))
        assert answer.responses[0].partitions[0].records


def test_followers_are_exempt(servers: str, admin: RawClient, name: str) -> None:
    topic = make_topic(admin)
    for _ in range(3):
        produce(admin, topic, 1500)
    assert alter(admin, {"client-id": name}, consumer_byte_rate=1.0) == (0, None)
    with RawClient(servers, client_id=name) as held:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=1, topics=[FetchTopic(topic=topic, partitions=[wanted])], max_bytes=1 << 20
        )
        assert held.call(request, FetchResponse, 12).throttle_time_ms == 0


def test_a_clients_part_of_the_time_is_limited(servers: str, admin: RawClient, name: str) -> None:
    assert alter(admin, {"client-id": name}, request_percentage=0.00001) == (0, None)
    with RawClient(servers, client_id=name) as held, RawClient(servers) as other:
        since = time.monotonic()
        answer = held.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        assert answer.throttle_time_ms == 1000, "never longer than a slice"
        assert seconds_until_served(held, since) >= 1.0
        assert other.call(MetadataRequest(topics=[]), MetadataResponse, 9).throttle_time_ms == 0


def test_the_time_of_a_request_is_not_that_which_it_waits(
    servers: str, admin: RawClient, name: str
) -> None:
    topic = make_topic(admin)
    assert alter(admin, {"client-id": name}, request_percentage=50.0) == (0, None)
    with RawClient(servers, client_id=name) as client:
        assert fetch(client, topic, 0, max_wait_ms=1500).throttle_time_ms == 0


def new_topic(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=5000)


def test_new_and_deleted_partitions_are_counted_for_the_cluster(
    servers: str, admin: RawClient, name: str
) -> None:
    assert alter(admin, {"client-id": name}, controller_mutation_rate=0.1) == (0, None)
    made, refused = f"{name}-made", f"{name}-refused"

    def ask(request, response, version):
        with RawClient(servers, client_id=name) as client:  # the last one is held
            return client.call(request, response, version)

    answer = ask(new_topic(made, 4), CreateTopicsResponse, 7)
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0), "it had no debt"
    answer = ask(new_topic(refused, 1), CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.topics[0].error_message == "The throttling quota has been exceeded."
    assert answer.throttle_time_ms > 20_000
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=made, count=5, assignments=None)], timeout_ms=5000
    )
    answer = ask(more, CreatePartitionsResponse, 3)
    assert answer.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=made)], timeout_ms=5000)
    answer = ask(deleted, DeleteTopicsResponse, 6)
    assert answer.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.throttle_time_ms > 20_000
    # Older versions have no such code: it is done, and they are told to wait the longer.
    answer = ask(new_topic(refused, 1), CreateTopicsResponse, 5)
    assert answer.topics[0].error_code == 0
    assert answer.throttle_time_ms > 30_000
    answer = ask(more, CreatePartitionsResponse, 2)
    assert answer.results[0].error_code == 0
    by_name = DeleteTopicsRequest(topic_names=[made], timeout_ms=5000)
    answer = ask(by_name, DeleteTopicsResponse, 4)
    assert answer.responses[0].error_code == 0
    assert answer.throttle_time_ms > 80_000


def test_an_address_that_connects_too_often_is_held_unserved(
    servers: str, admin: RawClient
) -> None:
    assert alter(admin, {"ip": OTHER_ADDRESS}, connection_creation_rate=1.0) == (0, None)
    ends = []
    for _ in range(5):
        since = time.monotonic()
        with RawClient(servers, source=OTHER_ADDRESS) as client:
            try:
                client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
                ends.append(None)
            except Exception:
                ends.append(time.monotonic() - since)
            if ends[-1] is not None:
                break
    assert ends[0] is None, "the first is served"
    assert ends[-1] is not None
    with RawClient(servers) as other:
        other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    assert alter(admin, {"ip": OTHER_ADDRESS}, connection_creation_rate=None) == (0, None)
    for _ in range(5):
        with RawClient(servers, source=OTHER_ADDRESS) as client:
            client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
