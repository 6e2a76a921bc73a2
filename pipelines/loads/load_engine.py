"""Engines that run the tasks of a load: this process, a Spark job, or Ray tasks.

A commit contains the files of one attempt of each task, the one whose result was received. Spark
and Ray may run a task again if a node is lost or slow; files of other attempts are in no commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
    """Runs the tasks of one commit. task_count: preferred number of tasks."""

    @property
    def task_count(self) -> int: ...

    def run(self, tasks: Sequence[LoadTask]) -> list[WrittenFile]:
        """Run the tasks; returns the files of all. Raises what tasks raise, and LoadFailed."""
        ...


class LocalEngine:
    """Engine that runs tasks in this process, with its own client."""

    task_count = 1

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def run(self, tasks: Sequence[LoadTask]) -> list[WrittenFile]:
        """See LoadEngine."""
        return [file for task in tasks for file in task.run(self._client)]


class SparkEngine:
    """Engine that runs a Spark job for each commit; executors fetch records and write files."""

    def __init__(self, session: SparkSession, task_count: int | None) -> None:
        """Raises ValueError: the session is one of Spark Connect."""
        try:
            self._context = session.sparkContext
        except (AttributeError, NotImplementedError):
            raise ValueError(
                "the active Spark session is one of Spark Connect, which cannot run load tasks; "
                "use bradbury.spark(...) or another classic session"
            ) from None
        self.task_count = task_count or self._context.defaultParallelism

    def run(self, tasks: Sequence[LoadTask]) -> list[WrittenFile]:
        """See LoadEngine."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        numbers = self._context.parallelize(range(len(tasks)), len(tasks))
        try:
            # Tasks are pickled with the function: Spark's pickler for data supports fewer types.
            results = numbers.map(lambda number: run_task(tasks[number])).collect()
        except (Py4JError, PySparkException) as error:
            raise LoadFailed(f"a task of Spark failed: {_cause(str(error))}") from None
        return _files(results)


class RayEngine:
    """Engine that runs a Ray task of one CPU for each part of a commit, spread over the nodes."""

    def __init__(self, task_count: int | None) -> None:
        """Raises UpError: this process is not in a Ray cluster, and none is found."""
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
            # The other tasks are not cancelled: Ray 2.60 terminates the driver if the result of a
            # cancelled task arrives ("Tried to complete task that was not pending").
            ray.wait(running, num_returns=len(running))
            failed = isinstance(error, ray.exceptions.RayTaskError)
            cause = error.cause if failed else _cause(str(error))
            raise LoadFailed(f"a task of Ray failed: {cause}") from None


@dataclass(frozen=True, slots=True)
class Executors:
    """Spark executors to start in the Ray cluster; None: the default of bradbury.spark.

    count: None: none are started; the session that is active runs tasks, or one in this process.
    """

    count: int | None = None
    cores: int | None = None
    memory: str | None = None


def check_engine(engine: str, tasks: int | None, executors: Executors) -> None:
    """Check the engine and its settings. Raises ValueError: one of them is invalid."""
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}; use {', '.join(ENGINES)}")
    if tasks is not None and (tasks < 1 or engine == "local"):
        raise ValueError(f"tasks={tasks}: use 1 or more, with engine='spark' or 'ray'")
    if executors.count is not None and (executors.count < 1 or engine != "spark"):
        raise ValueError(f"executors={executors.count}: use 1 or more, with engine='spark'")
    given = {"executor_cores": executors.cores, "executor_memory": executors.memory}
    for name, value in given.items():
        if value is not None and executors.count is None:
            raise ValueError(
                f"{name}={value}: only with executors=N, which starts N of that size in the Ray "
                "cluster; in a session of your own, set it there"
            )
    if executors.cores is not None and executors.cores < 1:
        raise ValueError(f"executor_cores={executors.cores}: use 1 or more")


@contextmanager
def load_engine(
    engine: str, tasks: int | None, executors: Executors, client: ClusterClient
) -> Iterator[LoadEngine]:
    """The engine of this name; see check_engine.

    Raises:
        ValueError: the active Spark session cannot run load tasks.
        SparkUnavailable, UpError: the engine is not available.
    """
    if engine == "local":
        yield LocalEngine(client)
    elif engine == "ray":
        yield RayEngine(tasks)
    else:
        from ..spark.job_session import job_session

        servers = format_servers(client.bootstrap)
        with job_session(
            "bradbury-load",
            servers,
            executors.count,
            executor_cores=executors.cores,
            executor_memory=executors.memory,
        ) as session:
            yield SparkEngine(session, tasks)


def _files(results: Sequence[TaskResult]) -> list[WrittenFile]:
    for result in results:
        if result.refusal is not None:
            raise result.refusal
    return [file for result in results for file in result.files]


def _cause(text: str) -> str:
    """Line that names the cause, of a Python traceback nested in a Java one."""
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "...", "Driver st"))]
    errors = [line for line in said if "Error" in line or "Exception" in line]
    return (errors or said or ["no message"])[-1]
