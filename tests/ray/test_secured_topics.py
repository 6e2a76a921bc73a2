"""Do Datasets, queues, groups and their tasks get in where a password is asked for, without showing it?

Ray's workers have no BRADBURY_CLIENT_CONFIG here: what they know they have been given.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
from ray.data._internal.metadata_exporter import sanitize_for_struct

import bradbury
from bradbury.discovery.state_file import CLIENT_CONFIG_VARIABLE
from bradbury.protocol.errors import AuthenticationFailed, InvalidConfig
from bradbury.tests.support.certificates import CertificateAuthority
from bradbury.tests.support.committed_records import committed_records
from bradbury.tests.support.secured_cluster import PASSWORD, secured_cluster
from bradbury.tests.support.storage.numbered import numbers_in

pytestmark = [pytest.mark.ray, pytest.mark.slow]

COUNT = 200


@pytest.fixture(scope="module")
def cluster(
    ray_cluster: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[bradbury.LocalCluster, dict[str, Any]]]:
    """Not Ray's own: who is given nothing does not find it, and is not let in."""
    ray.data.DataContext.get_current().enable_progress_bars = False
    authority = CertificateAuthority(tmp_path_factory.mktemp("certificates"))
    with secured_cluster(authority) as secured:
        yield secured


@pytest.fixture(scope="module")
def servers(cluster: Any) -> str:
    return str(cluster[0].bootstrap_servers)


@pytest.fixture(scope="module")
def alice(cluster: Any) -> dict[str, Any]:
    return dict(cluster[1])


