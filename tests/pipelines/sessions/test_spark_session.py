"""What is said where no Spark session can be made, and what one is given?"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pyspark
import pytest

import bradbury
from bradbury.discovery import ray_connection
from bradbury.pipelines.spark import session
from bradbury.pipelines.spark.executors import EXECUTOR_CPU, check_room, memory_bytes
from bradbury.pipelines.spark.jvm import (
    DRIVER_OPTIONS,
    EXECUTOR_OPTIONS,
    MASTER_OPTIONS,
    driver_environment,
    java_options,
)
from bradbury.pipelines.spark.session import (
    JavaMissing,
    SparkMissing,
    SparkUnavailable,
    check_java,
    import_paths,
    known_bootstrap,
    other_sources,
)


def test_a_package_of_another_source_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert other_sources() == []
    (tmp_path / "pyspark_elsewhere.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert other_sources() == ["pyspark_elsewhere"]


def java_saying(folder: Path, text: str) -> str:
    """A JAVA_HOME whose java answers -version with `text`."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("version", ["17.0.15", "21"])
def test_java_17_and_later_are_accepted(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", java_saying(tmp_path, f'openjdk version "{version}" 2025'))
    assert check_java() == int(version.partition(".")[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('openjdk version "1.8.0_402"', "is 8: install a JDK 17"),
        ('openjdk version "11.0.2" 2019-01-15', "is 11: install a JDK 17"),
        ("no idea", "prints no version"),
    ],
)
def test_an_older_java_is_named_with_the_remedy(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", java_saying(tmp_path, text))
    with pytest.raises(JavaMissing, match=said) as refused:
        check_java()
    assert "\n" not in str(refused.value)


def test_no_java_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="apt install openjdk-17-jre-headless"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="cannot be run"):
        check_java()


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SparkMissing, match=r"pyspark is not installed: .*pip install .*\[spark\]"):
        bradbury.spark()
    with pytest.raises(SparkMissing):
        session.local_session()


