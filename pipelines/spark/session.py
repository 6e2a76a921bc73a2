"""Spark sessions that know format("bradbury"): on RayDP executors, or in this process.

    spark = bradbury.spark("etl", num_executors=2)     in the Ray cluster this process is in
    spark = local_session(bootstrap="host:9092")       plain local[n] Spark, no Ray

What always holds:
    The source is registered with the session, so that it is there from a checkout too, where
    Spark's own discovery of `pyspark_bradbury` does not see it.
    The session knows where the cluster is: options need no `kafka.bootstrap.servers`.
    This process's environment is as before when a session stands.

Why each setting: docs/spark.md.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ...clients.bootstrap import find_bootstrap
from ...discovery.state_file import BOOTSTRAP_VARIABLE
from ...protocol.errors import ConnectionFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA: Final = 17

_OPENED: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
JAVA_OPTIONS: Final = " ".join(
    [
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
    ]
)
_EXECUTOR_CPU: Final = "spark.ray.raydp_spark_executor.actor.resource.cpu"
_JAVA_OPTION_NAMES: Final = (  # RayDP starts three kinds of JVM
    "spark.driver.extraJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.ray.raydp_app_master.extraJavaOptions",
)
_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_SOURCE_MANAGER: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager"
_SETTINGS: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class SparkUnavailable(RuntimeError):
    """A session cannot be made here. The text is one line: the cause and the remedy."""


class SparkMissing(SparkUnavailable):
    """pyspark or raydp is not installed."""


class JavaMissing(SparkUnavailable):
    """There is no Java, or one that is too old for Spark 4."""


class RayNotInitialised(SparkUnavailable):
    """The process is in no Ray cluster."""


def spark(
    app_name: str = "bradbury",
    *,
    num_executors: int = 1,
    executor_cores: int = 1,
    executor_memory: str = "1g",
    configs: Mapping[str, str] | None = None,
    bootstrap: str | None = None,
    namespace: str | None = None,
) -> SparkSession:
    """A SparkSession whose executors are actors of the Ray cluster this process is in.

    End it with `stop_spark`, or by leaving the process: its executors end with it.

    Args:
        executor_cores: tasks an executor runs at a time; that many CPUs of Ray's books.
        executor_memory: of each executor, at least 512M. A Python worker has 150 MB beside it.
        configs: Spark settings; they win over those made here.
        bootstrap: "host:port,..." of the cluster; found as all clients do when left out.
        namespace: of the Ray actors of the cluster.

    Raises:
        SparkMissing, JavaMissing, RayNotInitialised: one line with cause and remedy.
        SparkUnavailable: the process has a Spark session already, or the cluster has too few CPUs.
    Cost: 20-60 s and about 2 GB of memory in four JVMs.
    """
    _module("pyspark")
    raydp = _module("raydp")
    check_java()
    ray = _module("ray")

    if not ray.is_initialized():
        raise RayNotInitialised(
            "Ray is not initialised in this process: call bradbury.up() or ray.init() first, or "
            "use bradbury.pipelines.spark.session.local_session() for Spark without Ray"
        )
    _refuse_second_session()
    servers = known_bootstrap(bootstrap, namespace)
    settings = _settings(configs, servers, core_count=num_executors * executor_cores)
    _check_resources(ray.cluster_resources(), num_executors, executor_cores, settings)
    _end_idle_java()
    for name in _JAVA_OPTION_NAMES:
        settings[name] = f"{JAVA_OPTIONS} {(configs or {}).get(name, '')}".strip()
    with _environment(settings, RAY_AUTH_MODE=_ray_auth_mode()):
        session = raydp.init_spark(
            app_name=app_name,
            num_executors=num_executors,
            executor_cores=executor_cores,
            executor_memory=executor_memory,
            configs=settings,
        )
    return register(session, bootstrap=servers)


def stop_spark() -> None:
    """End the session that `spark` made and its executors. Harmless if there is none."""
    if "raydp" in sys.modules:
        sys.modules["raydp"].stop_spark()


def local_session(
    app_name: str = "bradbury",
    *,
    master: str = "local[2]",
    configs: Mapping[str, str] | None = None,
    bootstrap: str | None = None,
    namespace: str | None = None,
) -> SparkSession:
    """A SparkSession in this process (`master`), with the same settings and no Ray.

    Raises:
        SparkMissing, JavaMissing: one line with cause and remedy.
        SparkUnavailable: this process has a Spark session already.
    """
    _module("pyspark")
    check_java()
    from pyspark.sql import SparkSession

    _refuse_second_session()
    servers = known_bootstrap(bootstrap, namespace)
    cores = re.search(r"\d+", master)
    core_count = int(cores[0]) if cores else os.cpu_count() or 1
    settings = _settings(configs, servers, core_count=core_count)
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _environment(settings):
        session = builder.getOrCreate()
    return register(session, bootstrap=servers)


def register(session: SparkSession, *, bootstrap: str | None = None) -> SparkSession:
    """Make format("bradbury") known to a session of your own.

    bootstrap: where the cluster is when the option `kafka.bootstrap.servers` does not say.
    """
    from .source import BradburyDataSource

    source: type[BradburyDataSource] = BradburyDataSource
    if bootstrap is not None:

        class Located(BradburyDataSource):
            """Travels by value, and the address with it; all it makes is importable."""

            default_bootstrap = bootstrap

        source = Located
    _quieten_replacement(session)
    session.dataSource.register(source)
    return session


def _quieten_replacement(session: SparkSession) -> None:
    """Spark warns at every query that a registered source hides a discovered one; it should."""
    log4j: Any = session._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel(_SOURCE_MANAGER, log4j.Level.ERROR)


def known_bootstrap(bootstrap: str | None, namespace: str | None = None) -> str | None:
    """Where the cluster is, or None if nobody says yet: then an option has to."""
    try:
        return ",".join(str(one) for one in find_bootstrap(bootstrap, namespace=namespace))
    except ConnectionFailed:
        return None


def check_java() -> int:
    """The major version of the Java that Spark will start.

    Raises:
        JavaMissing: there is none, or it is older than LEAST_JAVA.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = (
        f"install a JDK {LEAST_JAVA} or 21 (Debian, Ubuntu: apt install openjdk-17-jre-headless)"
        " or point JAVA_HOME at one"
    )
    if java is None:
        raise JavaMissing(f"Spark needs Java and there is none on PATH: {remedy}")
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise JavaMissing(f"{java} cannot be run ({error.strerror}): {remedy}") from None
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    if match is None:
        raise JavaMissing(f"{java} does not say its version: {remedy}")
    version = int(match[1])
    if version < LEAST_JAVA:
        raise JavaMissing(
            f"Spark 4 needs Java {LEAST_JAVA} or later, {java} is {version}: {remedy}"
        )
    return version


