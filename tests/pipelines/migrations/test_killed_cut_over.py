"""Killed at any of its steps and run again, does a cut-over bring each record once, and each group?"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import bradbury
from bradbury.pipelines.migrations.cut_over import CutOver
from bradbury.pipelines.ranges import reading_client
from bradbury.tests.support.killed_program import kill_at
from tests.pipelines.migrations.test_migration import (
    commit,
    committed,
    make,
    records,
    send,
    send_in_transactions,
    values,
)

pytestmark = [pytest.mark.slow]

PROGRAM = """
import os
import signal
import sys

import bradbury
from bradbury.pipelines.migrations import cut_over
from bradbury.pipelines.migrations.cut_over import GroupMover, MigrationSession, Verifier
from bradbury.pipelines.mirrors.record_copier import RecordCopier

source, target, killed_at = sys.argv[1:]
count = 0


def reach(point):
    global count
    print(point, flush=True)
    if str(count) == killed_at or point == killed_at:
        os.kill(os.getpid(), signal.SIGKILL)
    count += 1


def watch(owner, name):
    watched = getattr(owner, name)

    def around(*arguments, **options):
        reach(f"before {name}")
        result = watched(*arguments, **options)
        reach(f"after {name}")
        return result

    setattr(owner, name, around)


for owner, name in (
    (cut_over, "cut_over"),
    (MigrationSession, "__enter__"),
    (RecordCopier, "_commit"),
    (RecordCopier, "_write_positions"),
    (Verifier, "verify"),
    (bradbury.Admin, "alter_configs"),
    (GroupMover, "_move"),
    (cut_over, "_note"),
    (cut_over.mirror_positions, "write_note"),
):
    watch(owner, name)
move = bradbury.Migration(source, bootstrap_servers=target)
assert move.cut_over(quiet_s=0.0, timeout_s=30.0).is_done
print("done", flush=True)
"""


class TwoClusters:
    """`orders`, and `paid` in transactions; part of both is in the new cluster. Groups stand at
    places that are and are not where a copied piece ends.
    """

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new
        self.move = bradbury.Migration(old, bootstrap_servers=new)
        make(old, "orders", retention_ms="86400000")
        make(old, "paid", message_timestamp_type="LogAppendTime")
        for part in range(2):
            send(old, "orders", range(part * 50, part * 50 + 50))
            send_in_transactions(old, "paid", range(part * 6, part * 6 + 6))
            self.move.follow(continuous=False)
        send(old, "orders", range(100, 150))
        send_in_transactions(old, "paid", range(12, 18))
        self.paid = records(old, "paid")
        for group, place in self.groups.items():
            commit(old, group, place)
        with bradbury.Admin(old) as admin:
            admin.alter_configs("orders", {"retention.ms": "43200000"})

    @property
    def groups(self) -> dict[str, dict[tuple[str, int], int]]:
        middle, last = len(self.paid) // 2, len(self.paid) - 1
        return {
            "behind": {("orders", 0): 30, ("paid", 0): self.paid[middle][0]},
            "in-step": {("orders", 0): 150, ("paid", 0): self.paid[last][0] + 1},
            "not-begun": {("orders", 0): 0, ("paid", 0): 0},
        }

    def cut_over(self, killed_at: str = "") -> list[str]:
        """In a process of its own. Returns what it has reached."""
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, self.old, self.new, killed_at],
            capture_output=True,
            text=True,
            check=False,
        )
        points = done.stdout.splitlines()
        killed = done.returncode == -signal.SIGKILL
        assert killed or points[-1] == "done", done.stderr
        return points

    def assert_that_all_is_there_once(self) -> None:
        for topic in ("orders", "paid"):
            assert values(self.new, topic) == values(self.old, topic)
        for group, places in self.groups.items():
            here = committed(self.new, group)
            assert here.keys() == places.keys()
            for (topic, partition), offset in places.items():
                unread = values(self.old, topic, offset)
                assert values(self.new, topic, here[topic, partition]) == unread, (group, topic)
        with bradbury.Admin(self.new) as admin:
            assert admin.describe_configs("orders")["retention.ms"].value == "43200000"
            kind = admin.describe_configs("paid")["message.timestamp.type"].value
            assert kind == "LogAppendTime"
        assert self.move.status().state == "cut over"
        assert self.move.status().late == 0


@pytest.fixture
def old() -> Iterator[str]:
    with bradbury.local() as running:
        yield running.bootstrap_servers


@pytest.fixture
def new() -> Iterator[str]:
    with bradbury.local() as running:
        yield running.bootstrap_servers


@contextmanager
def two_clusters() -> Iterator[TwoClusters]:
    before = set(reading_client._clients)
    with bradbury.local() as old, bradbury.local() as new:
        yield TwoClusters(old.bootstrap_servers, new.bootstrap_servers)
    for key in set(reading_client._clients) - before:  # thirty pairs would need 1,000 descriptors
        reading_client._clients.pop(key).close()


def kill_and_run_again(killed_at: str) -> bool:
    """False: it has come to its end before."""
    with two_clusters() as both:
        reached = both.cut_over(killed_at)
        if reached[-1] == "done":
            return False
        again: CutOver = both.move.cut_over(quiet_s=0.0, timeout_s=30.0)
        assert again.is_done
        both.assert_that_all_is_there_once()
        send(both.new, "orders", range(150, 160))
        back = bradbury.Migration(both.new, bootstrap_servers=both.old)
        assert back.follow(continuous=False).records == 10
        assert values(both.old, "orders") == [b"%d" % number for number in range(160)]
        return True


@pytest.mark.long  # a pair of clusters for each
@pytest.mark.parametrize(
    "killed_at",
    [
        "before cut_over",
        "after __enter__",
        "after _write_positions",  # a transaction is open in the new cluster
        "after verify",
        "after alter_configs",  # of one topic
        "after _move",  # one group
        "before _note",
        "after _note",
    ],
)
def test_killed_at_a_step_it_is_run_again(killed_at: str) -> None:
    assert kill_and_run_again(killed_at)


FOLLOWER = """
import sys

