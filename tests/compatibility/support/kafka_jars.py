"""Apache Kafka's own jars: its tools, its broker and what is built on its clients, as judges of ours.

They come once from the Maven repository this machine is set up for into .cache/<name>-<version>/, and
are used from there by tests and benchmarks. Without java or mvn, or with the repository out of
reach, there is a reason to skip instead.
"""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

VERSION = "4.1.1"
# Maven has no newer one of pyspark's line; Spark's jars of a line go together.
SPARK_VERSION = "4.2.0"
CACHE = Path(__file__).resolve().parents[3] / ".cache"
FETCH_SECONDS = 900
RUN_SECONDS = 120
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
QUICK_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>bradbury</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)


class Jars(NamedTuple):
    """Artifacts (group:artifact:version) and all they need, in a folder of their own."""

    name: str
    artifacts: tuple[str, ...]
    left_out: str = ""  # groups, separated by commas, that whoever runs them has

    @property
    def folder(self) -> Path:
        return CACHE / self.name

    @property
    def classpath(self) -> str:
        """What `java -cp` takes, once they are there."""
        return f"{self.folder}/*"


def _of_kafka(*artifacts: str) -> tuple[str, ...]:
    return tuple(f"org.apache.kafka:{artifact}:{VERSION}" for artifact in artifacts)


LOGGER = "org.slf4j:slf4j-simple:1.7.36"  # or what goes wrong is not told
KAFKA = Jars(f"kafka-{VERSION}", _of_kafka("kafka_2.13", "kafka-tools"))
STREAMS = Jars(f"kafka-streams-{VERSION}", (*_of_kafka("kafka-streams"), LOGGER))
CONNECT = Jars(
    f"kafka-connect-{VERSION}",
    (*_of_kafka("connect-runtime", "connect-mirror", "connect-file"), LOGGER),
)
SPARK_KAFKA = Jars(
    f"spark-kafka-{SPARK_VERSION}",
    (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",),
    left_out="org.apache.hadoop,org.scala-lang,org.scala-lang.modules,org.slf4j,at.yawkat.lz4,"
    "org.lz4,org.xerial.snappy,com.github.luben,com.google.code.findbugs",
)


@cache
def fetch(jars: Jars) -> str:
    """Why they are not there; "" when they are. Asked once per process.

    Takes some 15 s the first time on a machine, then nothing.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if jars.folder.is_dir():
        return ""
    CACHE.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(_DEPENDENCY.format(*one.split(":")) for one in jars.artifacts)
    # Into a folder of our own first, so that two runs at once never see half of the jars.
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        pom = Path(folder) / "pom.xml"
        pom.write_text(_POM.format(dependencies))
        copied = Path(folder) / "jars"
        command = ["mvn", "-q", "-B", "-f", str(pom), PLUGIN]
        command += [f"-DoutputDirectory={copied}", "-DincludeScope=runtime"]
        command += [f"-DexcludeGroupIds={jars.left_out}"] if jars.left_out else []
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=FETCH_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            return f"mvn could not get {jars.name} ({type(error).__name__})"
        if not jars.folder.is_dir():
            copied.rename(jars.folder)
    return ""


def require(jars: Jars) -> str:
    """The class path; skips the test, with the reason, where there is none."""
    if reason := fetch(jars):
        pytest.skip(reason)
    return jars.classpath


def kafka_classpath() -> str | None:
    """What `java -cp` takes; None if the jars cannot be had, and unavailable_reason() says why."""
    return None if fetch(KAFKA) else KAFKA.classpath


def unavailable_reason() -> str:
    """Why kafka_classpath() is None; "" if it is not."""
    return fetch(KAFKA)


def require_kafka() -> str:
    """The class path of the broker and the tools; skips the test, with the reason, without them."""
    return require(KAFKA)


def java_command(
    main_class: str,
    *arguments: str,
    options: tuple[str, ...] = QUICK_OPTIONS,
    jars: Jars = KAFKA,
) -> list[str]:
    """The command line that runs a class of these jars, which must be there, or a source file.

    `options` are the Java machine's. The default makes short runs short, and long ones slow.
    """
    assert not fetch(jars), fetch(jars)
    return ["java", *options, "-cp", jars.classpath, main_class, *arguments]


def run_java(
    main_class: str,
    *arguments: str,
    stdin: str | None = None,
    timeout: float = RUN_SECONDS,
    check: bool = True,
    jars: Jars = KAFKA,
) -> subprocess.CompletedProcess[str]:
    """Run a main class of Kafka's to its end, e.g. run_java("kafka.tools.DumpLogSegments", ...).

    Args:
        main_class: its full name.
        arguments: its command line.
        stdin: text given to it; by default it has no input.
        timeout: seconds.
        check: an exit code other than 0 is an error.
        jars: which must be there.

    Raises:
        AssertionError: it failed; with what it said.
    """
    # Log4j finds no configuration here and then reports errors only, on stderr.
    result = subprocess.run(
        java_command(main_class, *arguments, jars=jars),
        input=stdin or "",
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    if check:
        said = f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
        assert result.returncode == 0, f"{main_class} ended with {result.returncode}:\n{said}"
    return result
