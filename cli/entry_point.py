"""The entry point of the script `bradbury`, and of `python -m bradbury.cli`.

Importing the command line takes a large part of a second, during which Ctrl-C may arrive: so this
module imports almost nothing before it catches Ctrl-C.

SIGTERM, with which supervisors end a process, does what Ctrl-C does: a consumer commits and leaves
its group, a command that runs forever finishes its step. Without that a group would wait for the
session of its member to end.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

from .command_interrupt import DEBUG, INTERRUPTED, TERMINATED, was_interrupted


def main() -> None:
    """Run the command line of this process. Ctrl-C ends it without a traceback, from here on."""
    sys.unraisablehook = _interrupt_again
    code_of_interrupt = INTERRUPTED

    def on_sigterm(*_: object) -> None:
        nonlocal code_of_interrupt
        code_of_interrupt = TERMINATED
        signal.raise_signal(signal.SIGINT)

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, on_sigterm)
    try:
        from .main import main as run_command_line

        run_command_line()
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
        sys.exit(code_of_interrupt)
    except BaseException as error:
        if not was_interrupted(error):
            raise
        if DEBUG in sys.argv:
            import traceback

            traceback.print_exception(error)
        sys.exit(code_of_interrupt)


def _interrupt_again(ignored: Any) -> None:
    """Send Ctrl-C again, a moment later, if it arrived in a finalizer: Python ignores exceptions
    raised there, and only reports them to this function.
    """
    if isinstance(ignored.exc_value, KeyboardInterrupt):
        import threading

        again = (threading.main_thread().ident, signal.SIGINT)
        later = threading.Timer(0.05, signal.pthread_kill, again)
        later.daemon = True
        later.start()
    else:
        sys.__unraisablehook__(ignored)
