"""Spark sessions with format("bradbury"): on RayDP executors, or in this process.

    spark = bradbury.spark("etl", num_executors=2)     in the Ray cluster this process is in
    spark = local_session(bootstrap="host:9092")       plain local[n] Spark, no Ray

Invariants:
    The source is registered with the session, so that it also exists in a checkout, where Spark's
    own discovery does not find `pyspark_bradbury`.
    The session has the bootstrap servers: options need no `kafka.bootstrap.servers`.
    Security is passed to tasks with the source, not in Spark's settings, which Spark shows.
    This process's environment is restored once a session exists.

Why each setting: docs/spark.md.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Unpack

from ...clients.security.security_options import (
    ClientSecurity,
    SecurityOptions,
    given_security,
)
from ...clients.wire.bootstrap_servers import find_bootstrap, format_servers
from ...discovery.byte_code import byte_code_kept
from ...discovery.extras import install_command
from ...discovery.ray_connection import is_connected, join_running
from ...discovery.ray_errors import UpError
from ...discovery.ray_tokens import AUTH_MODE, authentication_mode
from ...discovery.state_file import BOOTSTRAP_VARIABLE, cache_directory, default_namespace
from ...protocol.errors import ConnectionFailed
from .executors import check_room, memory_bytes
from .jvm import (
    DRIVER_OPTIONS,
    check_java,
    driver_environment,
    end_idle_java,
    java_options,
    remove_loaded_libraries,
    socket_settings,
)
from .tasks.spark_failure import JavaMissing, RayNotInitialised, SparkMissing, SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource
    from ray.util.placement_group import PlacementGroup

    from .source import BradburyDataSource

__all__ = [
    "JavaMissing",
    "RayNotInitialised",
    "SparkMissing",
    "SparkUnavailable",
    "check_java",
    "local_session",
    "register",
    "spark",
    "stop_spark",
]

_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_SOURCE_MANAGER: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager"
_PYTHON_SOURCE: Final = (
    "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource"
)
_OWN_PACKAGE: Final = "pyspark_bradbury"
_last_registered: type[BradburyDataSource] | None = None
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_FIRST_PARTITIONS: Final = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
# Variables that Spark's PythonStreamingSourceRunner adds to the environment of the source's
# function, which all queries of a session share, with the same or equivalent values: see
# _whole_environment.
_RUNNER_ENVIRONMENT: Final = {
    "SPARK_LOCAL_DIRS": "",
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
_SETTINGS: Final = {
    # Otherwise a cached result, and all that follows, keeps its first number of shuffle tasks.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    # Options with matching names or values are not shown, in addition to those that match Spark's
    # own pattern for passwords.
    "spark.sql.redaction.options.regex": "(?i)url|ssl[.]keystore[.]key",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def spark(
    app_name: str = "bradbury",
    *,
    num_executors: int = 1,
    executor_cores: int = 1,
    executor_memory: str = "1g",
    placement_group: PlacementGroup | None = None,
    short_lived: bool = False,
    configs: Mapping[str, str] | None = None,
    bootstrap: str | None = None,
    namespace: str | None = None,
    **security: Unpack[SecurityOptions],
) -> SparkSession:
    """A SparkSession whose executors are actors of the Ray cluster this process is in.

    A process outside of Ray joins the Ray cluster that runs Bradbury, as `bradbury.connect` does.
    End the session with `stop_spark`, or by leaving the process: its executors end with it.

    Args:
        executor_cores: tasks an executor runs at a time; it takes as many CPUs of Ray's resources.
            The number of shuffle tasks depends on the total of cores.
        executor_memory: memory of each executor, at least 450m. A Python worker takes 150 MB more.
        placement_group: Ray placement group whose bundles the executors take one after another;
            None: Ray places them.
        short_lived: for a session of a minute or two: the JVMs run without their optimising
            compiler, which halves the CPU time of a start, but makes long jobs slower.
        configs: Spark settings; they override those made here.
        bootstrap: "host:port,..." of the cluster; None: found as by all clients.
        namespace: the cluster's; by default BRADBURY_NAMESPACE, or "bradbury".
        security: security_protocol, ssl_* and sasl_*, for every query whose options give none; see
            SecurityOptions. References such as "${file:PATH:KEY}" are resolved in tasks.

    Raises:
        InvalidConfig, TypeError: invalid security.
        SparkMissing, JavaMissing, RayNotInitialised: one line with cause and remedy.
        SparkUnavailable: the process has a Spark session already, the cluster has no room for the
            executors, or Spark refuses a setting.
    Cost: 10-60 s and about 2 GB of memory in four JVMs.
    """
    secured = given_security(security)
    _module("pyspark")
    raydp = _module("raydp")
    check_java()
    memory_bytes(executor_memory)
    _refuse_second_session()
    _join_ray(namespace)
    servers = known_bootstrap(bootstrap, namespace)
    settings = _settings(configs, servers, core_count=num_executors * executor_cores)
    logs = _log_folder()
    settings |= java_options(configs or {}, short_lived=short_lived, log_folder=logs)
    if placement_group is None:
        check_room(
            _resources_of_nodes(),
            num_executors=num_executors,
            executor_cores=executor_cores,
            executor_memory=executor_memory,
            settings=settings,
        )
    end_idle_java()
    with _environment(settings, **{AUTH_MODE: authentication_mode()}), _java_errors_in_one_line():
        session = raydp.init_spark(
            app_name=app_name,
            num_executors=num_executors,
            executor_cores=executor_cores,
            executor_memory=executor_memory,
            placement_group=placement_group,
            configs=settings,
        )
    if logs is not None:
        remove_loaded_libraries(logs)
    atexit.unregister(stop_spark)
    atexit.register(stop_spark)  # runs before RayDP's own, which was registered at its import
    if not other_sources() and settings["spark.pyspark.driver.python"] == sys.executable:
        _omit_discovery(session, _source(servers, secured))
    return _registered(session, servers, secured)


def stop_spark() -> None:
    """End the session that `spark` made, and its executors. Does nothing if there is none."""
    if "raydp" not in sys.modules:
        return
    logs = _log_folder() if is_connected() else None
    if logs is not None:
        remove_loaded_libraries(logs)  # the first shuffle has loaded lz4
    sys.modules["raydp"].stop_spark()


def local_session(
    app_name: str = "bradbury",
    *,
    master: str = "local[2]",
    short_lived: bool = False,
    configs: Mapping[str, str] | None = None,
    bootstrap: str | None = None,
    namespace: str | None = None,
    **security: Unpack[SecurityOptions],
) -> SparkSession:
    """A SparkSession in this process (`master`), with the same settings and no Ray.

    security: as for `spark`.

    Raises:
        InvalidConfig, TypeError: invalid security.
        SparkMissing, JavaMissing: one line with cause and remedy.
        SparkUnavailable: this process has a Spark session already, or Spark refuses a setting.
    """
    secured = given_security(security)
    _module("pyspark")
    check_java()
    from pyspark.sql import SparkSession

    _refuse_second_session()
    servers = known_bootstrap(bootstrap, namespace)
    cores = re.search(r"\d+", master)
    core_count = int(cores[0]) if cores else os.cpu_count() or 1
    settings = _settings(configs, servers, core_count=core_count)
    settings[DRIVER_OPTIONS] = java_options(configs or {}, short_lived=short_lived)[DRIVER_OPTIONS]
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _environment(settings), _java_errors_in_one_line():
        session = builder.getOrCreate()
    if not other_sources() and settings["spark.pyspark.driver.python"] == sys.executable:
        _omit_discovery(session, _source(servers, secured))
    return _registered(session, servers, secured)


def register(
    session: SparkSession,
    *,
    bootstrap: str | None = None,
    **security: Unpack[SecurityOptions],
) -> SparkSession:
    """Register format("bradbury") with an existing session.

    bootstrap: bootstrap servers of queries without the option `kafka.bootstrap.servers`.
    security: as for `spark`.
    """
    return _registered(session, bootstrap, given_security(security))


def _registered(
    session: SparkSession, bootstrap: str | None, security: ClientSecurity | None
) -> SparkSession:
    global _last_registered
    _quieten_replacement(session)
    source = _source(bootstrap, security)
    with _whole_environment(session):
        session.dataSource.register(source)
    _last_registered = source
    return session


def registered_source() -> type[BradburyDataSource]:
    """The source that was registered last, with its defaults: a process has one Spark context."""
    from .source import BradburyDataSource

    return _last_registered or BradburyDataSource


@contextmanager
def _whole_environment(session: SparkSession) -> Iterator[None]:
    """Context in which functions passed to Spark get an environment with all runner variables.

    Each start of a stream puts four names into it, a java.util.HashMap, without a lock. Two starts
    at once can leave it with a wrong size, and then no task of the session can read its function:
    java.io.OptionalDataException. A put of an existing name only replaces its value, which threads
    may do concurrently.
    """
    environment = session.sparkContext.environment
    added = {name: value for name, value in _RUNNER_ENVIRONMENT.items() if name not in environment}
    environment.update(added)
    try:
        yield
    finally:
        for name in added:
            environment.pop(name, None)


def _source(bootstrap: str | None, security: ClientSecurity | None) -> type[BradburyDataSource]:
    from .source import BradburyDataSource

    if bootstrap is None and security is None:
        return BradburyDataSource

    class Located(BradburyDataSource):
        """Data source pickled by value, with its defaults; the objects it makes are importable."""

        default_bootstrap = bootstrap
        default_security = security

    return Located


def _omit_discovery(session: SparkSession, source: type[DataSource]) -> None:
    """Set `source` as the result of Spark's discovery of sources, which saves 2-3 s.

    Spark would start three Python processes to import every installed `pyspark_*` package. It keeps
    the result for all sessions of a JVM, so that those of `newSession()` have the format, too. The
    session created last determines the bootstrap servers. If this version of Spark has no such
    field, it discovers sources as usual.
    """
    from py4j.protocol import Py4JError
    from pyspark.sql.udf import _wrap_function

    jvm: Any = session._jvm
    try:
        manager = getattr(getattr(jvm, f"{_SOURCE_MANAGER}$"), "MODULE$")
        with _whole_environment(session):
            function = _wrap_function(session.sparkContext, source)
        found = jvm.java.util.HashMap()
        found.put(source.name(), getattr(jvm, _PYTHON_SOURCE)(function))
        found = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(found)
        getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(found))
    except (Py4JError, TypeError):  # TypeError: raised by py4j for a name that is not a class
        return


def other_sources() -> list[str]:
    """Names of packages besides ours in which Spark looks for data sources."""
    names = (module.name for module in pkgutil.iter_modules())
    return [name for name in names if name.startswith("pyspark_") and name != _OWN_PACKAGE]


def _quieten_replacement(session: SparkSession) -> None:
    """Turn off Spark's warning in every query that a registered source hides a discovered one."""
    log4j: Any = session._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel(_SOURCE_MANAGER, log4j.Level.ERROR)


