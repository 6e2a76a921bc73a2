"""bradbury users and Admin's calls of users: against a real cluster."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury import LocalCluster
from bradbury.clients.admin.users_admin import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from bradbury.protocol.errors import (
    DuplicateResource,
    ResourceNotFound,
    UnacceptableCredential,
)
from bradbury.tests.support.command_line import Command


@pytest.fixture(autouse=True)
def bootstrap(bradbury_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)
    return bradbury_cluster.bootstrap_servers


@pytest.fixture
def admin(bootstrap: str) -> Iterator[bradbury.Admin]:
    with bradbury.Admin(bootstrap) as one:
        yield one
        for each in one.describe_user_scram_credentials():
            for info in each.credential_infos:
                deletion = UserScramCredentialDeletion(each.name, info.mechanism)
                one.alter_user_scram_credentials([deletion])


def test_a_user_is_added_listed_and_removed(
    command: Command, admin: bradbury.Admin, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("se cret \nmore\n")
    assert command("users", "add", "alice", "--password-file", str(file)).code == 0
    added = command(
        *("users", "add", "alice", "--mechanism", "SCRAM-SHA-256", "--iterations", "4096"),
        *("--password-file", str(file)),
    )
    assert added.err == "alice can log in with SCRAM-SHA-256\n"
    listed = json.loads(command("users", "list", "--json").out)
    assert listed == [
        {
            "user": "alice",
            "credentials": [
                {"mechanism": "SCRAM-SHA-256", "iterations": 4096},
                {"mechanism": "SCRAM-SHA-512", "iterations": 8192},
            ],
        }
    ]
    shown = command("users", "describe", "alice").out
    assert "SCRAM-SHA-512" in shown
    assert "cret" not in shown
    removed = command("users", "remove", "alice", "--yes", "--mechanism", "SCRAM-SHA-256")
    assert removed.code == 0
    assert command("users", "remove", "alice", "--yes").code == 0
    for words in (("remove", "alice", "--yes"), ("describe", "alice")):
        assert command("users", *words).error == (
            "user 'alice' has no SCRAM credentials; `bradbury users list` shows who has some"
        )
    assert "there are no users" in command("users", "list").err


def test_the_input_is_a_password_where_there_is_no_terminal(
    command: Command, admin: bradbury.Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in ((), ("--password-file", "-")):
        monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
        assert command("users", "add", "bob", *words).code == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    refused = command("users", "add", "bob")
    assert (refused.code, "is empty" in refused.err) == (2, True)
    absent = command("users", "add", "bob", "--password-file", "/absent/file").usage
    assert absent == "/absent/file: there is no such file"


def test_what_makes_no_sense_is_refused_before_a_broker_is_asked(command: Command) -> None:
    for words in (
        ("add", "zoë"),
        ("add", "alice", "--iterations", "4095"),
        ("add", "alice", "--mechanism", "SCRAM-SHA-1"),
        ("add", "alice", "--password", "secret"),
    ):
        assert command("users", *words).code == 2


def test_refusals_are_kafkas(admin: bradbury.Admin) -> None:
    alice = UserScramCredentialUpsertion("alice", "secret", "SCRAM-SHA-256", 4096)
    admin.alter_user_scram_credentials([alice])
    [described] = admin.describe_user_scram_credentials(["alice"])
    assert described.credential_infos == (ScramCredentialInfo("SCRAM-SHA-256", 4096),)
    assert "secret" not in repr(alice)
    with pytest.raises(
        ResourceNotFound, match="'bob' has no SCRAM-SHA-512 .*`bradbury users list`"
    ):
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob")])
    with pytest.raises(ResourceNotFound, match="bob"):
        admin.describe_user_scram_credentials(["bob"])
    with pytest.raises(DuplicateResource, match="twice"):
        admin.describe_user_scram_credentials(["bob", "bob"])
    with pytest.raises(UnacceptableCredential, match="Too few iterations"):
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", "s", iterations=1)])
    with pytest.raises(UnacceptableCredential, match="empty"):
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("", "s")])
    with pytest.raises(DuplicateResource, match="twice"):
        admin.alter_user_scram_credentials(
            [alice, UserScramCredentialDeletion("alice", "SCRAM-SHA-256")]
        )
    with pytest.raises(ValueError, match="SCRAM-SHA-256"):
        UserScramCredentialDeletion("alice", "PLAIN")
