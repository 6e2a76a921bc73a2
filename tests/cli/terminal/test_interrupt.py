"""Does Ctrl-C end what waits, or starts, in whatever step of that it comes?"""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bradbury
from bradbury.cli.terminal.interrupt import stop_at_interrupt
from bradbury.tests.support.child_process import ChildProcess

WAITING = """
import os, signal, threading
from bradbury.cli.terminal.interrupt import stop_at_interrupt

with stop_at_interrupt() as stop:
    with stop._cond:  # as `wait` holds it, for a moment each time
        os.kill(os.getpid(), signal.SIGINT)
    stop.wait()
print("stopped")
"""

STARTING = """
import runpy, signal, sys

class CtrlC:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            sys.argv.pop(1)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
runpy.run_module("bradbury.cli", run_name="__main__", alter_sys=False)
"""
"""`bradbury`, which gets Ctrl-C when it imports the module that is named first."""

IN_A_FINALIZER = """
import signal, time
from bradbury.cli import entry_point, main

class Ending:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def command():
    Ending()
    time.sleep(60)
    print("went on")

main.main = command
entry_point.main()
"""

LIGHT = """
import sys

before = set(sys.modules)
import bradbury.cli.entry_point

new = set(sys.modules) - before
ours = {"bradbury", "bradbury.cli", "bradbury.cli.entry_point", "bradbury.cli.command_interrupt"}
wrong = {name for name in new - ours if name.startswith("bradbury.")}
sys.exit(str(wrong or new) if wrong or new & {"typer", "rich", "traceback", "pathlib"} else 0)
"""


def test_it_is_set_where_the_main_thread_holds_the_events_lock() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "stopped\n"


def test_it_is_set_while_the_main_thread_waits() -> None:
    with stop_at_interrupt() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(60)


def test_it_is_not_lost_in_a_finalizer() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FINALIZER],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_afterwards_ctrl_c_does_what_it_did() -> None:
    with stop_at_interrupt():
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_not_active_it_changes_nothing() -> None:
    with stop_at_interrupt(active=False) as stop, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert not stop.is_set()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_consumer_that_is_told_to_end_commits_and_leaves_its_group(
    number: signal.Signals, code: int
) -> None:
    with bradbury.local() as cluster, cluster.admin() as admin:
        servers = cluster.bootstrap_servers
        admin.create_topic("t", 1)
        with bradbury.Producer(servers) as producer:
            producer.send("t", b"one").result()
        line = ["consume", "t", "--group", "g", "--from-beginning", "--bootstrap", servers]
        with ChildProcess(
            [sys.executable, "-m", "bradbury.cli", *line], stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == "one\n"
            running.send_signal(number)
            assert running.wait(60) == code
        [group] = admin.describe_groups(["g"])
        assert (group.state, group.members) == ("Empty", ())
        [stored] = admin.group_offsets("g").values()
        assert stored.offset == 1


@pytest.mark.parametrize(
    "imported",
    ["typer", "bradbury.discovery.state_file", "bradbury.cli.main", "bradbury.cli.users"],
)
def test_while_the_command_line_is_imported_it_ends_without_a_traceback(imported: str) -> None:
    def started(*words: str) -> tuple[int, str, str]:
        line = [sys.executable, "-c", STARTING, imported, *words]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    assert started("--version") == (130, "", "")
    code, _, said = started("--version", "--debug")
    assert (code, "Traceback" in said, said.endswith("KeyboardInterrupt\n")) == (130, True, True)


def test_the_script_imports_next_to_nothing_before_it_is_caught() -> None:
    project = tomllib.loads((Path(bradbury.__file__).parent / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"bradbury": "bradbury.cli.entry_point:main"}
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