def known_bootstrap(bootstrap: str | None, namespace: str | None = None) -> str | None:
    """Bootstrap servers of the cluster; None: not known, so that an option has to set them."""
    try:
        return format_servers(find_bootstrap(bootstrap, namespace=namespace))
    except ConnectionFailed:
        return None


def import_paths() -> list[str]:
    """Entries of PYTHONPATH by which other processes of this interpreter can import Bradbury.

    Empty for an installed wheel. A checkout is found by the folder that contains it as `bradbury`;
    `pyspark_bradbury` is in its folder `pipelines`.
    """
    root = Path(__file__).resolve().parents[2]
    installed = _site_packages(root)
    if installed:
        return []
    paths = [entry for entry in sys.path if entry and (Path(entry) / "bradbury").resolve() == root][
        :1
    ]
    return [str(Path(entry).resolve()) for entry in paths] + [str(root / "pipelines")]


def _site_packages(root: Path) -> bool:
    return root.parent.name in ("site-packages", "dist-packages")


def _settings(
    configs: Mapping[str, str] | None, bootstrap: str | None, *, core_count: int
) -> dict[str, str]:
    settings = _SETTINGS | socket_settings()
    # Streams always use this number of shuffle tasks, also for little data.
    settings[_SHUFFLE_PARTITIONS] = str(max(4, 2 * core_count))
    if _SHUFFLE_PARTITIONS not in (configs or {}):
        # A batch starts with this number and joins small ones: enough for a large shuffle.
        settings[_FIRST_PARTITIONS] = str(max(32, 16 * core_count))
    settings["spark.pyspark.python"] = sys.executable
    settings["spark.pyspark.driver.python"] = sys.executable
    paths = [*import_paths(), *filter(None, [os.environ.get("PYTHONPATH")])]
    if paths:
        settings["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(paths)
    if bootstrap is not None:
        settings[f"spark.executorEnv.{BOOTSTRAP_VARIABLE}"] = bootstrap
    settings.update(configs or {})
    return settings


@contextmanager
def _environment(settings: Mapping[str, str], **more: str) -> Iterator[None]:
    """Context with the environment for new JVMs, and for the Python workers of the driver."""
    wanted = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **more}
    wanted |= driver_environment(cache_directory())
    if "spark.executorEnv.PYTHONPATH" in settings:
        wanted["PYTHONPATH"] = settings["spark.executorEnv.PYTHONPATH"]
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        with byte_code_kept():
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _refuse_second_session() -> None:
    from pyspark import SparkContext

    active: Any = SparkContext._active_spark_context  # there is no public API without a JVM
    if active is not None:
        raise SparkUnavailable(
            "this process has a Spark session already, and Spark allows only one: use it with "
            "bradbury.pipelines.spark.session.register(session), or stop it first with "
            "bradbury.pipelines.spark.session.stop_spark()"
        )


