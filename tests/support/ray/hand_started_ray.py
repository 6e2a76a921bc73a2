"""A Ray cluster as a person starts one: `ray start --head`, with Ray's own defaults."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

START_SECONDS = 120


@contextmanager
def hand_started_ray(
    environment: Mapping[str, str], options: Sequence[str] = ("--include-dashboard=false",)
) -> Iterator[str]:
    """The address of one in `environment`, whose RAY_TMPDIR it uses; ended with all it started."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", f"--port={port}"]
    command += ["--node-ip-address=127.0.0.1", "--num-cpus=2", *options]
    folder = Path(environment["RAY_TMPDIR"])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "head.out").open("wb") as output:
        head = psutil.Popen(
            [*command, "--block"], env=dict(environment), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_it_serves(head, folder / "head.out")
        yield f"127.0.0.1:{port}"
    finally:
        processes = [head]
        with suppress(psutil.NoSuchProcess):
            processes += head.children(recursive=True)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=60)


def _wait_until_it_serves(head: psutil.Popen, output: Path) -> None:
    """`ray start --block` says so itself."""
    deadline = time.monotonic() + START_SECONDS
    while "Ray runtime started" not in output.read_text(errors="replace"):
        assert head.poll() is None, output.read_text(errors="replace")
        assert time.monotonic() < deadline, output.read_text(errors="replace")
        time.sleep(0.1)
