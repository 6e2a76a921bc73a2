"""bradbury delegation-tokens and Admin's calls of them: against a cluster that asks who you are."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.clients.admin.users_admin import UserScramCredentialUpsertion
from bradbury.protocol.errors import (
    AuthenticationFailed,
    DelegationTokenAuthDisabled,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
)
from bradbury.tests.support.command_line import Command, Outcome

CONFIG = {
    "listeners": "INSIDE://:0,CLIENT://:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "delegation.token.secret.key": "between us brokers",
}
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
HOUR_MS = 3_600_000
Tokens = Callable[..., Outcome]


@pytest.fixture(scope="module")
def cluster() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(config=CONFIG) as cluster:
        with cluster.admin() as admin:
            for user in ("alice", "bob"):
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(user, "secret", "SCRAM-SHA-256")]
                )
        yield cluster


@pytest.fixture
def servers(cluster: bradbury.LocalCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    servers = cluster.bootstrap_servers_of("CLIENT")
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", servers)
    return servers


def admin_of(servers: str, user: str, **more: str) -> bradbury.Admin:
    login: Any = {"sasl_username": user, "sasl_password": "secret"}
    return bradbury.Admin(
        servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        **more or login,
    )


def by_token(token_id: str, hmac: str) -> str:
    return f'{LOGIN} required username="{token_id}" password="{hmac}" tokenauth="true";'


@pytest.fixture
def tokens(command: Command, servers: str, tmp_path: Path) -> Tokens:
    """Run `bradbury delegation-tokens` as a user."""

    def call(user: str, *words: str) -> Outcome:
        file = tmp_path / f"{user}.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f"sasl.username={user}\nsasl.password=secret\n"
        )
        return command("--client-config", str(file), "delegation-tokens", *words)

    return call


def test_a_token_is_made_used_renewed_and_ended(
    tokens: Tokens, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--renewer-principal", "User:bob", "--max-life-time-period", str(2 * HOUR_MS))
    made = json.loads(tokens("alice", "create", *words, "--json").out)
    assert (made["owner"], made["requester"], made["renewers"]) == (
        "User:alice",
        "User:alice",
        ["User:bob"],
    )
    assert made["max_timestamp"] == made["issue_timestamp"] + 2 * HOUR_MS
    jaas = by_token(made["token_id"], made["hmac"])
    with admin_of(servers, "", sasl_jaas_config=jaas) as admin:
        admin.list_topics()
        with pytest.raises(DelegationTokenRequestNotAllowed):
            admin.create_delegation_token()

    file = tmp_path / "hmac"
    file.write_text(made["hmac"] + "\n")
    renewed = tokens("bob", "renew", "--hmac-file", str(file), "--renew-time-period", "1000000")
    assert renewed.err.startswith("the token is valid until 2")
    [described] = json.loads(tokens("bob", "describe", "--json").out)
    assert described["expiry_timestamp"] < made["expiry_timestamp"]
    assert "hmac" not in described
    monkeypatch.setattr("sys.stdin", io.StringIO(made["hmac"]))
    ended = tokens("alice", "expire")
    assert (ended.code, ended.err) == (0, "the token is expired\n")
    with admin_of(servers, "", sasl_jaas_config=jaas) as admin:
        with pytest.raises(AuthenticationFailed):
            admin.list_topics()
    assert "it may have expired" in tokens("alice", "expire", "--hmac-file", str(file)).error


def test_people_see_what_to_do_with_one_and_no_secret_unasked(tokens: Tokens) -> None:
    made = tokens("alice", "create")
    hmac = next(line[5:] for line in made.out.splitlines() if line.startswith("HMAC "))
    assert 'tokenauth="true"' in made.err
    assert hmac not in made.err
    shown = tokens("alice", "describe", "--owner-principal", "User:alice").out
    assert "User:alice" in shown
    assert hmac not in shown
    assert hmac in tokens("alice", "describe", "--show-hmac").out
    none = tokens("alice", "describe", "--owner-principal", "User:nobody")
    assert "there are no tokens" in none.err


def test_what_makes_no_sense_is_refused_before_a_broker_is_asked(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "use User:bob" in tokens("alice", "create", "--renewer-principal", "bob").usage
    assert "use User:bob" in tokens("alice", "describe", "--owner-principal", "bob").usage
    monkeypatch.setattr("sys.stdin", io.StringIO("not base64!\n"))
    assert "base64" in tokens("alice", "renew").usage
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert "is empty" in tokens("alice", "expire").usage


def test_refusals_are_kafkas(servers: str) -> None:
    with admin_of(servers, "alice") as alice, admin_of(servers, "bob") as bob:
        made = alice.create_delegation_token(max_lifetime_ms=HOUR_MS)
        assert made.hmac_as_base64_string not in repr(made)
        assert made in alice.describe_delegation_token(["User:alice"])
        assert alice.describe_delegation_token([]) == []
        with pytest.raises(DelegationTokenOwnerMismatch):
            bob.renew_delegation_token(made.hmac)
        with pytest.raises(DelegationTokenNotFound):
            alice.expire_delegation_token(b"none of ours")
        later = alice.renew_delegation_token(made.hmac, renew_time_period_ms=1_000)
        assert later < made.token_info.expiry_timestamp
        assert alice.expire_delegation_token(made.hmac, expiry_time_period_ms=60_000) > later
        with pytest.raises(InvalidPrincipalType):
            alice.create_delegation_token(renewers=["Group:all"])
        with pytest.raises(ValueError, match="use User:bob"):
            alice.create_delegation_token(owner="bob")


def test_where_there_are_none_that_is_said() -> None:
    with bradbury.local() as plain, plain.admin() as admin:
        with pytest.raises(DelegationTokenRequestNotAllowed):
            admin.create_delegation_token()
    without_key = {name: value for name, value in CONFIG.items() if "token" not in name}
    with bradbury.local(config=without_key) as cluster:
        with cluster.admin() as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("alice", "secret", "SCRAM-SHA-256")]
            )
        with admin_of(cluster.bootstrap_servers_of("CLIENT"), "alice") as alice:
            with pytest.raises(DelegationTokenAuthDisabled, match="secret.key"):
                alice.create_delegation_token()
