"""JVMs of a Spark session: the installed Java, and the options of each JVM.

RayDP starts four for a session with one executor:
    its own entry point, next to a Ray actor      starts the next one, then waits
    its application master, a Ray actor          asks Ray for executors, then waits
    the driver's, next to this process            plans queries
    an executor, a Ray actor                     runs tasks
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from .tasks.spark_failure import JavaMissing

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
_NEEDED: Final = " ".join(
    [
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
    ]
)
# Half of a JVM's CPU time in its first minute is spent by the optimising compiler, which pays off
# over hours; and on few cores G1's threads only compete with the others.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"
MASTER_OPTIONS: Final = "spark.ray.raydp_app_master.extraJavaOptions"
"""Java options of RayDP's entry point and its application master."""
_LOG_FOLDER: Final = "-Dray.logging.dir="
_RAY_LIBRARY: Final = re.compile(rb"(/tmp/ray/\d+)/libcore_worker_library_java\.so")
_LZ4_LIBRARY: Final = re.compile(rb"(/\S*/liblz4-java-\d+\.so)")


def java_options(
    given: Mapping[str, str], *, short_lived: bool, log_folder: Path | None = None
) -> dict[str, str]:
    """Options of all JVMs, as Spark settings; those in `given` come last, so they take precedence.

    log_folder: of the Ray session. RayDP passes it to all JVMs except the driver's, which
        without it creates a folder /tmp/ray/session_latest, where Ray needs its link.
    """
    ours = _NEEDED if not short_lived else f"{_NEEDED} {_SHORT_LIVED}"
    options = {
        DRIVER_OPTIONS: ours if log_folder is None else f"{ours} {_LOG_FOLDER}{log_folder}",
        EXECUTOR_OPTIONS: ours,
        MASTER_OPTIONS: f"{_NEEDED} {_SHORT_LIVED}",  # they do no work
    }
    return {name: f"{value} {given.get(name, '')}".strip() for name, value in options.items()}


def socket_settings() -> dict[str, str]:
    """Spark settings by which Spark and its Python workers connect by Unix sockets.

    With TCP a reused worker waits 40 ms in each task, and in each call of the driver: Spark sends a
    command in two pieces, delays the second until the first is acknowledged (Nagle), and the
    worker's kernel delays the acknowledgement. TCP is protected by a secret, a Unix socket by write
    permission on its file: so it is used only if no other user has that.
    The folder is set, as java.io.tmpdir may be too long for the path of a socket.
    """
    if not _others_cannot_write():
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": "/tmp",  # noqa: S108 -- names in it are random
    }


def _others_cannot_write() -> bool:
    """Whether the umask denies other users write permission on files created here."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"^Umask:\s*([0-7]+)$", status, re.MULTILINE)
    return found is not None and int(found[1], 8) & 0o022 == 0o022


def driver_environment(cache: Path) -> dict[str, str]:
    """Environment by which the driver's JVM and its Python planning processes start faster.

    Planning a job that reads, writes and streams takes six Python processes, one after another.
    They import pyspark from SPARK_HOME/python/lib/pyspark.zip, which has no byte code, so each
    compiles it again. The SPARK_HOME created here has links to the installed one, and its
    pyspark.zip is a link to the installed package. A SPARK_HOME that is already set is kept.
    cache: folder for it, created if needed and reused. If it cannot be created, SPARK_HOME is not
        set.
    """
    environment = {"OPENBLAS_NUM_THREADS": "1"}  # they import numpy, but do not compute with it
    spec = importlib.util.find_spec("pyspark")
    if "SPARK_HOME" not in os.environ and spec is not None and spec.origin is not None:
        installed = Path(spec.origin).parent
        if (installed / "python" / "lib" / "pyspark.zip").exists():
            with suppress(OSError):
                environment["SPARK_HOME"] = str(_linked_home(installed, cache))
    return {name: value for name, value in environment.items() if name not in os.environ}


def _linked_home(installed: Path, cache: Path) -> Path:
    known_by = hashlib.sha256(str(installed).encode()).hexdigest()[:12]
    home = cache / f"spark-home-{known_by}"
    wanted = {entry.name: entry for entry in installed.iterdir() if entry.name != "python"}
    for archive in (installed / "python" / "lib").glob("*.zip"):
        wanted[f"python/lib/{archive.name}"] = archive
    wanted["python/lib/pyspark.zip"] = installed.parent
    for name, target in wanted.items():
        link = home / name
        if not link.is_symlink() or link.readlink() != target:
            link.parent.mkdir(parents=True, exist_ok=True)
            fresh = link.with_name(f".{link.name}-{os.getpid()}")
            fresh.symlink_to(target)
            fresh.replace(link)  # another process may do the same
    return home


def check_java() -> int:
    """Major version of the Java that Spark will start.

    Raises:
        JavaMissing: Java is not installed, or older than LEAST_JAVA.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = (
        f"install a JDK {LEAST_JAVA} or 21 (Debian, Ubuntu: apt install openjdk-17-jre-headless)"
        " or point JAVA_HOME at one"
    )
    if java is None:
        raise JavaMissing(f"Spark needs Java, and none is on PATH: {remedy}")
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise JavaMissing(f"{java} cannot be run ({error.strerror}): {remedy}") from None
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    if match is None:
        raise JavaMissing(f"`{java} -version` prints no version: {remedy}")
    version = int(match[1])
    if version < LEAST_JAVA:
        raise JavaMissing(
            f"Spark 4 needs Java {LEAST_JAVA} or later, {java} is {version}: {remedy}"
        )
    return version


def remove_loaded_libraries(log_folder: Path) -> None:
    """Remove this machine's unpacked libraries that the JVMs of a Ray session have loaded.

    Each JVM that joins Ray as a driver unpacks Ray's library, 40 MB, into /tmp/ray/<milliseconds>,
    and leaves it there. lz4-java's copy is removed when its JVM exits normally, but Ray ends JVMs
    with SIGKILL. Once a library is loaded, its file is not opened again.
    log_folder: as for `java_options`; it identifies the JVMs of the session.
    """
    option = f"{_LOG_FOLDER}{log_folder}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if option in (process / "cmdline").read_bytes().split(b"\0"):
                loaded = (process / "maps").read_bytes()
                for folder in set(_RAY_LIBRARY.findall(loaded)):
                    shutil.rmtree(folder, ignore_errors=True)
                for library in {os.fsdecode(found) for found in _LZ4_LIBRARY.findall(loaded)}:
                    Path(library).unlink(missing_ok=True)
                    Path(f"{library}.lck").unlink(missing_ok=True)


def end_idle_java() -> None:
    """End the JVM that an earlier session of this process left running.

    Spark would reuse it, and it was started without RayDP's classes and options.
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
