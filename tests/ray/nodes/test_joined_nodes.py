"""Does a Ray node that joins get its broker and its share by itself, and lose nothing by leaving?"""

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from cryptography import x509

import bradbury
from bradbury.clients.security.client_config_file import read_client_options
from bradbury.controller.node.controller_finder import CONTROLLER
from bradbury.launch.secure.certificate_authority import CertificateAuthority
from bradbury.launch.secure.node_certificate import install, request_if_needed
from bradbury.tests.support.ray.ray_nodes import RayNode, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROLE = {"log-role": "joined"}
Join = Callable[[str], RayNode]


@pytest.fixture
def join(ray_cluster: str, cluster: bradbury.Cluster) -> Iterator[Join]:
    """Starts a further node of the test run's Ray, whose cluster stays out of this."""
    nodes = []

    def start(label: str) -> RayNode:
        nodes.append(RayNode(ray_cluster, label, "joined"))
        return nodes[-1].wait_until_alive()

    try:
        yield start
    finally:
        for node in nodes:
            node.end()
        for node in nodes:
            node.wait_until_dead()


def machines(cluster: bradbury.Cluster, topic: str) -> list[set[str]]:
    """The nodes of each partition's replicas."""
    names = {node["node_id"]: node["machine"] for node in cluster.status()["nodes"]}
    with cluster.admin() as admin:
        partitions = admin.describe_topics([topic])[0].partitions
    return [{names[node] for node in partition.replicas} for partition in partitions]


def left_out(cluster: bradbury.Cluster) -> dict[str, str]:
    """Why nodes get no broker, by their names."""
    reasons: dict[str, str] = cluster.status()["left_out"]
    return reasons


def serving(cluster: bradbury.Cluster) -> list[str]:
    """The machines all of whose nodes are in service."""
    nodes = cluster.status()["nodes"]
    fenced = {node["machine"] for node in nodes if node["fenced"]}
    roles = [(node["machine"], role) for node in nodes for role in node["roles"]]
    wanted = ("broker", "group", "partition")
    found = {machine for machine, _ in roles if all((machine, role) in roles for role in wanted)}
    return sorted(found - fenced)


@contextmanager
def joined_by_another(join: Join, data: Path) -> Iterator[tuple[bradbury.Cluster, RayNode]]:
    """A cluster of one node, j1, that another one has joined, j2; and that one."""
    join("j1")
    with bradbury.up(str(data), port=0, namespace="joined", node_label=ROLE) as mine:
        assert serving(mine) == ["j1"]
        before = {each["node_id"] for each in mine.status()["nodes"]}
        node = join("j2")
        wait_for(lambda: serving(mine) == ["j1", "j2"], 60)
        assert {each["node_id"] for each in mine.status()["nodes"]} > before
        yield mine, node


@pytest.mark.long  # nodes that come and go
def test_a_node_that_joins_serves_by_itself_and_gets_new_partitions(
    join: Join, cluster: bradbury.Cluster, tmp_path: Path
) -> None:
    with joined_by_another(join, tmp_path / "d") as (mine, _):
        with mine.admin() as admin:
            admin.create_topic("t", 4, replication_factor=2)
        assert machines(mine, "t") == [{"j1", "j2"}] * 4
        with bradbury.Producer(mine.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number)
        assert mine.status()["under_replicated"] == 0
        # The session's own cluster is not meant for it.
        assert {node["machine"] for node in cluster.status()["nodes"]}.isdisjoint({"j1", "j2"})


@pytest.mark.long  # test_drained_nodes.py has one that comes back
def test_a_node_that_joined_and_went_comes_back_as_the_one_that_it_was(
    join: Join, tmp_path: Path
) -> None:
    with joined_by_another(join, tmp_path / "d") as (mine, node):
        with mine.admin() as admin:
            admin.create_topic("t", 4, replication_factor=2)
        with bradbury.Producer(mine.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number)
        known = {each["node_id"]: each["machine"] for each in mine.status()["nodes"]}
        node.kill()  # and nobody takes its place
        wait_for(lambda: serving(mine) == ["j1"])
        node.start_again()
        node.wait_until_alive()
        wait_for(lambda: serving(mine) == ["j1", "j2"])
        wait_for(lambda: mine.status()["under_replicated"] == 0)
        assert {each["node_id"]: each["machine"] for each in mine.status()["nodes"]} == known


def days_left(certificate: Path) -> int:
    """0: there is none."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except FileNotFoundError:
        return 0
    return (found.not_valid_after_utc - dt.datetime.now(dt.UTC)).days


def install_one_that_ends_soon(data: Path, keys: Path) -> None:
    """A certificate of the cluster's own authority, as it is after ten months."""
    now = dt.datetime.now(dt.UTC)
    authority = CertificateAuthority.open(keys, "unused", now=now)
    (data / "tls" / "node.pem").unlink()
    request = request_if_needed(str(data), ["127.0.0.1"], authority.certificate, now)
    assert request is not None
    old = authority.sign(request, ["127.0.0.1"], now=now - dt.timedelta(days=300))
    settings = (data / "tls" / "client.properties").read_text()
    install(str(data), old, authority.certificate, settings)


@pytest.mark.long  # a cluster of its own
def test_nodes_of_a_secured_cluster_get_certificates_when_they_join_and_before_they_end(
    join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of this machine share a folder: it is emptied, as it is on a machine of their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    namespace, data = "joined-secured", tmp_path / "d"
    certificate = data / "tls" / "node.pem"
    keys = tmp_path / "state" / "bradbury" / f"secure-{namespace}"
    join("j1")
    with bradbury.up(str(data), port=0, namespace=namespace, node_label=ROLE, secure=True) as mine:
        certificate.unlink()
        join("j2")
        wait_for(lambda: serving(mine) == ["j1", "j2"], 60)
        assert days_left(certificate) > 300
        with mine.admin() as admin:
            admin.create_topic("t", 4, replication_factor=2)
        options = read_client_options(keys / "client.properties")
        with bradbury.Producer(mine.bootstrap_servers, **options) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number)
        assert mine.status()["under_replicated"] == 0

        install_one_that_ends_soon(data, keys)
        assert days_left(certificate) < 100
        ray.kill(ray.get_actor(CONTROLLER, namespace), no_restart=False)  # looks when it begins
        wait_for(lambda: days_left(certificate) > 300, 60)

        # Without the key nobody can; a node that joins then is told what to do.
        (keys / "ca.key").rename(tmp_path / "ca.key")
        certificate.unlink()
        join("j3")
        wait_for(lambda: "j3" in left_out(mine), 60)
        assert "`bradbury up --secure`" in left_out(mine)["j3"]
        (tmp_path / "ca.key").rename(keys / "ca.key")
        wait_for(lambda: serving(mine) == ["j1", "j2", "j3"], 60)