def _join_ray(namespace: str | None) -> None:
    if is_connected():
        return
    try:
        join_running(namespace or default_namespace())
    except UpError as error:
        raise RayNotInitialised(
            f"this process is not in a Ray cluster and none is found ({error}); call bradbury.up() "
            "first, or use bradbury.pipelines.spark.session.local_session() for Spark without Ray"
        ) from None


def _log_folder() -> Path | None:
    """Log folder of the Ray session on this machine; None: the process is not on a Ray node.

    Ray has no public API for it.
    """
    worker: Any = importlib.import_module("ray._private.worker")
    node = worker._global_node
    return None if node is None else Path(node.get_logs_dir_path())


def _resources_of_nodes() -> list[Mapping[str, float]]:
    ray: Any = importlib.import_module("ray")
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@contextmanager
def _java_errors_in_one_line() -> Iterator[None]:
    """Turns Spark's Java exceptions, with their stacks, into a SparkUnavailable of one line."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        said = " ".join(str(error.java_exception.getMessage()).split())
        raise SparkUnavailable(f"Spark failed to start: {said}") from None


def _module(name: str) -> ModuleType:
    if importlib.util.find_spec(name) is None:
        raise SparkMissing(f"{name} is not installed: {install_command('spark')}")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SparkMissing(
            f"{name} cannot be imported ({error}): {install_command('spark')}"
        ) from None
