"""A node that has just gone leads nothing any more, and is listed as a broker for a moment still."""

import threading
import time

import bradbury
from bradbury.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from bradbury.tests.support.ray.three_nodes import until
from bradbury.tests.support.wire.raw_client import RawClient


def test_clients_hear_of_the_next_leader_while_the_former_one_is_still_listed() -> None:
    with bradbury.local(nodes=3) as cluster, bradbury.Admin(cluster.bootstrap_servers) as admin:
        gone = admin.create_topic("t", replication_factor=3).partitions[0].leader
        index = [node.node_id for node in cluster.nodes].index(gone)
        seen: list[tuple[int, list[int]]] = []
        is_known = threading.Event()

        def watch() -> None:
            """The leader and the brokers that another node tells, until the one is not listed."""
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            with RawClient(cluster.bootstrap_servers.split(",")[index - 1]) as client:
                while not seen or gone in seen[-1][1]:
                    answer = client.call(asked, MetadataResponse, 12)
                    listed = [broker.node_id for broker in answer.brokers]
                    # The topic is served by its leader already; this node may hear of it later.
                    for partition in answer.topics[0].partitions:
                        seen.append((partition.leader_id, listed))
                        is_known.set()
                    time.sleep(0.02)

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        assert is_known.wait(60)
        cluster.stop_node(index)
        # Any node may answer, and one may hear of it later than another.
        until(lambda: gone not in [each.node_id for each in admin.describe_cluster().brokers])
        watching.join(60)
        assert not watching.is_alive()
    assert len(seen[-1][1]) == 2
    assert any(leader not in (-1, gone) and gone in listed for leader, listed in seen)
