"""Programs that come from elsewhere: `ray job submit`, with Bradbury there or brought along; Ray Client."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

import bradbury
from bradbury.tests.packaging.interpreters import build_wheel
from bradbury.tests.support.ray.hand_started_ray import hand_started_ray
from bradbury.tests.support.ray.ray_settings import RAY_ENVIRONMENT

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(bradbury.__file__).resolve().parent
RECORDS = 100
AGENT_TRIES = 10
TOKEN = "0123456789abcdef" * 4
"""In the home, where an embedded Ray has left one: `ray start` wants it from everybody then."""
AS_PRINTED = {"RAY_AUTH_MODE": "token"}
"""What docs/deploy says that Ray's own commands and Ray Client need for it, and ours do not."""
BROUGHT = "runtime_resources"
"""The folder of Ray's in which a job has what it has brought."""

UP_JOB = f"""
import sys
import bradbury, ray
cluster = bradbury.up(sys.argv[1], port=0, namespace=sys.argv[2])

@ray.remote(num_cpus=0)
def produce(part):
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        for number in range({RECORDS}):
            producer.send("flights", b"%d/%d" % (part, number))
    return bradbury.__file__

with cluster.admin() as admin:
    admin.create_topic("flights", 2)
where = ray.get([produce.remote(part) for part in range(2)])
print("driver has", bradbury.__file__)
print("tasks have", where[0])
"""
READ_JOB = f"""
import sys
import bradbury
cluster = bradbury.connect(namespace=sys.argv[1])
found = []
with bradbury.Consumer(
    "flights", bootstrap=cluster.bootstrap_servers, auto_offset_reset="earliest"
) as consumer:
    while len(found) < 2 * {RECORDS}:
        found += consumer.poll(1000).column("value").to_pylist()
print("read", len(set(found)))
cluster.down()
"""
ACTORS_JOB = """
import json, sys, urllib.request
import bradbury, ray
from ray.util.state import list_actors

cluster = bradbury.up(sys.argv[1], port=0, namespace="bradbury")
with cluster.admin() as admin:
    admin.create_topic("flights", 2)
with bradbury.Producer() as producer:
    producer.send("flights", b"x").result(60)
group = bradbury.ConsumerGroup("flights", "delays", workers=1)
run = group.for_each(len)
queue = bradbury.Queue(name="images")
consumer = bradbury.ConsumerActor.remote("flights", group="readers")
producer = bradbury.ProducerActor.remote(client_id="feeder")
ray.get([consumer.subscription.remote(), producer.flush.remote()])
queue.put(1)
while not group.status().members[0].pid:
    pass
while True:
    found = list_actors(filters=[("state", "=", "ALIVE")], detail=True, limit=100)
    shown = sorted({one.repr_name or f"{one.class_name} {one.name}" for one in found})
    if any(name.startswith("WorkerProcess") for name in shown):
        break
print("shown", json.dumps(shown))
(node,) = [node for node in ray.nodes() if node["Alive"]]
url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
while True:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    if all(f"ray_bradbury_{name}" in text for name in ("requests", "bytes_in", "partitions")):
        break
print("exported", url)
queue.delete()
group.stop()
cluster.down()
"""
CLIENT = """
import sys
import ray
ray.init(sys.argv[1], namespace="bradbury", logging_level="ERROR")
import bradbury
for manage in (lambda: bradbury.up(port=0), bradbury.connect):
    try:
        manage()
    except Exception as error:
        print(type(error).__name__, error)
with bradbury.Admin() as admin:
    admin.create_topic("from-afar")
with bradbury.Producer() as producer:
    print(producer.send("from-afar", b"x").result(60).topic)
"""


