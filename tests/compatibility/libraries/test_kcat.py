"""kcat against a live Bradbury, where it is installed."""

import re
import shutil
import subprocess
from collections.abc import Callable

import pytest

from bradbury.tests.compatibility.support.compatibility import Recorder, Tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed"),
]
Kcat = Callable[..., str]


@pytest.fixture
def tool(recorder: Recorder) -> Tool:
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Version (\S+) .*librdkafka ([\d.]+)", said)
    assert found is not None, said
    return recorder.tool("kcat", f"{found[1]} (librdkafka {found[2]})")


@pytest.fixture
def kcat(servers: str) -> Kcat:
    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["kcat", "-b", servers, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_cluster_is_listed(kcat: Kcat, tool: Tool, topic: str) -> None:
    with tool.call("kcat -L"):
        assert f'topic "{topic}" with 2 partitions' in kcat("-L")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(kcat: Kcat, tool: Tool, topic: str, codec: str) -> None:
    lines = "".join(f"k{number}:value {number} {'x' * 80}\n" for number in range(50))
    with tool.call(f"kcat -P -z {codec}"):
        kcat("-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "h=v", stdin=lines)
    with tool.call("kcat -C -e -f"):
        shown = kcat("-C", "-t", topic, "-p", "0", "-e", "-q", "-f", "%o %k:%s %h\n").splitlines()
        assert len(shown) == 50
        assert shown[7] == f"7 k7:value 7 {'x' * 80} h=v"
    with tool.call("kcat -C -o -5"):
        assert len(kcat("-C", "-t", topic, "-p", "0", "-e", "-q", "-o", "-5").splitlines()) == 5


def test_offsets_by_time(kcat: Kcat, tool: Tool, filled: str) -> None:
    with tool.call("kcat -Q"):
        assert "offset 3" in kcat("-Q", "-t", f"{filled}:0:3500")
    with tool.call("kcat -C -o s@ -o e@"):
        shown = kcat("-C", "-t", filled, "-p", "0", "-e", "-q", "-o", "s@3000", "-o", "e@6000")
        assert shown.splitlines() == ["value 3", "value 4", "value 5"]


def test_a_group(kcat: Kcat, tool: Tool, filled: str, new_name: str) -> None:
    with tool.call("kcat -G"):
        settings = ("-X", "auto.offset.reset=earliest", "-e", "-q", "-c", "10")
        shown = kcat(*settings, "-G", f"{new_name}-kcat", filled)
        assert shown.splitlines() == [f"value {number}" for number in range(1, 11)]
