"""The entry point of the script `bradbury`, and of `python -m bradbury.cli`.

The imports of the command line take a good part of a second, and Ctrl-C may come among them: so
next to nothing is imported before it is caught.
"""

from __future__ import annotations

import sys

from .command_interrupt import DEBUG, INTERRUPTED, was_interrupted


def main() -> None:
    """Run the command line of this process. Ctrl-C ends it without a traceback, from here on."""
    try:
        from .main import main as run_command_line

        run_command_line()
    except BaseException as error:
        if not was_interrupted(error):
            raise
        if DEBUG in sys.argv:
            import traceback

            traceback.print_exception(error)
        sys.exit(INTERRUPTED)
