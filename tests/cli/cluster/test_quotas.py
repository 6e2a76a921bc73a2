"""bradbury quotas: against a real cluster."""

import json

import pytest

from bradbury import LocalCluster
from bradbury.tests.support.command_line import Command


@pytest.fixture(autouse=True)
def bootstrap(bradbury_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)


def listed(command: Command, *arguments: str) -> list:
    outcome = command("quotas", "list", *arguments, "--json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_set_listed_and_removed(command: Command) -> None:
    whose = ("--user", "alice", "--client-id-default")
    outcome = command("quotas", "set", "producer_byte_rate=1024", "request_percentage=0.5", *whose)
    assert outcome.code == 0, outcome.err
    entity = {"user": "alice", "client-id": None}
    assert listed(command) == listed(command, *whose)
    assert listed(command, "--user", "alice") == [
        {"entity": entity, "quotas": {"producer_byte_rate": 1024.0, "request_percentage": 0.5}}
    ]
    assert listed(command, "--user", "bob") == []
    table = command("quotas", "list").out
    assert "alice" in table
    assert "<default>" in table
    assert "1024" in table
    assert command("quotas", "remove", "request_percentage", *whose).code == 0
    assert listed(command)[0]["quotas"] == {"producer_byte_rate": 1024.0}
    assert command("quotas", "remove", *whose).code == 0
    assert listed(command) == []
    assert command("quotas", "remove", *whose).code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("set", "producer_byte_rate=1"), 2, "no entity"),
        (("set", "producer_byte_rate=much", "--user", "alice"), 2, "use a number"),
        (("set", "producer_byte_rate", "--user", "alice"), 2, "not a pair"),
        (("set", "x=1", "--user", "alice"), 2, "use producer_byte_rate, consumer_byte_rate"),
        (("set", "x=1", "--user", "alice", "--user-default"), 2, "either --user"),
        (("set", "connection_creation_rate=5", "--user", "x"), 1, "are producer_byte_rate, "),
        (("set", "producer_byte_rate=5", "--ip", "1.2.3.4"), 1, "are connection_creation_rate"),
        (("list", "--ip", "10.0.0.7", "--user", "alice"), 1, "IP filter component"),
    ],
)
def test_what_makes_no_sense_is_said(command: Command, arguments, code: int, words: str) -> None:
    outcome = command("quotas", *arguments)
    assert outcome.code == code, outcome.err
    assert words in outcome.err
