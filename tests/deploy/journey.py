"""The machines' journey: its steps on a screen, and the commands that a user gives on the laptop.

`Journey.laptop` runs a command there, `on_head` one on the head over ssh (`ray exec`), `submit` a
program of this folder (`ray submit`), whose neighbours in `jobs` are taken there before.
"""

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from bradbury.tests.deploy.machines import ROOT, Lab, Machine
from bradbury.tests.support.free_ports import free_ports
from bradbury.tests.support.ray.ray_nodes import living_labels, wait_for

CONFIG = ROOT / "docs" / "deploy" / "on-prem.yaml"
README = ROOT / "docs" / "deploy" / "README.md"
PROGRAMS = Path(__file__).parent
EXAMPLES = [ROOT / "examples" / name for name in ("stateful_streams.py", "declarative_pipeline")]
ADDRESSES = {"n1": "127.0.0.1", "n2": "127.0.0.2", "n3": "127.0.0.3"}
UP_SECONDS = 480
JOIN_SECONDS = 180
COMMAND_SECONDS = 300
DEMO_SECONDS = 900
JOBS_SECONDS = 1200
TRIES = 3
HEAD_TOO_SLOW = "The current node timed out during startup"
OBJECT_STORE = 100_000_000


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
        self.ports = lab_ports()
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
        try:
            self.wait_for_labels(set(self.machines), JOIN_SECONDS)
        except Failed:  # where Ray's raylet gave up waiting for its own agent, on a busy machine
            for name in set(self.machines) - self.labels():
                self.start_ray_by_hand(name)
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

    @property
    def shared(self) -> Path:
        """The folder of the lab that all machines see, for tables and checkpoints."""
        return self.lab.base / "shared"

    def take_jobs(self) -> None:
        """What the programs that are submitted import: it comes to lie beside them."""
        self.laptop("ray", "rsync-up", str(self.config), f"{PROGRAMS}/jobs/", "jobs/")
        for example in EXAMPLES:
            self.laptop("ray", "rsync-up", str(self.config), str(example), "jobs/")

    def submission(self, program: str, *words: str) -> list[str]:
        """The command `ray submit` of a program of this folder."""
        return ["ray", "submit", str(self.config), str(PROGRAMS / program), "--", *words]

    def submit(self, program: str, *words: str, timeout: float = JOBS_SECONDS) -> None:
        """`ray submit`, to the program's end."""
        self.laptop(*self.submission(program, *words), timeout=timeout)

    def seen_by(self, program: str, file: str) -> dict[str, Any]:
        """`ray submit`, and what the program has seen, by the file that it leaves."""
        self.submit(program, "--folder", str(self.shared), "--replication-factor", "3")
        found: dict[str, Any] = json.loads((self.shared / file).read_text())
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

    def installed(self, wheels: Path) -> str:
        """The wheel that each machine has chosen of the folder. Raises Failed: not the best."""
        of_all = {
            wheel.name
            for machine in self.machines.values()
            for wheel in (machine.home / "wheel").glob("*.whl")
        }
        best = {wheel.name for wheel in wheels.glob("*linux*.whl")}
        if len(of_all) != 1 or (best and not of_all <= best):
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


def lab_ports() -> dict[str, int]:
    """Free ones of every address."""
    first = free_ports(20, "0.0.0.0")
    return {"bradbury": first, "gcs": first + 17, "client": first + 18, "ssh": first + 19}
