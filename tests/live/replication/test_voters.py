"""Voters of the metadata as Kafka's tools change them: AddRaftVoter, RemoveRaftVoter, DescribeQuorum."""

import time
from collections.abc import Iterator
from uuid import UUID

import pytest

import bradbury
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from bradbury.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    PartitionDataResponse,
    TopicData,
)
from bradbury.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from bradbury.tests.support.wire.raw_client import RawClient


@pytest.fixture(scope="module")
def cluster() -> Iterator[bradbury.LocalCluster]:
    """Four brokers, three of which vote."""
    with bradbury.local(nodes=4) as cluster:
        yield cluster


def quorum(client: RawClient) -> PartitionDataResponse:
    asked = DescribeQuorumRequest(
        topics=[TopicData("__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
    [topic] = client.call(asked, DescribeQuorumResponse, 2).topics
    [partition] = topic.partitions
    return partition


def voters(client: RawClient) -> dict[int, UUID]:
    return {each.replica_id: each.replica_directory_id for each in quorum(client).current_voters}


def add(client: RawClient, node_id: int, directory_id: UUID, cluster_id: str | None = None) -> int:
    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=10_000,
        voter_id=node_id,
        voter_directory_id=directory_id,
        listeners=[Listener("CONTROLLER", "127.0.0.1", 9093)],
    )
    code: int = client.call(request, AddRaftVoterResponse, 0).error_code
    return code


def remove(client: RawClient, node_id: int, directory_id: UUID) -> int:
    request = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=node_id, voter_directory_id=directory_id
    )
    code: int = client.call(request, RemoveRaftVoterResponse, 0).error_code
    return code


def test_a_voter_is_added_and_another_removed_and_the_quorum_shows_it(
    cluster: bradbury.LocalCluster,
) -> None:
    with RawClient(cluster.bootstrap_servers) as client:
        first = voters(client)
        assert len(first) == 3
        [other] = [each for each in quorum(client).observers if each.replica_id not in first]
        assert add(client, other.replica_id, other.replica_directory_id) == ErrorCode.NONE
        added = voters(client)
        assert added == first | {other.replica_id: other.replica_directory_id}
        again = add(client, other.replica_id, other.replica_directory_id)
        assert again == ErrorCode.DUPLICATE_VOTER
        gone = min(first)
        assert remove(client, gone, first[gone]) == ErrorCode.NONE
        assert voters(client) == {key: added[key] for key in added if key != gone}
        assert remove(client, gone, first[gone]) == ErrorCode.VOTER_NOT_FOUND
        # Topics are still made, by the majority of now.
        with cluster.admin() as admin:
            admin.create_topic("after-the-change", 3)


def test_what_makes_no_sense_is_refused(cluster: bradbury.LocalCluster) -> None:
    with RawClient(cluster.bootstrap_servers) as client:
        node_id, directory_id = next(iter(voters(client).items()))
        assert add(client, 99, UUID(int=5)) == ErrorCode.INVALID_REQUEST
        assert (
            add(client, node_id, directory_id, cluster_id="another")
            == ErrorCode.INCONSISTENT_CLUSTER_ID
        )
        assert remove(client, node_id, UUID(int=5)) == ErrorCode.VOTER_NOT_FOUND
        assert remove(client, 99, directory_id) == ErrorCode.VOTER_NOT_FOUND


def test_the_quorum_says_when_each_node_asked_and_when_it_had_everything(
    cluster: bradbury.LocalCluster,
) -> None:
    began_ms = time.time_ns() // 1_000_000 - 60_000
    with RawClient(cluster.bootstrap_servers) as client:
        before = quorum(client)
        with cluster.admin() as admin:
            admin.create_topic("something-new")

        def newest(partition: PartitionDataResponse) -> dict[int, tuple[int, int]]:
            return {
                each.replica_id: (each.last_fetch_timestamp, each.last_caught_up_timestamp)
                for each in (*partition.current_voters, *partition.observers)
            }

        was = newest(before)
        assert len(was) == 4
        assert all(began_ms < caught_up <= last for last, caught_up in was.values())
        # Every node asks again and again, and has all there is then.
        waiting = set(was)
        while waiting:
            now = newest(quorum(client))
            waiting = {node for node in waiting if not min(now[node]) > max(was[node])}
