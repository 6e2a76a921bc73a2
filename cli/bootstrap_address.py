"""Where a command finds the brokers, when it is not told.

In this order: --bootstrap; the environment's BRADBURY_BOOTSTRAP; the cluster that `bradbury up`
started here and that still runs; inside a Ray cluster its controller actor; localhost:9092.
"""

from __future__ import annotations

import os

from .failure import CommandFailed
from .state_file import live_state

ENVIRONMENT_VARIABLE = "BRADBURY_BOOTSTRAP"
DEFAULT = "localhost:9092"
RAY_VARIABLES = ("RAY_ADDRESS", "RAY_JOB_ID")
"""Set by the user who means a Ray cluster, and by Ray in its own workers."""


def bootstrap_servers(option: str | None) -> str:
    """The addresses to ask first, "host:port,...". Raises CommandFailed for what is none."""
    found = option or os.environ.get(ENVIRONMENT_VARIABLE)
    if not found:
        state = live_state()
        found = state.bootstrap if state is not None else _from_ray() or DEFAULT
    from ..clients.bootstrap import parse_servers

    try:
        parse_servers(found)
    except ValueError:
        raise CommandFailed(
            f"{found!r} is no address; say --bootstrap host:port[,host:port]"
        ) from None
    return found


def _from_ray() -> str | None:
    if not any(os.environ.get(name) for name in RAY_VARIABLES):
        return None
    from ..actors.launch import UpError, connect

    try:
        return connect().bootstrap_servers
    except UpError:
        return None
