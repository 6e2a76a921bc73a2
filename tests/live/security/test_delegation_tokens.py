"""Delegation tokens: made, shown, renewed and ended by whom they concern, and good to log in with."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Any

import pytest

import bradbury
from bradbury.clients.admin.users_admin import UserScramCredentialUpsertion
from bradbury.handlers.ports.client_session import ClientSession
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import AuthenticationFailed
from bradbury.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from bradbury.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from bradbury.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from bradbury.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from bradbury.protocol.principal import ANONYMOUS, Principal
from bradbury.protocol.security.acl_binding import AclOperation, ResourceType
from tests.live.security.access_scene import AUTHORIZER, asked, set_rules

CONFIG = {
    "listeners": "INSIDE://:0,CLIENT://:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "delegation.token.secret.key": "between us brokers",
    "delegation.token.expiry.time.ms": "60000",
    "delegation.token.max.lifetime.ms": "100000",
}
GUARDED = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "k",
}
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


def session(name: str, protocol: str = "SASL_PLAINTEXT") -> ClientSession:
    return ClientSession("10.0.0.1", protocol=protocol, principal=Principal("User", name))


ALICE, BOB, CAROL = session("alice"), session("bob"), session("carol")


@pytest.fixture(scope="module")
def cluster() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(config=CONFIG) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def guarded() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(config=GUARDED) as cluster:
        yield cluster


def ask(cluster: bradbury.LocalCluster, request: Any, who: ClientSession) -> Any:
    return cluster._call(asked(cluster.nodes[0], request, request.VERSIONS[1], who), 30)


def create(
    cluster: bradbury.LocalCluster, who: ClientSession = ALICE, **fields: Any
) -> CreateDelegationTokenResponse:
    renewers = [CreatableRenewers(principal_type="User", principal_name="bob")]
    request = CreateDelegationTokenRequest(
        **{"renewers": renewers, "owner_principal_name": None, "owner_principal_type": None}
        | fields
    )
    return ask(cluster, request, who)


def described(
    cluster: bradbury.LocalCluster, who: ClientSession, owner: str | None = None
) -> set[str]:
    owners = None
    if owner is not None:
        owners = [DescribeDelegationTokenOwner(principal_type="User", principal_name=owner)]
    answer = ask(cluster, DescribeDelegationTokenRequest(owners=owners), who)
    assert not answer.error_code
    return {token.token_id for token in answer.tokens}


def login(cluster: bradbury.LocalCluster, token_id: str, hmac: Any) -> bradbury.Admin:
    password = base64.b64encode(hmac).decode()
    return bradbury.Admin(
        cluster.bootstrap_servers_of("CLIENT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=(
            f'{LOGIN} required username="{token_id}" password="{password}" tokenauth="true";'
        ),
    )


def test_a_token_is_made_and_is_good_to_log_in_with_until_it_ends(
    cluster: bradbury.LocalCluster,
) -> None:
    made = create(cluster, max_lifetime_ms=50_000)
    assert made.error_code == 0
    assert made.max_timestamp_ms == made.expiry_timestamp_ms == made.issue_timestamp_ms + 50_000
    assert (made.principal_name, len(made.hmac)) == ("alice", 64)
    with login(cluster, made.token_id, made.hmac) as admin:
        admin.create_topic("of-alice")
        principals = {
            (str(each.session.principal), each.session.is_token)
            for each in list(cluster.nodes[0].socket_server._connections)
        }
        assert ("User:alice", True) in principals
    almost = bytes(made.hmac[:-1]) + bytes([made.hmac[-1] ^ 1])
    with pytest.raises(AuthenticationFailed):
        login(cluster, made.token_id, almost).list_topics()
    with pytest.raises(AuthenticationFailed):
        login(cluster, "another", made.hmac).list_topics()
    ended = ask(
        cluster, ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), ALICE
    )
    assert ended.error_code == 0
    with pytest.raises(AuthenticationFailed):
        login(cluster, made.token_id, made.hmac).list_topics()


def test_owners_and_renewers_renew_and_nobody_else(cluster: bradbury.LocalCluster) -> None:
    made = create(cluster)
    assert made.expiry_timestamp_ms == made.issue_timestamp_ms + 60_000

    def renew(who: ClientSession, period_ms: int = -1, hmac: bytes = b"") -> Any:
        request = RenewDelegationTokenRequest(hmac=hmac or made.hmac, renew_period_ms=period_ms)
        return ask(cluster, request, who)

    assert renew(BOB).expiry_timestamp_ms >= made.expiry_timestamp_ms
    assert renew(ALICE, 5_000).expiry_timestamp_ms < made.expiry_timestamp_ms
    assert renew(CAROL).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(ALICE, hmac=b"x").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    expire = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=0)
    assert ask(cluster, expire, CAROL).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert ask(cluster, expire, BOB).error_code == 0
    with pytest.raises(AuthenticationFailed):
        login(cluster, made.token_id, made.hmac).list_topics()
    create(cluster)
    assert made.token_id not in cluster.nodes[0].image.delegation_tokens


def test_without_an_authorizer_all_are_shown(cluster: bradbury.LocalCluster) -> None:
    made = create(cluster, renewers=[])
    assert made.token_id in described(cluster, CAROL)
    assert made.token_id in described(cluster, CAROL, "alice")
    assert made.token_id not in described(cluster, CAROL, "carol")


def test_nobody_who_is_not_known_gets_one(cluster: bradbury.LocalCluster) -> None:
    with_token = session("alice")
    with_token.is_token = True
    unknown = ClientSession("10.0.0.1", protocol="SSL", principal=ANONYMOUS)
    for who in (session("alice", "PLAINTEXT"), unknown, with_token):
        for request in (
            CreateDelegationTokenRequest(owner_principal_name=None, owner_principal_type=None),
            RenewDelegationTokenRequest(hmac=b"x"),
            ExpireDelegationTokenRequest(hmac=b"x"),
            DescribeDelegationTokenRequest(owners=None),
        ):
            answer = ask(cluster, request, who)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    bad = [CreatableRenewers(principal_type="Group", principal_name="g")]
    assert create(cluster, renewers=bad).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_without_a_key_there_are_none() -> None:
    with bradbury.local() as plain:
        assert create(plain).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        answer = ask(plain, DescribeDelegationTokenRequest(owners=None), ALICE)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_with_an_authorizer_those_of_others_need_rights(guarded: bradbury.LocalCluster) -> None:
    node = guarded.nodes[0]
    others = {"owner_principal_type": "User", "owner_principal_name": "bob"}

    def allow(operation: AclOperation, resource: ResourceType, name: str) -> None:
        from bradbury.protocol.security.acl_binding import AclBinding, AclPermission, PatternType

        rule = AclBinding(
            resource, name, PatternType.LITERAL, "User:alice", "*", operation, AclPermission.ALLOW
        )
        guarded._call(set_rules(node, {rule}), 30)

    guarded._call(set_rules(node, set()), 30)
    refused = create(guarded, renewers=[], **others)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert create(guarded, renewers=[]).error_code == 0
    allow(AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")
    made = create(guarded, renewers=[], **others)
    assert (made.error_code, made.principal_name) == (0, "bob")
    assert made.token_requester_principal_name == "alice"
    assert made.token_id in described(guarded, BOB)
    assert made.token_id not in described(guarded, ALICE)
    allow(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob")
    assert made.token_id in described(guarded, ALICE)
    allow(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, made.token_id)
    assert made.token_id in described(guarded, ALICE)
    assert described(guarded, CAROL) == set()


def test_one_that_has_expired_goes_although_nothing_else_changes() -> None:
    often = {"delegation.token.expiry.check.interval.ms": "100"}
    with bradbury.local(config=CONFIG | often) as cluster:
        made = create(cluster, max_lifetime_ms=1_500)
        stays = create(cluster)
        tokens = cluster.nodes[0].image.delegation_tokens
        assert {made.token_id, stays.token_id} <= set(tokens)
        until = time.monotonic() + 60
        while made.token_id in cluster.nodes[0].image.delegation_tokens:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert stays.token_id in cluster.nodes[0].image.delegation_tokens


def test_tokens_and_users_do_not_mix(cluster: bradbury.LocalCluster) -> None:
    made = create(cluster)
    with cluster.admin() as admin:
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(made.token_id, "secret", "SCRAM-SHA-256")]
        )
    with pytest.raises(AuthenticationFailed):
        login(cluster, made.token_id, b"secret").list_topics()
