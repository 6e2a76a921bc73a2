"""Is `local()` a whole cluster: of many nodes, keeping its data, refusing what it cannot use?"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.actors.network.acceptor import PortInUse
from bradbury.discovery.ray_errors import UpError
from bradbury.protocol.errors import InvalidConfig
from bradbury.storage.disk.storage_failure import DataDirectoryError


def test_three_nodes_share_the_partitions_and_clients_find_the_owners() -> None:
    with bradbury.local(nodes=3) as cluster:
        first_only = cluster.bootstrap_servers.split(",")[0]
        admin = AdminClient({"bootstrap.servers": first_only})
        admin.create_topics([NewTopic("t", 6, 1)])["t"].result(60)
        described = admin.list_topics("t", timeout=60)
        leaders = [part.leader for part in described.topics["t"].partitions.values()]
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
        producer = Producer({"bootstrap.servers": first_only})
        for number in range(60):
            producer.produce("t", b"%d" % number, partition=number % 6)
        assert producer.flush(10) == 0
        consumer = Consumer({"bootstrap.servers": first_only, "group.id": "x"})
        consumer.assign([TopicPartition("t", index, 0) for index in range(6)])
        values = [int(message.value()) for message in consumer.consume(60, 20)]
        consumer.close()
        assert sorted(values) == list(range(60))


def test_a_directory_that_is_given_keeps_topics_records_and_ids(tmp_path: Path) -> None:
    ids = []
    for round_number in range(3):
        with bradbury.local(str(tmp_path)) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            if round_number == 0:
                admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(60)
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            producer.produce("kept", b"round %d" % round_number)
            assert producer.flush(10) == 0
            consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "x"})
            consumer.assign([TopicPartition("kept", 0, 0)])
            values = [m.value() for m in consumer.consume(round_number + 1, 10)]
            consumer.close()
            assert values == [b"round %d" % number for number in range(round_number + 1)]
            ids.append((admin.list_topics(timeout=60).cluster_id, cluster.nodes[0].node_id))
    assert len(set(ids)) == 1


def test_a_temporary_directory_is_gone_afterwards() -> None:
    with bradbury.local() as cluster:
        path = Path(cluster.data_dir)
        assert path.is_dir()
    assert not path.exists()


def test_a_temporary_directory_of_a_program_that_closes_nothing_is_gone_after_it(
    tmp_path: Path,
) -> None:
    program = (
        "import bradbury, os\n"
        "cluster = bradbury.local()\n"
        "bradbury.Producer(cluster.bootstrap_servers, allow_auto_create_topics=True)"
        ".send('gates', b'open').result()\n"
        "print(os.path.isdir(cluster.data_dir), cluster.data_dir, flush=True)\n"
        "if os.fork() == 0:\n"
        "    raise SystemExit  # a child that ends does not take the directory away\n"
        "os.wait()\n"
        "assert os.path.isdir(cluster.data_dir)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    existed, _, path = ended.stdout.strip().partition(" ")
    assert (existed, Path(path).parent) == ("True", tmp_path)
    assert not list(tmp_path.glob("bradbury-*"))


def test_a_directory_in_use_a_port_in_use_and_a_bad_setting_are_one_line(tmp_path: Path) -> None:
    with bradbury.local(str(tmp_path)) as cluster:
        with pytest.raises(DataDirectoryError, match="in use by a running broker; stop it"):
            bradbury.local(str(tmp_path))
        taken = int(cluster.bootstrap_servers.rsplit(":", 1)[1])
        with pytest.raises(PortInUse, match="choose another --port"):
            bradbury.local(port=taken)
        with socket.create_connection(("127.0.0.1", taken), 5):
            pass
    with pytest.raises(InvalidConfig, match="unknown broker config 'no.such'"):
        bradbury.local(config={"no.such": 1})


EVERYWHERE = "0.0.0.0"


def test_a_listener_beyond_loopback_that_asks_nobody_is_refused_unless_that_is_said() -> None:
    with pytest.raises(UpError, match=r"PLAINTEXT has no authentication.*insecure=True"):
        bradbury.local(host=EVERYWHERE)
    with bradbury.local(host=EVERYWHERE, insecure=True) as cluster:
        assert cluster.nodes[0].status()["metrics"].startswith(EVERYWHERE)


@pytest.mark.parametrize(
    ("config", "host"), [({}, "127.0.0.1"), ({"bradbury.metrics.port": 0}, EVERYWHERE)]
)
def test_metrics_of_a_node_that_authenticates_are_on_loopback_unless_a_port_is_given(
    config: dict[str, object], host: str
) -> None:
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
    sasl = {
        "listeners": "SASL_PLAINTEXT://:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
    }
    with bradbury.local(host=EVERYWHERE, config=sasl | config) as cluster:
        assert cluster.nodes[0].status()["metrics"].split(":")[0] == host
