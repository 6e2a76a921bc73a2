"""`ray up` on three machines that are one, and what becomes of the records.

    make deploy-test                    # or: python -m bradbury.tests.deploy.ray_up [--wheels DIR] [--only PART ...]

The steps, each shown with its seconds; the first that fails ends it with exit code 1:
    wheel, machines, `ray up` of docs/deploy/on-prem.yaml over sshd on 127.0.0.1, .2, .3
    `bradbury up` on all of them; the whole demo with replication factor 3, Spark's executors on
        other machines than its driver, its rows from all of them
    by `ray submit`, each compared with a batch:
        spark_jobs.py: loads, a replay, a flow, reads, a stream with state, a mirror, a migration
        ray_jobs.py: a load and a flow by tasks of Ray
        pipeline_driver.py: a declarative pipeline
        mirror_driver.py: a mirror, of whose workers each is killed
        stream_driver.py: six streams with state; kill -9 of an executor, then of the driver, which
            is submitted again, and goes on while a machine dies
    a writer that does not stop; kill -9 of everything on that machine: the others serve; it comes
        back, and all are in sync
    `ray down`, `ray up`, `bradbury up`: every record is where it was
What is run on the head are the commands of docs/deploy/README.md, as they are printed there; added
is only what three machines in one need.

On a machine that has no namespaces, no root or no sshd it says so in one line, and ends with 0.
"""

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

import bradbury
from bradbury.cli.demo.flights import load_flights
from bradbury.tests.deploy.journey import ADDRESSES, Failed, Journey, lab_ports
from bradbury.tests.deploy.machines import ROOT, Lab, NotHere
from bradbury.tests.deploy.mirror_deaths import lose_mirror_workers
from bradbury.tests.deploy.probe import Writer, in_sync, missing, read_all
from bradbury.tests.deploy.stream_deaths import Streams
from bradbury.tests.support.ray.ray_nodes import wait_for

PARTS = ("demo", "spark", "ray", "pipeline", "mirror", "streams")
WORK = ("driver", "tasks")
"""What a program says of its session, besides its jobs."""
NUMBERED = "numbered"
FLIGHTS = "flights"
ROWS = 336_776
WHEEL_SECONDS = 1800
RECOVERY_SECONDS = 240
MOST_GAP_SECONDS = 45
INTERRUPTED = 130