def import_paths() -> list[str]:
    """What PYTHONPATH must have so that other processes of this interpreter import Bradbury.

    Empty for an installed wheel. A checkout is on sys.path by the folder that holds it as
    `bradbury`; `pyspark_bradbury` is then one level further in.
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
    settings = dict(_SETTINGS)
    # A stream shuffles into as many tasks as this says, however little there is: 200 by default.
    # A batch begins with 200 as before and joins small ones.
    settings["spark.sql.shuffle.partitions"] = str(max(4, 2 * core_count))
    settings["spark.sql.adaptive.coalescePartitions.initialPartitionNum"] = "200"
    settings["spark.pyspark.python"] = sys.executable
    settings["spark.pyspark.driver.python"] = sys.executable
    paths = [*import_paths(), *filter(None, [os.environ.get("PYTHONPATH")])]
    if paths:
        settings["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(paths)
    if bootstrap is not None:
        settings[f"spark.executorEnv.{BOOTSTRAP_VARIABLE}"] = bootstrap
    settings.update(configs or {})
    return settings


def _ray_auth_mode() -> str:
    """How this process proves itself to Ray: the driver's JVM joins the same cluster.

    Ray decides it when a cluster starts, and another process has it from the environment only.
    """
    raylet: Any = importlib.import_module("ray._raylet")
    is_token = raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN
    return "token" if is_token else "disabled"


@contextmanager
def _environment(settings: Mapping[str, str], **more: str) -> Iterator[None]:
    """What JVMs that are started now inherit, and with them the Python workers of the driver."""
    wanted = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **more}
    if "spark.executorEnv.PYTHONPATH" in settings:
        wanted["PYTHONPATH"] = settings["spark.executorEnv.PYTHONPATH"]
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _refuse_second_session() -> None:
    from pyspark import SparkContext

    active: Any = SparkContext._active_spark_context  # no public way without a JVM
    if active is not None:
        raise SparkUnavailable(
            "this process has a Spark session already, and Spark allows one: use it with "
            "bradbury.pipelines.spark.session.register(session), or stop it first"
        )


def _check_resources(
    resources: Mapping[str, float], num_executors: int, cores: int, settings: Mapping[str, str]
) -> None:
    """Refuse what would wait for ever: RayDP says nothing when its executors find no room."""
    each = float(settings.get(_EXECUTOR_CPU, cores))
    wanted, there = each * num_executors, resources.get("CPU", 0.0)
    if wanted > there:
        raise SparkUnavailable(
            f"{num_executors} executors of {each:g} CPUs do not fit in this Ray cluster, which has "
            f"{there:g}: ask for fewer, add nodes, or let executors count for less with "
            f"configs={{{_EXECUTOR_CPU!r}: '0.1'}}"
        )


def _end_idle_java() -> None:
    """End the JVM that an earlier session of this process left behind.

    Spark would use it again, and it was started without RayDP's classes and options.
    """
    from pyspark import SparkContext

    context: Any = SparkContext
    gateway = context._gateway
    if gateway is None:
        return
    context._gateway = context._jvm = None
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(30)


def _module(name: str) -> ModuleType:
    if importlib.util.find_spec(name) is None:
        raise SparkMissing(f"{name} is not installed: pip install 'bradbury[spark]'")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SparkMissing(
            f"{name} cannot be imported ({error}): pip install 'bradbury[spark]'"
        ) from None
