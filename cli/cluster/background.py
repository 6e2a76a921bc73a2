"""Background process of `bradbury up --detach` with an embedded Ray: the same command, detached.

It gets its own session, so that closing the terminal does not end it, and a log file for its
output. The cluster is up when its state file exists; if the process ends before that, the start has
failed.
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

START_SECONDS = 210.0
"""Longer than the process's own timeouts (Ray's start, and READY_SECONDS of launch/actors), whose
errors name the cause.
"""
STOP_SECONDS = 60.0
POLL_SECONDS = 0.05
ERROR_PREFIX = "error: "


def start_in_background(arguments: Sequence[str], namespace: str) -> ClusterState:
    """Run `bradbury ARGUMENTS`, which brings a cluster up, and return when it serves.

    Raises:
        CommandFailed: the process ended, with its reason, or does not serve after START_SECONDS.
        UsageError: its command line was wrong.
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
        raise CommandFailed(f"the cluster does not serve after {START_SECONDS:.0f} s; see {log}")
    except BaseException:
        if process.poll() is None:
            process.terminate()
            process.wait(STOP_SECONDS)
        raise


def stop_process(pid: int, started: int, namespace: str) -> bool:
    """End the process that began at `started`, and wait for it; False if it has ended already.

    Raises:
        CommandFailed: it still runs STOP_SECONDS after SIGTERM.
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
    """Kill the processes (pid, started) that still run; return their number.

    They are left over from a killed cluster: nothing else ends them, and they have nothing to save.
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
    return f"the cluster's process ended at once; see {log}"