def in_a_process_of_its_own(code: str, paths: list[str] | None = None) -> str:
    """What it prints. A process, for Ray and Spark keep what they know of one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths or sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.slow
def test_outside_a_ray_cluster_it_is_said_what_to_call() -> None:
    said = in_a_process_of_its_own(
        "import bradbury\n"
        "from bradbury.pipelines.spark.session import RayNotInitialised\n"
        "try:\n    bradbury.spark(namespace='of_nobody')\n"
        "except RayNotInitialised as error:\n    print(error)\n"
    )
    assert "call bradbury.up() first" in said
    assert "local_session()" in said
    assert len(said.splitlines()) == 1


GIB = 1024.0**3


def room(
    *nodes: tuple[float, float], executors: int, cores: int = 1, memory: str = "1g", **settings: str
) -> None:
    """Nodes as (CPUs, GiB)."""
    check_room(
        [{"CPU": cpus, "memory": gib * GIB} for cpus, gib in nodes],
        num_executors=executors,
        executor_cores=cores,
        executor_memory=memory,
        settings=settings,
    )


def test_executors_that_can_never_be_placed_are_refused() -> None:
    with pytest.raises(SparkUnavailable, match="3 executors of 2 CPUs do not fit") as refused:
        room((4, 9), executors=3, cores=2)
    assert "whose nodes have 4:" in str(refused.value)
    room((4, 9), executors=2, cores=2)
    room((1, 9), executors=3, cores=2, **{EXECUTOR_CPU: "0.1"})
    with pytest.raises(SparkUnavailable, match="whose nodes have 1, 1, 1:"):
        room((1, 9), (1, 9), (1, 9), executors=1, cores=2)  # three CPUs, but on three nodes
    with pytest.raises(SparkUnavailable, match="3 executors of 2048 MiB do not fit") as refused:
        room((4, 3), (4, 3), executors=3, memory="2g")
    assert "whose nodes have 3072, 3072 MiB" in str(refused.value)
    room((4, 3), (4, 3), executors=2, memory="2g")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1g", GIB), ("512m", GIB / 2), ("512M", GIB / 2), ("512mb", GIB / 2), ("2048", 2 * GIB)],
)
def test_sizes_are_written_as_spark_has_them(text: str, size: float) -> None:
    assert memory_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("100m", "executor_memory='100m' is too little: Spark needs 450 MiB"),
        ("449m", "use '512m' or more"),
        ("1.5g", "is not a size"),
        ("much", "use a whole number with its unit, '512m' or '1g'"),
    ],
)
def test_too_little_memory_is_refused_before_anything_starts(text: str, said: str) -> None:
    with pytest.raises(SparkUnavailable) as refused:
        bradbury.spark(executor_memory=text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_shuffles_go_by_the_cores_there_are_unless_it_is_said() -> None:
    shuffle, first = (
        "spark.sql.shuffle.partitions",
        "spark.sql.adaptive.coalescePartitions.initialPartitionNum",
    )
    one = session._settings({}, None, core_count=1)
    assert (one[shuffle], one[first]) == ("4", "32")
    many = session._settings({}, None, core_count=64)
    assert (many[shuffle], many[first]) == ("128", "1024")
    said = session._settings({shuffle: "3"}, None, core_count=64)
    assert said[shuffle] == "3"
    assert first not in said  # it would win over what was said


@pytest.mark.parametrize(
    ("umask", "is_used"), [(0o022, True), (0o077, True), (0o002, False), (0, False)]
)
def test_python_workers_are_met_on_sockets_that_no_other_user_may_write_to(
    umask: int, is_used: bool
) -> None:
    enabled = "spark.python.unix.domain.socket.enabled"
    before = os.umask(umask)
    try:
        settings = session._settings({}, None, core_count=1)
        said = session._settings({enabled: "false"}, None, core_count=1)
    finally:
        os.umask(before)
    assert (settings.get(enabled) == "true") is is_used
    assert said[enabled] == "false"


def test_masters_never_wait_for_the_optimising_compiler_and_other_jvms_do_if_they_live() -> None:
    quick = "-XX:TieredStopAtLevel=1"
    long = java_options({EXECUTOR_OPTIONS: "-Dmine=1"}, short_lived=False)
    assert [quick in long[name] for name in (DRIVER_OPTIONS, EXECUTOR_OPTIONS, MASTER_OPTIONS)] == [
        False,
        False,
        True,
    ]
    assert long[EXECUTOR_OPTIONS].endswith(" -Dmine=1")
    short = java_options({DRIVER_OPTIONS: "-XX:TieredStopAtLevel=4"}, short_lived=True)
    assert all(quick in options for options in short.values())
    assert short[DRIVER_OPTIONS].endswith(" -XX:TieredStopAtLevel=4")  # the last one counts


def test_where_the_cluster_is_may_be_unknown_until_an_option_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BRADBURY_BOOTSTRAP", raising=False)
    assert known_bootstrap("a:1,b:2") == "a:1,b:2"
    assert known_bootstrap(None, "no-such-namespace") is None
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", "c:3")
    assert known_bootstrap(None) == "c:3"


@pytest.mark.slow
def test_other_processes_of_a_checkout_import_both_packages() -> None:
    code = "import bradbury, pyspark_bradbury; print(pyspark_bradbury.DefaultSource.name())"
    assert in_a_process_of_its_own(code, import_paths()).strip() == "bradbury"


@pytest.mark.parametrize("folder", [None, "/mine"])
@pytest.mark.parametrize("environment", [session._environment, ray_connection._environment])
def test_what_is_started_keeps_byte_code_whatever_the_environment_says(
    environment: Callable[[dict[str, str]], AbstractContextManager[None]],
    folder: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    if folder is not None:
        monkeypatch.setenv("PYTHONPYCACHEPREFIX", folder)
    before = dict(os.environ)
    with environment({}):
        said = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; print(sys.dont_write_bytecode, sys.pycache_prefix)",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert said.split() == ["False", folder or str(tmp_path / "bradbury" / "pycache")]
    assert dict(os.environ) == before
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    with environment({}):
        assert "PYTHONPYCACHEPREFIX" not in os.environ


@pytest.mark.slow
def test_looking_for_the_source_never_raises_and_costs_nothing_before() -> None:
    said = in_a_process_of_its_own(
        "import sys\n"
        f"sys.path.append({str(Path(session.__file__).parents[1])!r})\n"
        "import pyspark_bradbury\n"
        "print('pyspark.sql' in sys.modules, hasattr(pyspark_bradbury, 'other'))\n"
        "sys.modules['pyspark.sql.datasource'] = None\n"
        "print(hasattr(pyspark_bradbury, 'DefaultSource'))\n"
    )
    assert said.split() == ["False", "False", "False"]


def test_planners_of_the_driver_find_pyspark_with_its_byte_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    for _ in range(2):  # the second time it is there
        home = Path(driver_environment(tmp_path)["SPARK_HOME"])
        assert (home / "bin" / "spark-submit").exists()
        assert list((home / "jars").glob("spark-core_*.jar"))
        package = home / "python" / "lib" / "pyspark.zip" / "pyspark"
        assert package.resolve() == Path(pyspark.__file__).parent
        (archive,) = (home / "python" / "lib").glob("py4j-*.zip")
        assert archive.is_file()
    assert list(tmp_path.iterdir()) == [home]
    (tmp_path / "file").write_text("")
    assert "SPARK_HOME" not in driver_environment(tmp_path / "file" / "cache")
    monkeypatch.setenv("SPARK_HOME", "/mine")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    assert driver_environment(tmp_path) == {}
