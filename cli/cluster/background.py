"""`bradbury up --detach` where there is no Ray cluster: the same command, left behind as a process.

It gets its own session, so the end of the terminal does not reach it, and a log file for what
it says. It is up when its state file says so, and it has failed when it ended before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...discovery.processes import start_time
from ...discovery.state_file import ClusterState, live_state, log_path
from ..terminal.failure import USAGE, CommandFailed, UsageError

START_SECONDS = 120.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.05
ERROR_PREFIX = "error: "


def start_in_background(arguments: Sequence[str], namespace: str) -> ClusterState:
    """Run `bradbury ARGUMENTS`, which brings a cluster up, and return when it serves.

    Raises:
        CommandFailed: it ended; its own reason. UsageError, if that was the command line.
    """
    log = log_path(namespace)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bradbury.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    try:
        while time.monotonic() < deadline:
            state = live_state(namespace)
            if state is not None and state.pid == process.pid:
                return state
            if process.poll() is not None:
                kind = UsageError if process.returncode == USAGE else CommandFailed
                raise kind(_reason(log))
            time.sleep(POLL_SECONDS)
        raise CommandFailed(
            f"it does not serve after {START_SECONDS:.0f} s; {log} has what it says"
        )
    except BaseException:
        if process.poll() is None:
            process.terminate()
            process.wait(STOP_SECONDS)
        raise


def stop_process(pid: int, started: int, namespace: str) -> bool:
    """End the process that began at `started` and wait for that; False if it is gone already.

    Raises:
        CommandFailed: it goes on nevertheless.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Checked after the descriptor is held: from here on the id cannot become another process.
        if start_time(pid) != started:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while start_time(pid) == started:
            if time.monotonic() > deadline:
                raise CommandFailed(
                    f"process {pid} still runs {STOP_SECONDS:.0f} s after SIGTERM; "
                    f"see {log_path(namespace)}, or end it with `kill -9 {pid}` (records that were "
                    "acknowledged are safe)"
                )
            time.sleep(POLL_SECONDS)
        return True
    finally:
        os.close(descriptor)


def end_leftovers(processes: Iterable[tuple[int, int]]) -> int:
    """Kill those of (pid, started) that still run; returns how many did.

    For what a killed cluster left behind: nothing else ends it, and it has nothing to save.
    """
    count = 0
    for pid, started in processes:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if start_time(pid) == started:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                count += 1
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)
    return count


def _reason(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    for line in reversed(lines):
        if line.startswith(ERROR_PREFIX):
            return line.removeprefix(ERROR_PREFIX)
    return f"it ended at once; see {log}"
