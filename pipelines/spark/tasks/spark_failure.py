"""What a session or a query fails with: one line with cause and remedy, where the cause is known.

Of a call into Python that failed Spark shows what the worker wrote last: a traceback, thirty lines
through Spark's code and ours with the cause at their end. It omits the traceback where the
worker's environment says so, and it ends the worker afterwards; so said inside the worker, for a
failure whose cause is known, it concerns that failure alone. All others keep their traceback.

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
"""What the names begin with that Spark gives a worker to find it by."""


class SparkUnavailable(RuntimeError):
    """A session cannot be made here. The text is one line: the cause and the remedy."""


class SparkMissing(SparkUnavailable):
    """pyspark or raydp is not installed."""


class JavaMissing(SparkUnavailable):
    """There is no Java, or one that is too old for Spark 4."""


class RayNotInitialised(SparkUnavailable):
    """The process is in no Ray cluster, and none is known that it could join."""


class ReplayRefused(Exception):
    """A batch came again, and not as it was: neither losing nor doubling rows is possible."""


class ExactlyOnceUnavailable(Exception):
    """The brokers, or this Spark, do not have what it needs. The text says what is missing."""

    def __init__(self, missing: str) -> None:
        super().__init__(
            f"deliveryGuarantee=exactly-once is not possible: {missing}. Set the option "
            "deliveryGuarantee to at-least-once"
        )


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Around everything that Spark calls in one of its workers."""
    try:
        yield
    except Exception as error:
        is_ours = isinstance(
            error,
            KafkaError | ConnectionFailed | DataLoss | ReplayRefused | ExactlyOnceUnavailable,
        )
        # Not its subclasses, which Arrow and numpy raise: ours is what the user gave.
        known = is_ours or type(error) is ValueError
        if known and any(name.startswith(_OF_A_WORKER) for name in os.environ):
            os.environ[_HIDE_TRACEBACK] = "1"
        raise


def unknown_topic(topic: str, more: str = "") -> UnknownTopicOrPartition:
    """more: another remedy, beginning with a comma."""
    return UnknownTopicOrPartition(
        f"topic {topic!r} does not exist; create it with `bradbury topics create {topic}` or "
        f"bradbury.Admin().create_topic({topic!r}){more}"
    )
