"""The command `bradbury log`: inspects log files without a broker; copies a topic to another.

Not here: the work of each command (log_dump, log_verify, log_index_check,
log_quarantine, log_replay).
"""

from __future__ import annotations

from ..terminal.app import App
from .log_dump import dump
from .log_index_check import index_check
from .log_quarantine import quarantine
from .log_replay import replay
from .log_verify import verify

log = App(help="Inspect log files without a broker; replay a topic.", no_args_is_help=True)

log.command()(dump)
log.command()(verify)
log.command("index-check")(index_check)
log.command()(quarantine)
log.command()(replay)
