"""Apache Kafka's own jars: its tools and its broker, as the judge of what we read and write.

They come once from the Maven repository this machine is set up for into .cache/kafka-<version>/, and
are used from there by tests and benchmarks. Without java or mvn, or with the repository out of
reach, there is a reason to skip instead.
"""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

VERSION = "4.1.1"
ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / ".cache" / f"kafka-{VERSION}"
FETCH_SECONDS = 240
RUN_SECONDS = 120
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
QUICK_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
ARTIFACTS = ("kafka_2.13", "kafka-tools")

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>bradbury</groupId><artifactId>kafka-jars</artifactId><version>1</version>
<dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>org.apache.kafka</groupId>"
    "<artifactId>{}</artifactId><version>{}</version></dependency>"
)


@cache
def _fetch() -> str:
    """Why the jars are not there; "" when they are. Asked once per process."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if FOLDER.is_dir():
        return ""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(_DEPENDENCY.format(artifact, VERSION) for artifact in ARTIFACTS)
    # Into a folder of our own first, so that two runs at once never see half of the jars.
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as folder:
        pom = Path(folder) / "pom.xml"
        pom.write_text(_POM.format(dependencies))
        jars = Path(folder) / "jars"
        command = ["mvn", "-q", "-B", "-f", str(pom), PLUGIN]
        command += [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=FETCH_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            return f"mvn could not get Apache Kafka {VERSION} ({type(error).__name__})"
        if not FOLDER.is_dir():
            jars.rename(FOLDER)
    return ""


def kafka_classpath() -> str | None:
    """What `java -cp` takes; None if the jars cannot be had, and unavailable_reason() says why.

    Takes about 15 s the first time on a machine, then nothing.
    """
    return None if _fetch() else f"{FOLDER}/*"


def unavailable_reason() -> str:
    """Why kafka_classpath() is None; "" if it is not."""
    return _fetch()


def require_kafka() -> str:
    """The class path; skips the test, with the reason, where there is none."""
    classpath = kafka_classpath()
    if classpath is None:
        pytest.skip(unavailable_reason())
    return classpath


def java_command(
    main_class: str, *arguments: str, options: tuple[str, ...] = QUICK_OPTIONS
) -> list[str]:
    """The command line that runs a class of Kafka's; kafka_classpath() must not be None.

    `options` are the Java machine's. The default makes short runs short, and long ones slow.
    """
    classpath = kafka_classpath()
    assert classpath is not None, unavailable_reason()
    return ["java", *options, "-cp", classpath, main_class, *arguments]


def run_java(
    main_class: str,
    *arguments: str,
    stdin: str | None = None,
    timeout: float = RUN_SECONDS,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a main class of Kafka's to its end, e.g. run_java("kafka.tools.DumpLogSegments", ...).

    Args:
        main_class: its full name.
        arguments: its command line.
        stdin: text given to it; by default it has no input.
        timeout: seconds.
        check: an exit code other than 0 is an error.

    Raises:
        AssertionError: it failed; with what it said.
    """
    # Log4j finds no configuration here and then reports errors only, on stderr.
    result = subprocess.run(
        java_command(main_class, *arguments),
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