@pytest.fixture(scope="module")
def by_reference(alice: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    secrets = tmp_path_factory.mktemp("secrets") / "kafka"
    secrets.write_text(f"password={PASSWORD}\n")
    return alice | {"sasl_password": f"${{file:{secrets}:password}}"}


@pytest.fixture
def topic(servers: str, alice: dict[str, Any], request: pytest.FixtureRequest) -> str:
    """Filled with numbers."""
    name = request.node.name.removeprefix("test_")[:100]
    with bradbury.Admin(servers, **alice) as admin:
        admin.create_topic(name, 2)
        admin.create_topic(f"{name}-out", 2)
    with bradbury.Producer(servers, **alice) as producer:
        producer.send_batch(name, [b"%d" % number for number in range(COUNT)]).result(60)
    return name


def numbers(servers: str, topic: str, security: dict[str, Any]) -> list[int]:
    return sorted(int(each.value) for each in committed_records(servers, topic, **security))


def test_a_dataset_is_read_and_written_by_tasks(
    servers: str, alice: dict[str, Any], by_reference: dict[str, Any], topic: str
) -> None:
    read = bradbury.read_topic(topic, bootstrap_servers=servers, columns=["value"], **alice)
    bradbury.write_topic(read, f"{topic}-out", bootstrap_servers=servers, **by_reference)
    assert numbers(servers, f"{topic}-out", alice) == list(range(COUNT))


def test_a_dataset_without_an_end_is_committed(
    servers: str, by_reference: dict[str, Any], topic: str
) -> None:
    read = bradbury.read_topic(
        topic, bootstrap_servers=servers, trigger="continuous", group_id=topic, **by_reference
    )
    seen = 0
    for batch in bradbury.committed_batches(read, batch_size=None):
        seen += len(batch["value"])
        if seen >= COUNT:
            break
    assert seen == COUNT


def test_no_password_is_in_what_ray_data_shows(
    servers: str, alice: dict[str, Any], topic: str
) -> None:
    for options in ({}, {"trigger": "continuous", "group_id": topic}):
        read: Any = bradbury.read_topic(topic, bootstrap_servers=servers, **options, **alice)
        operators = [each._get_args() for each in read._logical_plan.dag.post_order_iter()]
        topics = [
            getattr(each, "topics", None) for each in read._logical_plan.dag.post_order_iter()
        ]
        shown = f"{read!r} {read.explain()} {sanitize_for_struct([operators, topics])}"
        assert PASSWORD not in shown


def test_a_wrong_password_is_said_at_once_and_in_one_line(
    servers: str, alice: dict[str, Any], topic: str
) -> None:
    wrong = alice | {"sasl_password": "wrong"}
    with pytest.raises(AuthenticationFailed, match="not authenticated: .*credentials") as caught:
        bradbury.read_topic(topic, bootstrap_servers=servers, **wrong)
    assert "\n" not in str(caught.value)
    with pytest.raises(AuthenticationFailed, match="not authenticated"):
        bradbury.write_topic(
            ray.data.range(1), topic, bootstrap_servers=servers, value_encoder="arrow", **wrong
        )


def test_a_task_where_the_secret_is_not_says_so_at_the_end_of_its_failure(
    servers: str, alice: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_OF_THE_DRIVER", PASSWORD)
    options = alice | {"sasl_password": "${env:ONLY_OF_THE_DRIVER}"}
    read = bradbury.read_topic(topic, bootstrap_servers=servers, **options)
    with pytest.raises(Exception, match="there is no such environment variable") as caught:
        read.count()
    said = [line for line in str(caught.value).splitlines() if "ONLY_OF_THE_DRIVER}:" in line]
    assert said
    assert all("InvalidConfig: ${env:ONLY_OF_THE_DRIVER}: there is" in line for line in said)
    assert PASSWORD not in str(caught.value)


def test_a_client_file_reaches_tasks_by_the_runtime_environment_and_not_by_the_drivers(
    servers: str, alice: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in alice.items()))
    monkeypatch.setenv(CLIENT_CONFIG_VARIABLE, str(path))

    @ray.remote(num_cpus=0)
    def named() -> str | None:
        return os.environ.get(CLIENT_CONFIG_VARIABLE)

    @ray.remote(num_cpus=0, runtime_env={"env_vars": {CLIENT_CONFIG_VARIABLE: str(path)}})
    def topics() -> list[str]:
        with bradbury.Admin(servers) as admin:
            return admin.list_topics()

    assert ray.get(named.remote(), timeout=60) is None
    assert isinstance(ray.get(topics.remote(), timeout=120), list)


def test_a_queue_is_used_by_tasks(servers: str, by_reference: dict[str, Any]) -> None:
    @ray.remote(num_cpus=0)
    def put(queue: bradbury.Queue) -> None:
        for number in range(10):
            queue.put(number)

    queue = bradbury.Queue(bootstrap=servers, **by_reference)
    try:
        ray.get(put.remote(queue), timeout=120)
        assert [queue.get(timeout=60) for _ in range(10)] == list(range(10))
        assert PASSWORD not in repr(queue.__dict__)
    finally:
        queue.shutdown()


def test_a_group_reads_commits_and_writes_in_transactions(
    servers: str, by_reference: dict[str, Any], topic: str
) -> None:
    def halves(table: pa.Table) -> dict[str, list[bytes]]:
        return {f"{topic}-out": [b"%d" % number for number in numbers_in(table)]}

    with bradbury.ConsumerGroup(
        topic,
        topic,
        exactly_once=True,
        auto_offset_reset="earliest",
        bootstrap=servers,
        **by_reference,
    ) as group:
        group.for_each(halves, stop_at_end=True).wait(120)
    assert numbers(servers, f"{topic}-out", by_reference) == list(range(COUNT))


@pytest.mark.parametrize(
    "begin",
    [
        lambda options: bradbury.ConsumerActor.remote("t", **options),
        lambda options: bradbury.ProducerActor.remote(**options),
        lambda options: bradbury.ConsumerGroup("t", "g", **options),
        lambda options: bradbury.Queue(**options),
    ],
    ids=["ConsumerActor", "ProducerActor", "ConsumerGroup", "Queue"],
)
def test_an_actor_is_not_given_a_secret_that_ray_would_keep(
    begin: Any, servers: str, alice: dict[str, Any]
) -> None:
    with pytest.raises(InvalidConfig, match=r"sasl_password: Ray keeps the arguments") as caught:
        begin({"bootstrap": servers, **alice})
    assert PASSWORD not in str(caught.value)


def test_serve_is_not_given_a_secret_that_it_would_show(
    servers: str, alice: dict[str, Any], by_reference: dict[str, Any], topic: str
) -> None:
    def serve(security: dict[str, Any]) -> Any:
        return bradbury.serve_topic(
            numbers_in,
            topic,
            topic,
            max_replicas=2,
            target_lag=10,
            bootstrap=servers,
            **security,
        )

    with pytest.raises(InvalidConfig, match=r"sasl_password: Ray keeps the arg") as caught:
        serve(alice)
    assert PASSWORD not in str(caught.value)
    assert PASSWORD not in repr(serve(by_reference))
