"""Errors of sessions and queries: one line with cause and remedy, if the cause is known.

If a call into Python fails, Spark shows the last output of the worker: a traceback of thirty lines
through Spark's code and ours, with the cause at the end. It omits the traceback if a variable is
set in the worker's environment, and it ends the worker afterwards. So if the variable is set inside
the worker for an error whose cause is known, it affects that error alone.

Source: handle_worker_exception in pyspark/util.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ....protocol.errors import ConnectionFailed, KafkaError, UnknownTopicOrPartition
from ...ranges.partition_range import DataLoss

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
_OF_A_WORKER: Final = "PYTHON_WORKER_FACTORY_"
"""Prefix of variables that Spark sets in the environment of its Python workers."""


class SparkUnavailable(RuntimeError):
    """A session cannot be created here. The text is one line: the cause and the remedy."""


class SparkMissing(SparkUnavailable):
    """pyspark or raydp is not installed."""


class JavaMissing(SparkUnavailable):
    """Java is not installed, or too old for Spark 4."""


class RayNotInitialised(SparkUnavailable):
    """The process is not in a Ray cluster, and finds none to join."""


class ReplayRefused(Exception):
    """A repeated batch differs from the first: writing it would lose or duplicate rows."""


class ExactlyOnceUnavailable(Exception):
    """Brokers or Spark lack support for exactly-once. The text says what is missing."""

    def __init__(self, missing: str) -> None:
        super().__init__(
            f"deliveryGuarantee=exactly-once is not possible: {missing}. Set the option "
            "deliveryGuarantee to at-least-once"
        )


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Context, or decorator, for calls by Spark: errors of known cause are shown in one line."""
    try:
        yield
    except Exception as error:
        is_ours = isinstance(
            error,
            KafkaError | ConnectionFailed | DataLoss | ReplayRefused | ExactlyOnceUnavailable,
        )
        # Not its subclasses, which Arrow and numpy raise: a plain ValueError is about user input.
        known = is_ours or type(error) is ValueError
        if known and any(name.startswith(_OF_A_WORKER) for name in os.environ):
            os.environ[_HIDE_TRACEBACK] = "1"
        raise


def unknown_topic(topic: str, more: str = "") -> UnknownTopicOrPartition:
    """Exception for a topic that does not exist. more: another remedy, after a comma."""
    return UnknownTopicOrPartition(
        f"topic {topic!r} does not exist; create it with `bradbury topics create {topic}` or "
        f"bradbury.Admin().create_topic({topic!r}){more}"
    )
