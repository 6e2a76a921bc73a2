"""A Ray cluster as a person starts one: `ray start --head`, with Ray's own defaults."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

START_SECONDS = 300
START_TRIES = 3
TOO_SLOW = "timed out during startup"
"""What Ray says when its raylet was not there within 30 s. That one waits 15 s for the ports of its agents,
programs in Python that import for as long on a busy machine."""
PATIENCE = {"RAY_DASHBOARD_STARTUP_TIMEOUT_S": "240"}
"""A dashboard is ten such programs; Ray waits a minute for them."""


@contextmanager
def hand_started_ray(
    environment: Mapping[str, str],
    options: Sequence[str] = ("--include-dashboard=false",),
    port: int | None = None,
) -> Iterator[str]:
    """The address of one in `environment`, whose RAY_TMPDIR it uses; ended with all it started.

    port: of its GCS; any free one by default.
    """
    if port is None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", f"--port={port}"]
    command += ["--node-ip-address=127.0.0.1", "--num-cpus=2", *options]
    output = Path(environment["RAY_TMPDIR"]) / "head.out"
    output.parent.mkdir(parents=True, exist_ok=True)
    for tries_left in reversed(range(START_TRIES)):
        with output.open("wb") as file:
            head = psutil.Popen(
                [*command, "--block"],
                env={**environment, **PATIENCE},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        try:
            if not _serves(head, output) and tries_left:
                continue
            assert head.is_running(), output.read_text(errors="replace")
            yield f"127.0.0.1:{port}"
            return
        finally:
            _end(head)


def _serves(head: psutil.Popen, output: Path) -> bool:
    """Wait until `ray start --block` says so itself; whether it does, or was too slow for Ray."""
    deadline = time.monotonic() + START_SECONDS
    while "Ray runtime started" not in output.read_text(errors="replace"):
        if head.poll() is not None and TOO_SLOW in output.read_text(errors="replace"):
            return False
        assert head.poll() is None, output.read_text(errors="replace")
        assert time.monotonic() < deadline, output.read_text(errors="replace")
        time.sleep(0.1)
    return True


def _end(head: psutil.Popen) -> None:
    processes = [head]
    with suppress(psutil.NoSuchProcess):
        processes += head.children(recursive=True)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=60)