def build_wheel(folder: Path) -> Path:
    """Build a wheel from the files that git does not ignore, in a copy of the checkout."""
    source = folder / "source"
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    environment = Path(sys.prefix)
    # With the environment of the checkout, which has all that builds it: the copy is not installed there.
    try:
        done = subprocess.run(
            [
                "make",
                f"VENV={environment}",
                "-o",
                f"{environment}/.build",
                ".path/bradbury",
                "wheel",
            ],
            cwd=source,
            check=False,
            capture_output=True,
            text=True,
            timeout=WHEEL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Failed(
            f"the wheel is not built within {WHEEL_SECONDS} s on this busy machine; build it before, "
            "`make wheel`, and give its folder, `--wheels wheels`"
        ) from None
    if done.returncode:
        raise Failed(f"the wheel cannot be built: {done.stderr.strip()}")
    return source / "wheels"


def travel(
    journey: Journey, folder: Path, wheels: Path | None, parts: Collection[str] = PARTS
) -> None:
    """All steps. wheels: those to install; None: they are built. Raises Failed."""
    with journey.step("wheel") as saw:
        wheels = wheels or build_wheel(folder)
        saw(", ".join(sorted(wheel.name for wheel in wheels.glob("*.whl"))))
    with journey.step("machines") as saw:
        for name, address in ADDRESSES.items():
            journey.machines[name] = journey.lab.machine(name, address)
            journey.machines[name].start()
        journey.write_config(wheels)
        saw(f"sshd on {', '.join(ADDRESSES.values())}, port {journey.ports['ssh']}")
    with journey.step("ray up") as saw:
        journey.ray_up()
        saw(f"Ray nodes {', '.join(sorted(journey.labels()))}; {journey.installed(wheels)}")
    with journey.step("bradbury up") as saw:
        servers = journey.bradbury_up()
        status = journey.status()
        saw(f"{len(status['actors'])} actors on {len({a['name'] for a in status['actors']})} nodes")
        _expect_all_machines(status)
    _jobs(journey, servers, status, parts)
    streams = None
    if "streams" in parts:
        with journey.step("streams: an executor dies, then the driver") as saw:
            streams = Streams(journey, servers)
            streams.lose_executor_and_driver(saw)
    flights = read_all(servers, FLIGHTS)
    if len(flights) != ROWS:
        raise Failed(f"{len(flights)} of {ROWS} flights can be read")
    _create_numbered(servers)
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(Writer(servers, NUMBERED))
        driver = stack.enter_context(streams.under_way()) if streams else None
        wait_for(lambda: len(writer.acknowledged) > 300, 60, "nothing is acknowledged")
        _kill_one(journey, writer, servers, flights)
        if streams and driver:
            with journey.step("streams without n3") as saw:
                streams.expect_go_on(driver, saw)
        _bring_back(journey, writer, servers)
        if streams and driver:
            with journey.step("streams at their end") as saw:
                streams.expect_exact(driver, saw)
    if writer.failed:
        raise Failed(f"records failed: {writer.failed[:3]}")
    with journey.step("ray down") as saw:
        journey.ray_down()
        saw(_what_runs(journey))
    with journey.step("ray up again") as saw:
        journey.ray_up()
        saw(f"Ray nodes {', '.join(sorted(journey.labels()))}")
    with journey.step("bradbury up again") as saw:
        if journey.bradbury_up() != servers:
            raise Failed("the addresses are others")
        status = journey.status()
        _expect_all_machines(status)
        saw(f"{status['topics']} topics with {status['partitions']} partitions")
    with journey.step("every record") as saw:
        _expect_found(servers, writer, flights)
        saw(f"{len(flights):,} flights, {len(writer.acknowledged):,} numbers, each where it was")


def _jobs(journey: Journey, servers: str, status: dict[str, Any], parts: Collection[str]) -> None:
    """The demo, and the programs that are submitted and end by themselves. Raises Failed."""
    if "demo" in parts:
        with journey.step("demo") as saw:
            demo = journey.demo()
            saw(f"{demo['rows']:,} flights, each consumed once")
            _expect_spark(demo, status, saw)
            _expect_nothing_left(journey)
    else:
        with journey.step("flights") as saw:
            saw(f"{_produce_flights(servers):,} flights")
    journey.take_jobs()
    if "spark" in parts:
        with journey.step("Spark's other jobs") as saw:
            _expect_jobs(journey.seen_by("spark_jobs.py", "jobs.json"), status, saw)
            _expect_nothing_left(journey)
    if "ray" in parts:
        with journey.step("Ray's jobs") as saw:
            _expect_words(journey.seen_by("ray_jobs.py", "ray-jobs.json"), saw)
    if "pipeline" in parts:
        with journey.step("a declarative pipeline") as saw:
            _expect_pipeline(journey.seen_by("pipeline_driver.py", "pipeline.json"), status, saw)
    if "mirror" in parts:
        with journey.step("a mirror's workers die") as saw:
            lose_mirror_workers(journey, servers, saw)


def _produce_flights(servers: str) -> int:
    """What the demo does first."""
    flights = load_flights(ROWS).records.select(["key", "value"])
    with bradbury.Admin(servers) as admin, bradbury.Producer(servers) as producer:
        admin.create_topic(FLIGHTS, 4, 3)
        producer.send_batch(FLIGHTS, flights).result(120)
    return len(flights)


def _expect_all_machines(status: dict[str, Any]) -> None:
    machines = {node["machine"] for node in status["nodes"] if not node["fenced"]}
    if machines != set(ADDRESSES) or status["problems"]:
        raise Failed(f"the cluster is not whole: {machines}, {status['problems']}")


def _expect_spark(demo: dict[str, Any], status: dict[str, Any], saw: Callable[[str], None]) -> None:
    """Its driver on the head, its executors on the other machines, its rows from all three."""
    machines = {node["address"].rpartition(":")[0]: node["machine"] for node in status["nodes"]}
    spark = demo["spark"]
    driver = machines.get(spark["driver"])
    tasks = {machines.get(host, host): n for host, n in spark["tasks_by_executor"].items()}
    rows = {machines.get(host, host): n for host, n in spark["rows_by_leader"].items()}
    saw(f"Spark's driver on {driver}")
    saw("its executors did " + ", ".join(f"{n} tasks on {name}" for name, n in tasks.items()))
    saw("it read " + ", ".join(f"{n:,} rows from {name}" for name, n in rows.items()))
    _expect_on_others(driver, tasks)
    if set(rows) != set(ADDRESSES) or not all(rows.values()):
        raise Failed(f"the rows that Spark read are not from all machines: {spark}")
    if spark["micro_batches"] < 3:
        raise Failed(f"the demo's stream had {spark['micro_batches']} micro-batches")
    if demo["rows"] != ROWS or sum(rows.values()) != ROWS:
        raise Failed(f"Spark read {sum(rows.values())} of {ROWS} rows")
    for step in demo["steps"]:
        if step["step"].startswith("4"):
            saw(f"{step['step'][2:]} {step['seconds']:.0f} s")


def _expect_on_others(driver: str | None, tasks: dict[str, int]) -> None:
    head, *others = ADDRESSES
    if driver != head or set(tasks) != set(others) or not all(tasks.values()):
        raise Failed(
            f"Spark's executors are not all on the other machines: tasks {tasks}, driver {driver}"
        )


def _expect_jobs(jobs: dict[str, Any], status: dict[str, Any], saw: Callable[[str], None]) -> None:
    """All were done, by executors on other machines; what is compared is compared by the program."""
    _expect_words({name: found for name, found in jobs.items() if name not in WORK}, saw)
    _expect_tasks(jobs, status, saw)


def _expect_tasks(seen: dict[str, Any], status: dict[str, Any], saw: Callable[[str], None]) -> None:
    driver, tasks = _machines_of(seen, status)
    saw("executors did " + ", ".join(f"{n} tasks on {name}" for name, n in tasks.items()))
    _expect_on_others(driver, tasks)


def _machines_of(seen: dict[str, Any], status: dict[str, Any]) -> tuple[str | None, dict[str, int]]:
    """The machine of a session's driver, and the tasks of executors by their machine."""
    machines = {node["address"].rpartition(":")[0]: node["machine"] for node in status["nodes"]}
    tasks = {machines.get(host, host): count for host, count in seen["tasks"].items()}
    return machines.get(seen["driver"]), tasks


def _expect_words(found: dict[str, str], saw: Callable[[str], None]) -> None:
    """What each job says, which has been compared by the program; none was left out."""
    for name, said in found.items():
        saw(f"{name.replace('_', ' ')}: {said}")
        if "not tried" in said:
            raise Failed(f"{name} was {said}")


def _expect_pipeline(
    seen: dict[str, Any], status: dict[str, Any], saw: Callable[[str], None]
) -> None:
    """Its tasks, which are few, were all on other machines than the session's driver."""
    saw(f"{seen['late']:,} late flights, each once, after two runs of `spark-pipelines`")
    driver, tasks = _machines_of(seen, status)
    if driver in tasks or not sum(tasks.values()):
        raise Failed(f"the pipeline did not run on other machines: {tasks}, driver {driver}")
    saw(f"executors did {sum(tasks.values())} tasks")


def _expect_nothing_left(journey: Journey) -> None:
    left = journey.left_by_spark()
    if left:
        raise Failed(f"temporary files are left: {', '.join(left)}")


def _create_numbered(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topic = NewTopic(NUMBERED, 6, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[NUMBERED].result(30)


def _kill_one(journey: Journey, writer: Writer, servers: str, flights: dict[Any, Any]) -> None:
    with journey.step("kill n3") as saw:
        writer.begin_gap()
        count = len(writer.acknowledged)
        ended = journey.machines["n3"].processes()
        journey.machines["n3"].kill()
        wait_for(lambda: min(in_sync(servers, NUMBERED)) >= 2, 90, "no leaders")
        wait_for(lambda: len(writer.acknowledged) > count + 500, 90, "nothing is acknowledged")
        saw(f"kill -9 of {len(ended)} processes")
        saw(f"longest time without an acknowledgement {writer.longest_gap:.1f} s")
        if writer.longest_gap > MOST_GAP_SECONDS:
            raise Failed(f"nothing was acknowledged for {writer.longest_gap:.1f} s")
        if read_all(servers, FLIGHTS) != flights:
            raise Failed("with one machine less the flights are not what they were")
        saw("every flight is served")
    with journey.step("Ray notices") as saw:
        journey.wait_for_labels({"n1", "n2"}, 120)
        saw("two nodes")


def _bring_back(journey: Journey, writer: Writer, servers: str) -> None:
    with journey.step("n3 comes back") as saw:
        writer.begin_gap()
        journey.machines["n3"].start()
        try:
            journey.wait_for_labels(set(journey.machines), RECOVERY_SECONDS)
            saw("Ray is started on it by Ray's autoscaler")
        except Failed:  # which tries it once, and on a busy machine Ray may not start in time
            journey.start_ray_by_hand("n3")
            journey.wait_for_labels(set(journey.machines))
            saw("Ray's autoscaler gave up; `ray start` by hand")
    with journey.step("n3 is in sync") as saw:
        wait_for(lambda: min(in_sync(servers, NUMBERED)) == 3, 120, "n3 does not catch up")
        wait_for(lambda: min(in_sync(servers, FLIGHTS)) == 3, 120, "n3 does not catch up")
        saw("3 of 3 replicas of every partition")
        saw(f"longest time without an acknowledgement {writer.longest_gap:.1f} s")


def _what_runs(journey: Journey) -> str:
    found = []
    for name, machine in journey.machines.items():
        names = machine.processes()
        ray_count = sum(one in ("raylet", "gcs_server") for one in names)
        found.append(f"{name} {'has' if ray_count else 'has no'} Ray")
    return ", ".join(found)


def _expect_found(servers: str, writer: Writer, flights: dict[Any, Any]) -> None:
    if read_all(servers, FLIGHTS) != flights:
        raise Failed("the flights are not what they were")
    lost = missing(writer.acknowledged, read_all(servers, NUMBERED))
    if lost:
        raise Failed(f"{len(lost)} acknowledged records are not there, the first at {lost[0]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verbose", action="store_true", help="show what the commands say")
    parser.add_argument("--keep", action="store_true", help="copy Ray's logs aside if it fails")
    parser.add_argument(
        "--wheels", type=Path, help="folder with the wheels, instead of building them"
    )
    parser.add_argument(
        "--only",
        nargs="*",
        choices=PARTS,
        default=PARTS,
        help="parts between `bradbury up` and the machine's death; by default all",
    )
    options = parser.parse_args()
    console = Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="bradbury-wheel-", dir="/var/tmp"))
    ports = lab_ports()
    try:
        with Lab(ssh_port=ports["ssh"]) as lab:
            journey = Journey(lab, console, verbose=options.verbose)
            journey.ports = ports
            try:
                travel(journey, folder, options.wheels, options.only)
            except (Failed, AssertionError) as error:
                console.print(f"failed: {error}", markup=False, highlight=False)
                if options.keep:
                    kept = tempfile.mkdtemp(prefix="bradbury-lab-logs-", dir="/var/tmp")
                    shutil.copytree(
                        lab.base,
                        kept,
                        symlinks=True,
                        dirs_exist_ok=True,
                        ignore=_not_logs,
                        ignore_dangling_symlinks=True,
                    )
                    console.print(f"kept {kept}", highlight=False)
                return 1
            journey.show()
    except KeyboardInterrupt:
        return INTERRUPTED
    except NotHere as error:
        console.print(f"skipped: {error}", markup=False, highlight=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _not_logs(folder: str, names: list[str]) -> set[str]:
    """Sockets cannot be copied, and nobody wants the environments."""
    return {
        name
        for name in names
        if name in ("venv", "packages", "sockets", "disk") or (Path(folder) / name).is_socket()
    }


if __name__ == "__main__":
    sys.exit(main())
