"""Validation of the arguments that all reads and writes of topics have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...clients.security.security_options import ClientSecurity
from ...discovery.bootstrap import find_servers
from ...discovery.state_file import default_namespace
from .fetch_options import FetchOptions
from .partition_range import ReadLimits

_ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}
ALLOW_DATA_LOSS: Final = "set fail_on_data_loss to false"
ALLOW_DATA_LOSS_OF_COMMANDS: Final = f"{ALLOW_DATA_LOSS} (the option --allow-data-loss)"
"""Remedy where there is a function and a command: the code does not know which was called."""


def topic_names(topics: str | Sequence[str]) -> list[str]:
    """Names as a list. Raises ValueError if there is none, or one is given twice."""
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names or len(set(names)) != len(names):
        raise ValueError(f"topics is {topics!r}; name at least one, and each once")
    return names


def servers_of(bootstrap_servers: str | Sequence[str] | None) -> str:
    """Bootstrap servers: those given, or those found as by all clients. Raises ConnectionFailed."""
    if bootstrap_servers is not None and not isinstance(bootstrap_servers, str):
        bootstrap_servers = ",".join(bootstrap_servers)
    return find_servers(bootstrap_servers, default_namespace())


def read_limits(
    isolation_level: str,
    client_id: str,
    *,
    poll_timeout_ms: int,
    fail_on_data_loss: bool,
    allow_data_loss: str = ALLOW_DATA_LOSS,
    local_files: bool = False,
    value_views: bool = False,
    security: ClientSecurity | None = None,
) -> ReadLimits:
    """Limits of a read.

    allow_data_loss: see ReadLimits. security: None: that of the environment of each process.

    Raises:
        ValueError: the isolation level is unknown, or the timeout not above 0.
        TypeError: fail_on_data_loss is a text: Python would take "no" for true.
    """
    if not isinstance(fail_on_data_loss, bool):
        raise TypeError(f"fail_on_data_loss is {fail_on_data_loss!r}; use True or False")
    if not isinstance(poll_timeout_ms, int) or poll_timeout_ms <= 0:
        raise ValueError(
            f"poll_timeout_ms is {poll_timeout_ms!r}; use a whole number of milliseconds above 0"
        )
    if isolation_level not in _ISOLATION_LEVELS:
        raise ValueError(
            f"isolation_level is {isolation_level!r}; use {' or '.join(_ISOLATION_LEVELS)}"
        )
    return ReadLimits(
        fetch=FetchOptions(
            isolation_level=_ISOLATION_LEVELS[isolation_level],
            client_id=client_id,
            local_files=local_files,
            value_views=value_views,
            security=security,
        ),
        poll_timeout_ms=poll_timeout_ms,
        poll_timeout_name="poll_timeout_ms",
        fail_on_data_loss=fail_on_data_loss,
        allow_data_loss=allow_data_loss,
    )
