"""`ray up` on three machines that are one, and what becomes of the records.

    make deploy-test                    # or: python -m bradbury.tests.deploy.ray_up [--keep] [--verbose]

The steps, each shown with its seconds; the first that fails ends it with exit code 1:
    wheel, machines, `ray up` of docs/deploy/on-prem.yaml over sshd on 127.0.0.1, .2, .3
    `bradbury up` on all of them; the whole demo with replication factor 3, Spark's executors on
        other machines than its driver, its rows from all of them
    spark_jobs.py by `ray submit`: load, mirror, migrate, a flow, a stream with state, each compared
        with a batch; a writer that does not stop
    kill -9 of everything on one machine: the others serve; it comes back, and all are in sync
    `ray down`, `ray up`, `bradbury up`: every record is where it was
What is run on the head are the commands of docs/deploy/README.md, as they are printed there; added
is only what three machines in one need.

On a machine that has no namespaces, no root or no sshd it says so in one line, and ends with 0.
"""

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from bradbury.tests.deploy.machines import ROOT, Lab, Machine, NotHere
from bradbury.tests.deploy.probe import Writer, in_sync, missing, read_all
from bradbury.tests.support.free_ports import free_ports
from bradbury.tests.support.ray.ray_nodes import living_labels, wait_for

CONFIG = ROOT / "docs" / "deploy" / "on-prem.yaml"
README = ROOT / "docs" / "deploy" / "README.md"
SPARK_JOBS = Path(__file__).parent / "spark_jobs.py"
JOBS = ("load_parquet", "load_delta", "flow", "stateful_stream", "mirror")
ADDRESSES = {"n1": "127.0.0.1", "n2": "127.0.0.2", "n3": "127.0.0.3"}
NUMBERED = "numbered"
FLIGHTS = "flights"
ROWS = 336_776
UP_SECONDS = 480
COMMAND_SECONDS = 300
DEMO_SECONDS = 900
RECOVERY_SECONDS = 240
MOST_GAP_SECONDS = 45
TRIES = 3
HEAD_TOO_SLOW = "The current node timed out during startup"
OBJECT_STORE = 100_000_000
INTERRUPTED = 130


class Failed(Exception):
    """A step has not come to what it should. In words."""


