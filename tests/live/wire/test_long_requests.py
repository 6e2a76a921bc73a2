"""Is a request about thousands of partitions answered whole and in order, without others waiting?"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import bradbury
from bradbury.launch.local import LocalCluster
from bradbury.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bradbury.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from bradbury.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
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
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.records import encode_records
from tests.support.wire.raw_client import RawClient

PARTITIONS = 1500
BATCH = bytes(encode_records([(1_700_000_000_000, None, b"x", ())]))
TIMES = 5
# A good client in a process of its own: a line in, the number of answers since the last line out.
PROBE = """
import select, sys
from tests.support.wire.raw_client import RawClient
from bradbury.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
client = RawClient(sys.argv[1])
answers = 0
while True:
    client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    answers += 1
    if select.select([sys.stdin], [], [], 0)[0]:
        if not sys.stdin.readline():
            break
        print(answers, flush=True)
        answers = 0
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with bradbury.local() as cluster:
        with RawClient(cluster.bootstrap_servers, 60) as client:
            topic = CreatableTopic(name="wide", num_partitions=PARTITIONS, replication_factor=1)
            asked = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
            assert client.call(asked, CreateTopicsResponse, 7).topics[0].error_code == 0
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[RawClient]:
    with RawClient(cluster.bootstrap_servers, 60) as client:
        yield client


def produce(acks: int = 1, partitions: int = PARTITIONS) -> ProduceRequest:
    parts = [PartitionProduceData(index=p, records=BATCH) for p in range(partitions)]
    topics = [TopicProduceData(name="wide", partition_data=parts)]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)


def list_offsets(timestamp: int = -1) -> ListOffsetsRequest:
    parts = [
        ListOffsetsPartition(partition_index=p, timestamp=timestamp) for p in range(PARTITIONS)
    ]
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="wide", partitions=parts)]
    )


def fetch() -> FetchRequest:
    parts = [
        FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1000)
        for p in range(PARTITIONS)
    ]
    return FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic="wide", partitions=parts)])


def test_produce_to_many_partitions_appends_each_once_and_in_order(client: RawClient) -> None:
    """Two in flight: the second request is not begun before the first is through."""
    offsets = []
    for _ in range(2):
        client.send(produce(), 9)
    for _ in range(2):
        (topic,) = client.receive(ProduceResponse, 9)[1].responses
        assert [part.index for part in topic.partition_responses] == list(range(PARTITIONS))
        assert {part.error_code for part in topic.partition_responses} == {0}
        offsets.append({part.base_offset for part in topic.partition_responses})
    assert [len(each) for each in offsets] == [1, 1]
    assert offsets[1].pop() == offsets[0].pop() + 1


@pytest.mark.parametrize("partitions", [1, 100, 101, 201])
def test_the_last_part_of_a_request_may_be_one_partition(
    client: RawClient, partitions: int
) -> None:
    answer = client.call(produce(partitions=partitions), ProduceResponse, 9)
    (topic,) = answer.responses
    assert topic.name == "wide"
    assert [part.index for part in topic.partition_responses] == list(range(partitions))
    assert {part.error_code for part in topic.partition_responses} == {0}


def test_without_acks_all_is_appended_before_the_next_request(client: RawClient) -> None:
    before = client.call(list_offsets(), ListOffsetsResponse, 8).topics[0].partitions
    client.send(produce(acks=0), 9)
    after = client.call(list_offsets(), ListOffsetsResponse, 8).topics[0].partitions
    assert [part.offset + 1 for part in before] == [part.offset for part in after]


def test_lists_are_answered_whole(client: RawClient) -> None:
    (topic,) = client.call(list_offsets(-2), ListOffsetsResponse, 8).topics
    assert [part.partition_index for part in topic.partitions] == list(range(PARTITIONS))
    wanted = [OffsetForLeaderPartition(partition=p, leader_epoch=0) for p in range(PARTITIONS)]
    asked = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="wide", partitions=wanted)]
    )
    (epochs,) = client.call(asked, OffsetForLeaderEpochResponse, 4).topics
    assert [part.partition for part in epochs.partitions] == list(range(PARTITIONS))
    keys = [f"group-{number}" for number in range(1000)]
    found = client.call(FindCoordinatorRequest(coordinator_keys=keys), FindCoordinatorResponse, 4)
    assert [each.key for each in found.coordinators] == keys
    names = [f"nowhere-{number}" for number in range(1000)]
    topics = [MetadataRequestTopic(name=name) for name in names]
    metadata = client.call(
        MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse, 12
    )
    assert [each.name for each in metadata.topics] == names
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name="wide", configuration_keys=None)
        for _ in range(50)
    ]
    described = client.call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, 4)
    assert len(described.results) == 50
    everything = client.call(MetadataRequest(topics=None), MetadataResponse, 12)
    counts = {topic.name: len(topic.partitions) for topic in everything.topics}
    assert counts["wide"] == PARTITIONS


@contextmanager
def probe(cluster: LocalCluster) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROBE, cluster.bootstrap_servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.wait(60)


def answers_of(process: subprocess.Popen[str]) -> int:
    """How many answers the probe has got since the last call."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return int(process.stdout.readline())


@pytest.mark.slow
def test_while_one_client_asks_about_everything_another_does_not_wait(
    cluster: LocalCluster, client: RawClient
) -> None:
    """Were a long request handled in one go, the probe would get an answer before and one after."""
    asked = {
        "metadata": (MetadataRequest(topics=None), MetadataResponse, 12),
        "fetch": (fetch(), FetchResponse, 12),
        "offsets": (list_offsets(), ListOffsetsResponse, 8),
        "times": (list_offsets(1), ListOffsetsResponse, 8),
        "produce": (produce(), ProduceResponse, 9),
    }
    answers = {}
    with probe(cluster) as process:
        for name, (request, response, version) in asked.items():
            answers_of(process)
            for _ in range(TIMES):
                client.call(request, response, version)
            answers[name] = answers_of(process)
    print(answers)
    assert min(answers.values()) > 3 * TIMES
