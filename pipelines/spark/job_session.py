"""Session for a job: the active one, or one that ends with the job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .session import local_session, register, spark, stop_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def job_session(
    name: str,
    servers: str,
    executors: int | None,
    *,
    executor_cores: int | None = None,
    executor_memory: str | None = None,
) -> Iterator[SparkSession]:
    """Context manager of the session for a job.

    executors: number of executors in the Ray cluster; None or 0: the active session or, if there
    is none, a new one in this process.
    executor_cores, executor_memory: size of each of them; None: the defaults of bradbury.spark.

    Raises:
        SparkUnavailable: a session cannot be created here.
    """
    interrupted = signal.getsignal(signal.SIGINT)
    active = None if executors else _active()
    if active is not None:
        yield register(active, bootstrap=servers)
        return
    if executors:
        size: dict[str, Any] = {
            "executor_cores": executor_cores,
            "executor_memory": executor_memory,
        }
        size = {setting: value for setting, value in size.items() if value is not None}
        session = spark(name, num_executors=executors, bootstrap=servers, **size)
    else:
        session = local_session(name, bootstrap=servers)
        session.sparkContext.setLogLevel("OFF")
    try:
        if threading.current_thread() is threading.main_thread():
            # The handler that a new session sets would prevent callers from handling SIGINT.
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
        return None  # the next step raises SparkMissing
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # Spark's active session is per thread, but another thread may have created the session of
    # this process. Streams look up their sink in the active session of the thread.
    found: SparkSession | None = SparkSession._instantiatedSession
    if found is None or found._sc._jsc is None:
        return None
    assert found._jvm is not None, "its JVM lives as long as its context"
    found._jvm.SparkSession.setActiveSession(found._jsparkSession)
    return found
