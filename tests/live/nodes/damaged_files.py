"""A data directory with topics and records, as a kill or a clean stop leaves it, and its files damaged."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bradbury.storage.disk.file_system import OsFileSystem

RECORDS = 320
TOPICS = ("t0", "t1")
PARTITIONS = 2
MEMORY = Path("/dev/shm")

PROGRAM = f"""
import sys
import bradbury
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

cluster = bradbury.local(sys.argv[1], nodes=int(sys.argv[2]))
admin = AdminClient({{"bootstrap.servers": cluster.bootstrap_servers}})
replicas = int(sys.argv[2])
for name in {TOPICS!r}:
    admin.create_topics([NewTopic(name, {PARTITIONS}, replicas)])[name].result(30)
producer = Producer({{"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}})
for number in range({RECORDS}):
    producer.produce({TOPICS!r}[number % 2], b"%d" % number, partition=number // 2 % {PARTITIONS})
assert producer.flush(20) == 0
print("ready", flush=True)
sys.stdin.readline()
cluster.close()
print("closed", flush=True)
"""


class LeftBehind:
    """What a process left that was killed, or that has stopped cleanly. `copy` it, then break it."""

    def __init__(self, path: Path, *, nodes: int, killed: bool) -> None:
        self.path = path
        self.nodes = nodes
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path), str(nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if killed:
            process.send_signal(signal.SIGKILL)
        else:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "closed\n"
        process.wait(30)
        process.stdin.close()
        process.stdout.close()
        ids = [
            line.partition("=")[2]
            for properties in path.rglob("meta.properties")
            for line in properties.read_text().splitlines()
            if line.startswith("directory.id=")
        ]
        # That the machine has not died since: of a clean stop there are none.
        self._tokens = {
            token: token.read_text()
            for each in ids
            if (token := MEMORY / f"bradbury-{each}").exists()
        }

    def copy(self, target: Path) -> Path:
        shutil.copytree(self.path, target)
        for token, text in self._tokens.items():
            token.write_text(text)
        return target

    def forget(self) -> None:
        for token in self._tokens:
            token.unlink(missing_ok=True)


def flip(path: Path, share: float) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[min(int(len(content) * share), len(content) - 1)] ^= 0x10
        path.write_bytes(content)


def delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def replace_by_directory(path: Path) -> None:
    delete(path)
    path.mkdir()


def empty(path: Path) -> None:
    if path.is_dir():
        for each in path.iterdir():
            delete(each)
    else:
        path.write_bytes(b"")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "deleted": delete,
    "emptied": empty,
    "cut": cut,
    "flipped at the start": lambda path: flip(path, 0),
    "flipped in the middle": lambda path: flip(path, 0.5),
    "flipped at the end": lambda path: flip(path, 1),
    "garbage": lambda path: path.write_bytes(b"\xff\xfe\x00garbage") and None,
    "a directory": replace_by_directory,
}


def make_unreadable(monkeypatch: Any, path: Path) -> None:
    """Opening it fails, as of another user's; this process may be root, whom no mode stops."""
    original = OsFileSystem.open

    def open_(disk: OsFileSystem, name: str, *, create: bool = False) -> Any:
        if name == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return original(disk, name, create=create)

    monkeypatch.setattr(OsFileSystem, "open", open_)
