"""The loggers of this process as a Kafka broker's: described, and their levels set (KIP-412).

A node is a separate process, so its loggers are those of its code and of the libraries in it. A
level that is set holds until the process ends, as in Kafka; it is not persisted.
Source: apache/kafka core/.../logger/RuntimeLoggerManager.java.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ...cluster.control.config_control import ConfigChange, Operation
from ...protocol.errors import InvalidConfig, InvalidRequest

ROOT: Final = "root"
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Python's levels by Kafka's names, from the most verbose to the least."""


def levels() -> dict[str, str]:
    """Effective level of each logger, by name."""
    names = list(logging.root.manager.loggerDict)  # packages, too: a level of theirs is inherited
    found = {ROOT: logging.root} | {name: logging.getLogger(name) for name in names}
    return {name: _level_name(logger.getEffectiveLevel()) for name, logger in sorted(found.items())}


def _level_name(level: int) -> str:
    return next((name for name, least in LEVELS.items() if level <= least), "FATAL")


def alter_levels(changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
    """Change levels, all or none. Raises InvalidRequest, InvalidConfig."""
    known = levels()
    for change in changes:
        if change.operation not in (Operation.SET, Operation.DELETE):
            raise InvalidRequest("the level of a logger can be set or deleted, nothing else")
        if change.name not in known:
            raise InvalidConfig(f"Logger {change.name} does not exist!")
        if change.operation == Operation.DELETE and change.name == ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
        if change.operation == Operation.SET and change.value not in LEVELS:
            raise InvalidConfig(
                f"the level of {change.name} is one of {', '.join(LEVELS)}, not {change.value!r}"
            )
    if validate_only:
        return
    for change in changes:
        logger = logging.root if change.name == ROOT else logging.getLogger(change.name)
        logger.setLevel(
            logging.NOTSET if change.operation == Operation.DELETE else LEVELS[change.value or ""]
        )
