"""Foreign clients and tools against a live Bradbury; what they ran is written down.

Every call that a test makes is recorded with its outcome. At the end of the run the records are
merged into .cache/compatibility.json, from which `make compatibility` renders docs/compatibility.md.
"""

import itertools
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.tests.compatibility.support.compatibility import Ran, Recorder, Tool
from bradbury.tests.compatibility.support.kafka_jars import (
    QUICK_OPTIONS,
    VERSION,
    java_command,
    require_kafka,
)

HERE = Path(__file__).resolve().parent
TOOL_SECONDS = 120
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def recorder() -> Iterator[Recorder]:
    recorder = Recorder.load()
    yield recorder
    recorder.save()


@pytest.fixture(autouse=True)
def _depth(recorder: Recorder, request: pytest.FixtureRequest) -> None:
    recorder.deep = request.node.get_closest_marker("deep") is not None


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compatibility")


@pytest.fixture(scope="session")
def cluster(data_dir: Path) -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(data_dir=str(data_dir)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def servers(cluster: bradbury.LocalCluster) -> str:
    return cluster.bootstrap_servers


@pytest.fixture
def new_name() -> str:
    """A name for a topic or a group that no other test uses."""
    return f"compatibility-{next(_numbers)}"


@pytest.fixture
def topic(servers: str, new_name: str) -> str:
    """A fresh topic with two partitions."""
    with bradbury.Admin(servers) as admin:
        admin.create_topic(new_name, 2)
    return new_name


@pytest.fixture
def filled(servers: str, topic: str) -> str:
    """A topic with ten records in partition 0, at 1,000, 2,000 ... 10,000 ms; kept, old as they are."""
    with bradbury.Admin(servers) as admin:
        admin.alter_configs(topic, {"retention.ms": "-1"})
    with bradbury.Producer(servers) as producer:
        for number in range(1, 11):
            producer.send(
                topic, b"value %d" % number, b"key", partition=0, timestamp_ms=number * 1_000
            )
    return topic


@pytest.fixture(scope="module")
def java_options() -> tuple[str, ...]:
    """Of the Java machine."""
    return QUICK_OPTIONS


@pytest.fixture(scope="module")
def java_process(java_options: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes]]:
    """One Java machine for all of Kafka's tools."""
    require_kafka()
    process = subprocess.Popen(
        java_command(str(HERE / "JavaTools.java"), options=java_options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    yield process
    process.communicate()
    assert process.returncode == 0


@pytest.fixture
def java(java_process: subprocess.Popen[bytes]) -> Callable[..., Ran]:
    """Run a main class of Kafka's: java("org.apache.kafka.tools.TopicCommand", "--list", ...)."""
    assert java_process.stdin is not None
    assert java_process.stdout is not None
    requests, answers = java_process.stdin, java_process.stdout

    def read(count: int) -> bytes:
        content = answers.read(count)
        assert len(content) == count, "the Java machine has ended"
        return content

    def run(main_class: str, *arguments: str, stdin: bytes = b"") -> Ran:
        words = [word.encode() for word in (main_class, *arguments)]
        request = struct.pack(">i", len(words))
        request += b"".join(struct.pack(">H", len(word)) + word for word in words)
        request += struct.pack(">ii", TOOL_SECONDS * 1000, len(stdin)) + stdin
        requests.write(request)
        requests.flush()
        (code,) = struct.unpack(">i", read(4))
        said = [read(*struct.unpack(">i", read(4))).decode() for _ in range(2)]
        return Ran(code, *said)

    return run


@pytest.fixture
def kafka_tools(recorder: Recorder) -> Tool:
    return recorder.tool("Apache Kafka's console tools", VERSION)
