"""What becomes of a Ray node's partitions when Ray drains it? Others lead before it ends."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.tests.crash.cluster import ROLE
from bradbury.tests.deploy.probe import Writer, in_sync, missing, read_all
from bradbury.tests.support.ray.ray_nodes import RayNode, alive_labels, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.slow]


TOPIC = "kept"


def problems(cluster: bradbury.Cluster) -> list[object]:
    status = cluster.status()
    found = [one["problem"] for one in status["actors"] if one.get("problem")]
    return found + [one for one in status["nodes"] if one["fenced"]]


@pytest.mark.long  # nodes that come and go; one that joins is in make test
def test_a_drained_node_lets_others_lead_first_and_its_data_is_there_when_it_is_back(
    nodes: list[RayNode], tmp_path: Path
) -> None:
    config = {"broker.session.timeout.ms": 60_000}  # what is silent is not noticed in this test
    data = tmp_path / "data"
    with bradbury.up(
        str(data), port=0, namespace="drained", node_label={"log-role": ROLE}, config=config
    ) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        topic = NewTopic(TOPIC, 6, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(60)
        drained = nodes[0]
        mine = [one for one in cluster.status()["nodes"] if one["machine"] == drained.label]
        assert sum(one["leaders"] for one in mine) > 0
        with Writer(servers, TOPIC) as writer:
            wait_for(lambda: len(writer.acknowledged) > 100)
            writer.begin_gap()
            drained.drain()
            wait_for(lambda: drained.label not in alive_labels(), what="Ray does not end it")
            count = len(writer.acknowledged)
            wait_for(lambda: len(writer.acknowledged) > count + 100)
            assert writer.longest_gap < 20
        assert writer.failed == []
        assert set(in_sync(servers, TOPIC)) == {2}
        assert missing(writer.acknowledged, read_all(servers, TOPIC)) == []
        marks = list(data.glob(f"{drained.label}/*/.kafka_cleanshutdown"))
        assert marks, "it was not stopped cleanly"

        drained.kill()  # what is left of it: `ray start` itself
        drained.start_again()
        drained.wait_until_alive()
        wait_for(lambda: set(in_sync(servers, TOPIC)) == {3}, 240)
        wait_for(lambda: problems(cluster) == [])
