"""The session that a job runs in: the one that is there, or one that ends with the job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .session import local_session, register, spark, stop_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def job_session(name: str, servers: str, executors: int | None) -> Iterator[SparkSession]:
    """Without `executors` the active session, or a new one in this process; else so many executors
    in the Ray cluster.

    Raises:
        SparkUnavailable: a session cannot be made here.
    """
    interrupted = signal.getsignal(signal.SIGINT)
    active = None if executors else _active()
    if active is not None:
        yield register(active, bootstrap=servers)
        return
    if executors:
        session = spark(name, num_executors=executors, bootstrap=servers)
    else:
        session = local_session(name, bootstrap=servers)
        session.sparkContext.setLogLevel("OFF")
    try:
        if threading.current_thread() is threading.main_thread():
            # Spark's own handler, which a new session sets, would not let a caller end by `stop`.
            signal.signal(signal.SIGINT, interrupted)
        yield session
    finally:
        if executors:
            stop_spark()
        else:
            session.stop()


def _active() -> SparkSession | None:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None  # the next step says what is missing
    return SparkSession.getActiveSession()