class Journey:
    """The steps, on a screen, and what they share."""

    def __init__(self, lab: Lab, console: Console, *, verbose: bool) -> None:
        self.lab = lab
        self.machines: dict[str, Machine] = {}
        self._console = console
        self._verbose = verbose
        self._table = Table(
            "step", "seconds", "what was seen", title="ray up", title_justify="left"
        )
        self.ports = _ports()
        self.config = lab.base / "on-prem.yaml"

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Call what is yielded with what was seen."""
        seen: list[str] = []
        begin = time.monotonic()
        with self._console.status(name):
            yield seen.append
        seconds = time.monotonic() - begin
        self._console.print(f"{seconds:6.1f} s  {name}: {'; '.join(seen)}", highlight=False)
        self._table.add_row(name, f"{seconds:.1f}", "; ".join(seen))

    def show(self) -> None:
        self._console.print(self._table)

    # --- commands, as a user gives them on the laptop ---------------------------------------------

    def laptop(self, *command: str, timeout: float = COMMAND_SECONDS, check: bool = True) -> str:
        try:
            done = self.lab.laptop.run(command, timeout=timeout, check=check)
        except subprocess.CalledProcessError as error:
            raise Failed(f"`{' '.join(command)}` failed:\n{error.output}") from None
        except subprocess.TimeoutExpired:
            raise Failed(f"`{' '.join(command)}` takes longer than {timeout:.0f} s") from None
        if self._verbose:
            self._console.print(done.stdout, markup=False, highlight=False)
        return done.stdout

    def on_head(self, command: str, *, timeout: float = COMMAND_SECONDS) -> str:
        """`ray exec`: the command runs on the head, over ssh."""
        return self.laptop("ray", "exec", str(self.config), command, timeout=timeout)

    def ray_up(self) -> None:
        """Run `ray up` and wait until every machine is a Ray node.

        `ray start` gives a head 30 s, whatever else the machine does; then a person says it again.
        """
        for left in range(TRIES - 1, -1, -1):
            try:
                self.laptop("ray", "up", "--yes", str(self.config), timeout=UP_SECONDS)
                break
            except Failed as error:
                if not left or HEAD_TOO_SLOW not in " ".join(str(error).split()):
                    raise
        self.wait_for_labels(set(self.machines))

    def start_ray_by_hand(self, name: str) -> None:
        """What the autoscaler runs on a machine, without it."""
        for command in yaml.safe_load(self.config.read_text())["worker_start_ray_commands"]:
            self.machines[name].run(
                # Into a file: what it leaves running would keep a pipe open.
                ["bash", "-c", f"{{ {command}; }} >> ~/ray-start.log 2>&1"],
                timeout=COMMAND_SECONDS,
                env={"RAY_HEAD_IP": ADDRESSES["n1"], "NODE_IP": ADDRESSES[name]},
            )

    def ray_down(self) -> None:
        self.laptop("ray", "down", "--yes", str(self.config))

    def bradbury_up(self) -> str:
        self.on_head(f"{printed('bradbury up')} --port {self.ports['bradbury']}")
        return ",".join(f"{address}:{self.ports['bradbury']}" for address in ADDRESSES.values())

    def status(self) -> dict[str, Any]:
        """`bradbury status --json`, of a cluster that may have problems."""
        return json_in(self.on_head(f"{printed('bradbury status')} --json || true"))

    def demo(self) -> dict[str, Any]:
        """All of it, to its end; what it says with --json."""
        return json_in(self.on_head(f"{printed('bradbury demo')} --json", timeout=DEMO_SECONDS))

    def spark_jobs(self) -> dict[str, Any]:
        """spark_jobs.py on the head; what it saw. All machines see the folder of the lab."""
        shared = self.lab.base / "shared"
        words = ["--folder", str(shared), "--replication-factor", "3"]
        command = ["ray", "submit", str(self.config), str(SPARK_JOBS), "--", *words]
        self.laptop(*command, timeout=DEMO_SECONDS)
        found: dict[str, Any] = json.loads((shared / "jobs.json").read_text())
        return found

    def left_by_spark(self) -> list[str]:
        """The demo's and Spark's temporary files on the machines."""
        return [
            f"{path} of {name}"
            for name, machine in self.machines.items()
            for path in (machine.folder / "tmp").iterdir()
            if path.name.startswith(("bradbury-demo", "spark", "blockmgr"))
        ]

    def labels(self) -> set[str]:
        """log-node of every living Ray node, as the head's GCS has it."""
        return set(living_labels(f"127.0.0.1:{self.ports['gcs']}"))

    def installed(self) -> str:
        """The wheel that each machine has chosen of the folder. Raises Failed: not the best."""
        of_all = {
            wheel.name
            for machine in self.machines.values()
            for wheel in (machine.home / "wheel").glob("*.whl")
        }
        if len(of_all) != 1 or (shutil.which("cc") and not any("linux" in name for name in of_all)):
            raise Failed(f"the machines have installed {', '.join(sorted(of_all)) or 'no wheel'}")
        return of_all.pop()

    def wait_for_labels(self, wanted: set[str], seconds: float = UP_SECONDS) -> None:
        try:
            wait_for(lambda: self.labels() == wanted, seconds)
        except AssertionError:
            raise Failed(f"Ray has {self.labels()} and not {wanted}; {self.monitor()}") from None

    def monitor(self) -> str:
        """The last words of Ray's autoscaler."""
        logs = self.machines["n1"].folder / "tmp" / "ray" / "session_latest" / "logs"
        lines = []
        for name in ("monitor.log", "monitor.out", "monitor.err"):
            with contextlib.suppress(OSError):
                lines += (logs / name).read_text(errors="replace").splitlines()[-30:]
        return "\n".join(lines)

    # --- what the laptop has ----------------------------------------------------------------------

    def write_config(self, wheels: Path) -> None:
        """docs/deploy/on-prem.yaml, with what is different when three machines are one."""
        config = yaml.safe_load(CONFIG.read_text())
        head, *workers = ADDRESSES.values()
        config["provider"] |= {"head_ip": head, "worker_ips": workers}
        config["auth"] = {"ssh_user": "root", "ssh_private_key": str(self.lab.key)}
        config["file_mounts"] = {"~/wheels": str(wheels)}
        one_machine = (
            f" --node-ip-address=$NODE_IP --object-store-memory={OBJECT_STORE} --num-cpus=2"
            " --disable-usage-stats"
        )
        for name in ("head_start_ray_commands", "worker_start_ray_commands"):
            start = config[name][-1] + one_machine
            config[name][-1] = start.replace("6379", str(self.ports["gcs"]))
        config["head_start_ray_commands"][-1] += (
            f" --include-dashboard=false --ray-client-server-port={self.ports['client']}"
        )
        self.config.write_text(yaml.safe_dump(config, sort_keys=False, width=1000))