import bradbury
from bradbury.pipelines.mirrors.record_copier import RecordCopier

source, target = sys.argv[1:]
commit = RecordCopier._write_positions


def watched(copier, *arguments):
    commit(copier, *arguments)
    copier._producer.flush(30)
    print("in a transaction", flush=True)


RecordCopier._write_positions = watched
bradbury.Migration(source, bootstrap_servers=target).follow(
    on_progress=lambda progress: print(progress.records, flush=True)
)
"""


@pytest.mark.long  # killed again and again
def test_one_that_follows_is_killed_and_run_again_or_cut_over(old: str, new: str) -> None:
    make(old, "orders", 2)
    move = bradbury.Migration(old, bootstrap_servers=new)
    # While it says what it fills; while it copies; behind a commit; while it copies.
    for turn, killed_at in enumerate((0, 1, 1, 0)):
        for partition in range(2):
            numbers = range(turn * 200 + partition * 100, turn * 200 + partition * 100 + 100)
            send(old, "orders", numbers, partition)
        assert kill_at(FOLLOWER, [old, new], [killed_at]) == 1
    assert move.status().behind > 0
    commit(old, "billing", {("orders", 0): 150, ("orders", 1): 0})
    assert move.cut_over(quiet_s=0.0, timeout_s=30.0).is_done
    for partition in range(2):
        there = [value for _, value in records(new, "orders", 0, partition)]
        assert there == [value for _, value in records(old, "orders", 0, partition)]
        assert len(there) == 400
    here = committed(new, "billing")
    assert values(new, "orders", here["orders", 0]) == values(old, "orders", 150)


@pytest.mark.deep  # some thirty pairs of clusters
def test_killed_at_each_point() -> None:
    killed_at = 0
    while kill_and_run_again(str(killed_at)):
        killed_at += 1
    assert killed_at > 20
