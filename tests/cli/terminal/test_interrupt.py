"""Does Ctrl-C end what waits, in whatever step of waiting it comes?"""

import os
import signal
import subprocess
import sys

import pytest

from bradbury.cli.terminal.interrupt import stop_at_interrupt

WAITING = """
import os, signal, threading
from bradbury.cli.terminal.interrupt import stop_at_interrupt

with stop_at_interrupt() as stop:
    with stop._cond:  # as `wait` holds it, for a moment each time
        os.kill(os.getpid(), signal.SIGINT)
    stop.wait()
print("stopped")
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


def test_afterwards_ctrl_c_does_what_it_did() -> None:
    with stop_at_interrupt():
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_not_active_it_changes_nothing() -> None:
    with stop_at_interrupt(active=False) as stop, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert not stop.is_set()
