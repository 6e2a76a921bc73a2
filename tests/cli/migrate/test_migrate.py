"""`bradbury migrate` as people and scripts run it."""

import json
import signal
from collections.abc import Iterator

import pytest

import bradbury
from bradbury.tests.support.command_line import Command, command_under_way


@pytest.fixture
def new(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with bradbury.local() as running:
        monkeypatch.setenv("BRADBURY_BOOTSTRAP", running.bootstrap_servers)
        environment["BRADBURY_BOOTSTRAP"] = running.bootstrap_servers
        yield running.bootstrap_servers


@pytest.fixture
def old() -> Iterator[str]:
    with (
        bradbury.local() as running,
        running.admin() as admin,
        bradbury.Producer(running.bootstrap_servers) as producer,
    ):
        admin.create_topic("orders", 2)
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=0)
        producer.flush()
        admin.alter_group_offsets("billing", {("orders", 0): 7})
        yield running.bootstrap_servers


def test_the_whole_way(command: Command, old: str, new: str) -> None:
    source = ("--from", old)
    assert "not begun: 10 offsets behind" in command("migrate", "status", *source).err
    copied = command("migrate", *source, "--once")
    assert (copied.code, copied.out) == (0, "")
    assert "in step, 0 offsets behind. Next: stop the producers" in copied.err
    shown = command("migrate", "status", *source)
    assert "billing" in shown.out
    status = json.loads(command("migrate", "status", *source, "--json").out)
    assert (status["state"], status["behind"]) == ("in step", 0)
    assert status["groups"][0]["unread"] == 3
    compared = command("migrate", "verify", *source)
    assert "the same: 10 records of 2 partitions" in compared.err
    checks = json.loads(command("migrate", "verify", *source, "--again", "--json").out)
    assert [one["source"]["records"] for one in checks] == [10, 0]
    done = command("migrate", "cut-over", *source, "--quiet", "0")
    assert done.code == 0, done.err
    assert "exact" in done.out
    assert (
        "cut over: 2 partitions; no record was left to copy; all were compared before" in done.err
    )
    assert f"Next: start producers and consumers with bootstrap.servers={new}" in done.err
    assert "is cut over" in command("migrate", *source).error


def test_what_differs_is_exit_code_1(command: Command, old: str, new: str) -> None:
    source = ("--from", old)
    command("migrate", *source, "--once")
    with bradbury.Producer(new) as producer:
        producer.send("orders", b"alien", partition=0).result(60)
    with bradbury.Producer(old) as producer:
        producer.send("orders", b"10", partition=0).result(60)
    command("migrate", *source, "--once")
    compared = command("migrate", "verify", *source)
    assert compared.code == 1
    assert "1 of 2 partitions differ" in compared.err
    done = command("migrate", "cut-over", *source, "--quiet", "0")
    assert done.code == 1
    assert "not cut over: the clusters differ" in done.err
    assert json.loads(command("migrate", "status", *source, "--json").out)["state"] == "in step"


def test_what_makes_no_sense_is_one_line(command: Command, old: str, new: str) -> None:
    assert "--from is missing" in command("migrate", "--once").usage
    misplaced = command("migrate", "--from", old, "status").usage
    assert "--from comes after status" in misplaced
    assert "Missing option '--from'" in command("migrate", "status").usage
    assert "not a valid regular exp" in command("migrate", "--from", old, "--topics", "(").usage
    nothing = command("migrate", "--from", old, "--topics", "absent", "--once").error
    assert nothing.startswith(f"no topic of {old} matches")
    away = command("migrate", "status", "--from", "127.0.0.1:1").error
    assert away.startswith("the source cluster: no broker of 127.0.0.1:1 answers")
    assert "start: bradbury migrate" in command("migrate", "verify", "--from", old).error
    assert "one cluster" in command("migrate", "status", "--from", new).error


@pytest.mark.slow
def test_interrupted_it_says_what_comes_next(
    environment: dict[str, str], old: str, new: str
) -> None:
    with command_under_way(["migrate", "--from", old], environment) as (running, said):
        assert "copied:" in said.readline()
        running.send_signal(signal.SIGINT)
        assert "in step, 0 offsets behind. Next:" in said.read()
    assert running.returncode == 0
