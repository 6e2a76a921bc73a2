"""Where the tasks of a load run: in this process, as a Spark job, or as tasks of Ray.

What a run of a task has written counts once its result is here; another run of the same task, which
Spark and Ray may begin when a node is lost or slow, has written files that no commit knows of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...clients.wire.bootstrap_servers import format_servers
from ...clients.wire.cluster_client import ClusterClient
from ...discovery.ray_connection import is_connected, join_running
from ...discovery.state_file import default_namespace
from .load_target import LoadFailed
from .load_task import LoadTask, TaskResult, run_task
from .table_files import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES: Final = ("local", "spark", "ray")


class LoadEngine(Protocol):
    """Runs the tasks of one commit. task_count: into how many it is best cut."""

    @property
    def task_count(self) -> int: ...

    def run(self, tasks: Sequence[LoadTask]) -> list[WrittenFile]:
        """All their files. Raises what tasks raise, and LoadFailed."""
        ...


class LocalEngine:
    """The process itself, with its own client."""

    task_count = 1

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def run(self, tasks: Sequence[LoadTask]) -> list[WrittenFile]:
        """See LoadEngine."""
        return [file for task in tasks for file in task.run(self._client)]


class SparkEngine:
    """A job of Spark for each commit; its executors read the brokers and write the files."""

    def __init__(self, session: SparkSession, task_count: int | None) -> None:
        """Raises ValueError: it is a session of Spark Connect."""
        try:
            self._context = session.sparkContext
        except (AttributeError, NotImplementedError):
            raise ValueError(
                "the active Spark session is one of Spark Connect, which runs no tasks of ours; "
                "use bradbury.spark(...) or another classic session"
            ) from None
        self.task_count = task_count or self._context.defaultParallelism

    def run(self, tasks: Sequence[LoadTask]) -> list[WrittenFile]:
        """See LoadEngine."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        numbers = self._context.parallelize(range(len(tasks)), len(tasks))
        try:
            # Tasks travel with the function: Spark pickles more kinds of those than of data.
            results = numbers.map(lambda number: run_task(tasks[number])).collect()
        except (Py4JError, PySparkException) as error:
            raise LoadFailed(f"a task of Spark failed: {_cause(str(error))}") from None
        return _files(results)


class RayEngine:
    """A task of Ray, of one CPU, for each part of a commit; spread over the nodes."""

    def __init__(self, task_count: int | None) -> None:
        """Raises UpError: this process is in no Ray cluster, and none is known."""
        import ray

        if not is_connected():
            join_running(default_namespace())
        self._ray: Any = ray
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        self.task_count = task_count or max(1, cores)

    def run(self, tasks: Sequence[LoadTask]) -> list[WrittenFile]:
        """See LoadEngine."""
        ray = self._ray
        remote = ray.remote(run_task).options(
            scheduling_strategy="SPREAD", num_cpus=1, retry_exceptions=True
        )
        running = [remote.remote(task) for task in tasks]
        try:
            return _files(ray.get(running))
        except ray.exceptions.RayError as error:
            # The others are not cancelled: Ray 2.60 ends the driver where the result of a cancelled
            # task is on its way ("Tried to complete task that was not pending").
            ray.wait(running, num_returns=len(running))
            failed = isinstance(error, ray.exceptions.RayTaskError)
            cause = error.cause if failed else _cause(str(error))
            raise LoadFailed(f"a task of Ray failed: {cause}") from None


def check_engine(engine: str, tasks: int | None, executors: int | None) -> None:
    """Raises ValueError: there is no such engine, or it has no such setting."""
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}; use {', '.join(ENGINES)}")
    if tasks is not None and (tasks < 1 or engine == "local"):
        raise ValueError(f"tasks={tasks}: use 1 or more, with engine='spark' or 'ray'")
    if executors is not None and (executors < 1 or engine != "spark"):
        raise ValueError(f"executors={executors}: use 1 or more, with engine='spark'")


@contextmanager
def load_engine(
    engine: str, tasks: int | None, executors: int | None, client: ClusterClient
) -> Iterator[LoadEngine]:
    """See check_engine.

    Raises:
        ValueError: the active session runs no tasks of ours.
        SparkUnavailable, UpError: the engine is not there.
    """
    if engine == "local":
        yield LocalEngine(client)
    elif engine == "ray":
        yield RayEngine(tasks)
    else:
        from ..spark.job_session import job_session

        with job_session("bradbury-load", format_servers(client.bootstrap), executors) as session:
            yield SparkEngine(session, tasks)


def _files(results: Sequence[TaskResult]) -> list[WrittenFile]:
    for result in results:
        if result.refusal is not None:
            raise result.refusal
    return [file for result in results for file in result.files]


def _cause(text: str) -> str:
    """The last line that says something, of a traceback within Java's within ours."""
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "...", "Driver st"))]
    errors = [line for line in said if "Error" in line or "Exception" in line]
    return (errors or said or ["it says nothing"])[-1]
