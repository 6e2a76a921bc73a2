"""How long does the client live that the tasks of a process share?"""

import threading

import bradbury
from bradbury.pipelines.ranges.fetch_options import FetchOptions
from bradbury.pipelines.ranges.reading_client import reading_client

LISTENERS = {
    "listeners": "INSIDE://:0,OUTSIDE://:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


def test_it_is_shared_until_its_cluster_is_closed_and_leaves_those_of_others(
    bootstrap: str,
) -> None:
    """A test suite with a cluster for each test would else end without threads or sockets."""
    kept = reading_client(bootstrap, FetchOptions())
    before = set(threading.enumerate())
    with bradbury.local(config=LISTENERS) as cluster, cluster.admin() as admin:
        admin.create_topic("flights")
        inside = cluster.bootstrap_servers_of("INSIDE")
        servers = [
            inside,
            inside.replace("127.0.0.1", "localhost"),
            cluster.bootstrap_servers_of("OUTSIDE"),
        ]
        clients = [reading_client(one, FetchOptions()) for one in servers]
        for client, one in zip(clients, servers, strict=True):
            view = client.run(client.topic("flights", timeout_ms=30_000))
            assert len(view.partitions) == 1
            assert reading_client(one, FetchOptions()) is client
    assert all(client.closed for client in clients)
    assert {one for one in threading.enumerate() if "-io" in one.name} <= before
    assert reading_client(bootstrap, FetchOptions()) is kept
    assert not kept.closed
