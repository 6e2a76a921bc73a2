"""Does a Ray Serve deployment turn each record into one, by as many replicas as the lag needs?"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ray import serve

import bradbury
from bradbury.tests.support.storage.numbered import fill, numbers_in

pytestmark = [pytest.mark.ray, pytest.mark.slow]

LIGHT = {"ray_actor_options": {"num_cpus": 0.1}}
LONG_SESSION = {"session_timeout_ms": 600_000, "auto_offset_reset": "earliest"}
"""Who waits for a dead member's session waits longer than the test may take."""


@pytest.fixture(scope="module", autouse=True)
def serving(cluster: bradbury.Cluster) -> Iterator[None]:
    serve.start(proxy_location="Disabled")
    yield
    serve.shutdown()


@pytest.fixture
def output(cluster: bradbury.Cluster, topic: str) -> str:
    with cluster.admin() as admin:
        admin.create_topic(f"{topic}-out", 2)
    return f"{topic}-out"


@pytest.fixture
def application(topic: str) -> Iterator[str]:
    yield topic
    serve.delete(topic)


class Doubles:
    """Slow enough for others to do something in the middle of a batch."""

    def __call__(self, table: pa.Table) -> list[bytes]:
        time.sleep(0.02)
        return [b"%d" % (2 * number) for number in numbers_in(table)]


def read(topic: str, count: int) -> list[int]:
    """At least so many committed numbers, and all that there are."""
    found: list[int] = []
    with bradbury.Consumer(
        topic, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        while True:
            table = consumer.poll(1_000)
            found += numbers_in(table)
            if len(found) >= count and not table.num_rows:
                return found


def members(cluster: bradbury.Cluster, group: str) -> set[str | None]:
    with cluster.admin() as admin:
        (described,) = admin.describe_groups([group])
    return {member.instance_id for member in described.members}


def running(application: str) -> int:
    (deployment,) = serve.status().applications[application].deployments.values()
    return deployment.replica_states.get("RUNNING", 0)


@pytest.mark.long  # Ray Serve starts and a replica is killed
def test_a_killed_replica_is_replaced_and_each_record_is_answered_once(
    cluster: bradbury.Cluster, topic: str, output: str, application: str
) -> None:
    fill(topic, 2_000)
    handle = serve.run(
        bradbury.serve_topic(
            Doubles,
            topic,
            topic,
            output=output,
            exactly_once=True,
            batch_records=20,
            min_replicas=2,
            deployment_options=LIGHT,
            **LONG_SESSION,
        ),
        name=application,
        route_prefix=None,
    )
    while len(first := members(cluster, topic)) < 2:
        pass  # each look is a round trip
    while not (status := handle.status.remote().result()).records:
        pass
    os.kill(status.pid, signal.SIGKILL)
    found = read(output, 2_000)
    assert sorted(found) == [2 * number for number in range(2_000)]
    while len(now := members(cluster, topic)) < 2 or status.instance_id in now:
        pass
    assert len(now & first) == 1  # one went on, the dead one is gone, another took its place
    fill(topic, 100, start=2_000)
    assert sorted(read(output, 2_100)) == [2 * number for number in range(2_100)]


@pytest.mark.long  # tests/pipelines/test_lag_policy.py tries the policy
def test_replicas_come_with_the_lag_and_leave_the_group_when_it_is_gone(
    cluster: bradbury.Cluster, topic: str, output: str, application: str, tmp_path: Path
) -> None:
    gate = tmp_path / "open"

    def waits(records: list[Any]) -> list[tuple[bytes, bytes]]:
        while not gate.exists():
            time.sleep(0.05)
        return [(record.key, record.value) for record in records]

    fill(topic, 2_000)
    serve.run(
        bradbury.serve_topic(
            waits,
            topic,
            topic,
            output=output,
            exactly_once=True,
            batch_format="records",
            batch_records=50,
            max_replicas=3,
            target_lag=500,
            upscale_delay_s=0,
            downscale_delay_s=1,
            revoke_timeout_ms=200,
            deployment_options=LIGHT,
            **LONG_SESSION,
        ),
        name=application,
        route_prefix=None,
    )
    while running(application) < 3 or len(members(cluster, topic)) < 3:
        pass  # each look is a round trip
    gate.touch()
    assert sorted(read(output, 2_000)) == list(range(2_000))
    while running(application) > 1 or len(members(cluster, topic)) > 1:
        pass
    fill(topic, 10, start=2_000)
    assert sorted(read(output, 2_010)) == list(range(2_010))
    serve.delete(application)
    assert members(cluster, topic) == set()
    with cluster.admin() as admin:
        assert admin.lag(topic).records == 0


@pytest.mark.long  # a killed replica is replaced the same way
def test_a_batch_that_fails_makes_the_replica_unhealthy_and_is_done_again(
    cluster: bradbury.Cluster, topic: str, output: str, application: str, tmp_path: Path
) -> None:
    mark = tmp_path / "mended"

    def picky(table: pa.Table) -> list[bytes]:
        if not mark.exists():
            mark.touch()
            raise ValueError("not today")
        return table.column("value").to_pylist()

    fill(topic, 50)
    serve.run(
        bradbury.serve_topic(
            picky,
            topic,
            topic,
            output=output,
            deployment_options={**LIGHT, "health_check_period_s": 0.2},
            **LONG_SESSION,
        ),
        name=application,
        route_prefix=None,
    )
    assert sorted(read(output, 50)) == list(range(50))


@pytest.mark.long  # one more deployment
def test_a_constructor_that_raises_fails_the_deployment(topic: str, application: str) -> None:
    class Broken:
        def __init__(self) -> None:
            raise ValueError("no model here")

        def __call__(self, table: pa.Table) -> None: ...

    with pytest.raises(RuntimeError):
        serve.run(
            bradbury.serve_topic(
                Broken,
                topic,
                topic,
                deployment_options={**LIGHT, "max_constructor_retry_count": 1},
            ),
            name=application,
            route_prefix=None,
        )
    (deployment,) = serve.status().applications[application].deployments.values()
    assert "no model here" in deployment.message