class Submitted(NamedTuple):
    """A Ray to which jobs are submitted."""

    address: str
    dashboard: str
    client: str
    environment: dict[str, str]
    folder: Path

    def submit(
        self, program: str, *arguments: str, modules: Sequence[Path] = ()
    ) -> subprocess.CompletedProcess[str]:
        working_dir = Path(tempfile.mkdtemp(dir=self.folder))
        (working_dir / "job.py").write_text(program)
        command = ["job", "submit", f"--address={self.dashboard}", f"--working-dir={working_dir}"]
        if modules:
            listed = ", ".join(f'"{module}"' for module in modules)
            command.append(f'--runtime-env-json={{"py_modules": [{listed}]}}')
        ray = str(Path(sys.executable).parent / "ray")
        for _ in range(AGENT_TRIES):
            words = (*command, "--", "python", "job.py", *arguments)
            done = self.run(ray, *words, variables=AS_PRINTED)
            if "No available agent" not in done.stdout:  # a Ray that has just been started
                break
        return done

    def run(
        self, *command: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**self.environment, **(variables or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
            check=False,
        )


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submitted]:
    with ExitStack() as stack:
        ports = []
        for _ in range(3):
            free = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            ports.append(free.getsockname()[1])
    dashboard, client, agent = ports
    folder = tmp_path_factory.mktemp("jobs")
    home = tempfile.mkdtemp(prefix="bj-", dir="/tmp")
    environment = {
        **os.environ,
        "HOME": home,  # where no other cluster has its state file
        **RAY_ENVIRONMENT,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / ".path"),
        "RAY_TMPDIR": f"{home}/ray",
    }
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):  # of this process's own Ray
        environment.pop(name, None)
    (Path(home) / ".ray").mkdir()
    (Path(home) / ".ray" / "auth_token").write_text(TOKEN)
    options = [f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}"]
    options.append(f"--dashboard-agent-listen-port={agent}")  # by default one that others take
    with hand_started_ray(environment, [*options, "--include-dashboard=true"]) as address:
        yield Submitted(
            address,
            f"http://127.0.0.1:{dashboard}",
            f"ray://127.0.0.1:{client}",
            environment,
            folder,
        )
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.long  # a Ray with its dashboard; tests/cli/cluster joins one without
def test_a_job_brings_a_cluster_up_that_outlives_it(jobs: Submitted) -> None:
    """Bradbury is where Ray is, as in an image."""
    done = jobs.submit(UP_JOB, str(jobs.folder / "there"), "there")
    assert done.returncode == 0, done.stdout
    assert BROUGHT not in done.stdout.partition("driver has")[2]
    again = jobs.submit(READ_JOB, "there")
    assert again.returncode == 0, again.stdout
    assert f"read {2 * RECORDS}" in again.stdout


@pytest.mark.deep
def test_a_job_brings_along_what_is_in_the_wheel(jobs: Submitted) -> None:
    """As docs/deploy prints it: without a Ray and an Arrow of its own. Its actors have these
    modules, too: brokers that it starts need nothing else.
    """
    wheel = build_wheel(ROOT, jobs.folder)
    modules = jobs.folder / "job-modules"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(modules), str(wheel)], check=True, timeout=300)
    brought = modules / "bradbury"
    done = jobs.submit(UP_JOB, str(jobs.folder / "brought"), "brought", modules=[brought])
    assert done.returncode == 0, done.stdout
    said = done.stdout.partition("driver has")[2]
    assert said.count(BROUGHT) == 2, said
    again = jobs.submit(READ_JOB, "brought", modules=[brought])
    assert again.returncode == 0, again.stdout
    assert f"read {2 * RECORDS}" in again.stdout


@pytest.mark.deep
def test_actors_and_metrics_are_where_users_of_ray_look(jobs: Submitted) -> None:
    """The State API, as `ray list actors` and the dashboard have it, and the port for Prometheus."""
    done = jobs.submit(ACTORS_JOB, str(jobs.folder / "shown"))
    assert done.returncode == 0, done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("shown "))
    shown = json.loads(line.removeprefix("shown "))
    assert "ControllerActor controller" in shown
    for begin in ("BrokerActor(", "GroupCoordinatorActor(", "PartitionActor("):
        assert any(name.startswith(begin) for name in shown), shown
    assert {
        "MemberProcess(delays, delays-0)",
        "WorkerProcess(len)",
        "QueueProcess(images)",
        "ConsumerProcess(flights, readers)",
        "ProducerProcess(feeder)",
    } <= set(shown)
    assert "exported http" in done.stdout


@pytest.mark.long  # tests/cli/cluster/test_ray_client.py is refused, too
def test_ray_client_is_refused_what_it_cannot_do_and_its_producers_work(jobs: Submitted) -> None:
    command = [sys.executable, "-m", "bradbury.cli"]
    at = ["--address", jobs.address]
    up = jobs.run(
        *command, "up", "--detach", *at, "--port", "0", "--data-dir", str(jobs.folder / "client")
    )
    assert up.returncode == 0, up.stdout
    for _ in range(AGENT_TRIES):
        done = jobs.run(sys.executable, "-c", CLIENT, jobs.client, variables=AS_PRINTED)
        if "Starting Ray client server failed" not in done.stdout:  # Ray gives it 30 s
            break
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("UpError Ray Client (ray://) cannot start or manage a cluster") == 2
    assert done.stdout.splitlines()[-1] == "from-afar"
    refused = jobs.run(*command, "status", "--address", jobs.client)
    assert refused.returncode == 1
    assert "Ray Client (ray://) cannot" in refused.stdout
    assert jobs.run(*command, "down", *at).returncode == 0