def printed(command: str) -> str:
    """The command that docs/deploy/README.md gives to `ray exec`."""
    found = re.findall(
        rf"^    ray exec cluster.yaml '({command}[^']*)'$", README.read_text(), re.MULTILINE
    )
    if len(found) != 1:
        raise Failed(f"{README} prints `ray exec cluster.yaml '{command}...'` {len(found)} times")
    return str(found[0])


def json_in(output: str) -> dict[str, Any]:
    """The JSON object at the end of what a command has said, after what `ray exec` says."""
    start = output.index("{\n") if "{\n" in output else output.index("{")
    found: dict[str, Any] = json.loads(output[start : output.rindex("}") + 1])
    return found


def _ports() -> dict[str, int]:
    """Free ones of every address."""
    first = free_ports(20, "0.0.0.0")
    return {"bradbury": first, "gcs": first + 17, "client": first + 18, "ssh": first + 19}


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
    done = subprocess.run(
        ["make", f"VENV={environment}", "-o", f"{environment}/.build", ".path/bradbury", "wheel"],
        cwd=source,
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode:
        raise Failed(f"the wheel cannot be built: {done.stderr.strip()}")
    return source / "wheels"


def travel(journey: Journey, folder: Path) -> None:
    """All steps. Raises Failed."""
    with journey.step("wheel") as saw:
        wheels = build_wheel(folder)
        saw(", ".join(sorted(wheel.name for wheel in wheels.glob("*.whl"))))
    with journey.step("machines") as saw:
        for name, address in ADDRESSES.items():
            journey.machines[name] = journey.lab.machine(name, address)
            journey.machines[name].start()
        journey.write_config(wheels)
        saw(f"sshd on {', '.join(ADDRESSES.values())}, port {journey.ports['ssh']}")
    with journey.step("ray up") as saw:
        journey.ray_up()
        saw(f"Ray nodes {', '.join(sorted(journey.labels()))}; {journey.installed()}")
    with journey.step("bradbury up") as saw:
        servers = journey.bradbury_up()
        status = journey.status()
        saw(f"{len(status['actors'])} actors on {len({a['name'] for a in status['actors']})} nodes")
        _expect_all_machines(status)
    with journey.step("demo") as saw:
        demo = journey.demo()
        saw(f"{demo['rows']:,} flights, each consumed once")
        _expect_spark(demo, status, saw)
        _expect_nothing_left(journey)
    with journey.step("Spark's other jobs") as saw:
        _expect_jobs(journey.spark_jobs(), status, saw)
        _expect_nothing_left(journey)
    flights = read_all(servers, FLIGHTS)
    if len(flights) != ROWS:
        raise Failed(f"{len(flights)} of {ROWS} flights can be read")
    _create_numbered(servers)
    with Writer(servers, NUMBERED) as writer:
        wait_for(lambda: len(writer.acknowledged) > 300, 60, "nothing is acknowledged")
        _kill_one(journey, writer, servers, flights)
        _bring_back(journey, writer, servers)
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
    for name in JOBS:
        saw(f"{name.replace('_', ' ')}: {jobs[name]}")
    if "not tried" in jobs["load_delta"]:
        raise Failed("deltalake is not installed on the head")
    machines = {node["address"].rpartition(":")[0]: node["machine"] for node in status["nodes"]}
    tasks = {machines.get(host, host): count for host, count in jobs["tasks"].items()}
    saw("executors did " + ", ".join(f"{n} tasks on {name}" for name, n in tasks.items()))
    _expect_on_others(machines.get(jobs["driver"]), tasks)


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
    options = parser.parse_args()
    console = Console(stderr=True)
    folder = Path(tempfile.mkdtemp(prefix="bradbury-wheel-", dir="/var/tmp"))
    ports = _ports()
    try:
        with Lab(ssh_port=ports["ssh"]) as lab:
            journey = Journey(lab, console, verbose=options.verbose)
            journey.ports = ports
            try:
                travel(journey, folder)
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
