"""Delegation tokens in the metadata: how they come, are extended, and go."""

from dataclasses import replace

import pytest

from bradbury.cluster.control.access.token_control import (
    CreateDelegationToken,
    ExtendDelegationToken,
    RemoveExpiredTokens,
)
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.user_records import DelegationTokenRecord
from bradbury.cluster.quorum.metadata_snapshot import decode_snapshot, encode_snapshot
from bradbury.cluster.security.sasl.delegation_token import (
    find_token,
    token_credential,
    token_hmac,
)
from bradbury.protocol.errors import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
)
from tests.support.metadata import applied, cluster, decide

KEY = b"secret"
TOKEN = DelegationTokenRecord(
    token_id="one",
    owner="User:alice",
    requester="User:admin",
    renewers=("User:bob",),
    issue_timestamp=1_000,
    max_timestamp=9_000,
    expiry_timestamp=3_000,
)


def created(image: MetadataImage, token: DelegationTokenRecord = TOKEN) -> MetadataImage:
    request = CreateDelegationToken(token=token, now_ms=token.issue_timestamp)
    return applied(image, decide(image, request)[0])


def extend(
    image: MetadataImage, period_ms: int, *, principal: str = "User:alice", now_ms: int = 2_000
) -> tuple[MetadataImage, int]:
    request = ExtendDelegationToken(
        token_id="one", principal=principal, period_ms=period_ms, now_ms=now_ms
    )
    records, expiry = decide(image, request)
    return applied(image, records), expiry


def test_an_end_whose_answer_was_lost_is_asked_for_again() -> None:
    end = ExtendDelegationToken(
        token_id="one", principal="User:alice", period_ms=-1, now_ms=2_000, is_repeated=True
    )
    assert decide(cluster(), end) == ([], 2_000)
    with pytest.raises(DelegationTokenNotFound):
        decide(cluster(), replace(end, period_ms=1_000))


def test_a_token_is_extended_to_its_end_at_most() -> None:
    image, expiry = extend(created(cluster()), 4_000, principal="User:bob")
    assert expiry == image.delegation_tokens["one"].expiry_timestamp == 6_000
    image, expiry = extend(image, 40_000)
    assert expiry == 9_000
    image, expiry = extend(image, 0)
    assert expiry == 2_000
    image, _ = extend(image, -1)
    assert not image.delegation_tokens
    assert image.scram_credentials == {}


def test_who_may_not_extend_is_refused() -> None:
    image = created(cluster())
    with pytest.raises(DelegationTokenOwnerMismatch):
        extend(image, 1, principal="User:admin")
    with pytest.raises(DelegationTokenExpired):
        extend(image, 1, now_ms=3_001)
    with pytest.raises(DelegationTokenNotFound):
        extend(cluster(), 1)


def test_expired_ones_go_with_the_next_change() -> None:
    image = created(cluster())
    image = created(image, replace(TOKEN, token_id="two", issue_timestamp=3_001))
    assert set(image.delegation_tokens) == {"two"}


def test_expired_ones_are_taken_out_when_somebody_looks() -> None:
    image = created(cluster())
    image = created(image, replace(TOKEN, token_id="two", expiry_timestamp=3_500))
    for now_ms, left in ((3_000, {"one", "two"}), (3_001, {"two"}), (3_501, set())):
        records, count = decide(image, RemoveExpiredTokens(now_ms=now_ms))
        assert count == len(records)
        image = applied(image, records)
        assert set(image.delegation_tokens) == left


def test_tokens_are_in_a_snapshot() -> None:
    image = created(cluster())
    assert decode_snapshot(encode_snapshot(image, now_ms=0)) == image


def test_a_token_is_found_by_its_hmac_alone() -> None:
    image = created(cluster())
    shown = token_hmac(KEY, "one")
    assert find_token(image, KEY, shown) == TOKEN
    assert find_token(image, b"another key", shown) is None
    assert find_token(image, KEY, shown[:-1]) is None
    assert find_token(image, KEY, token_hmac(KEY, "two")) is None
    known = token_credential(image, KEY, "one", "SCRAM-SHA-256")
    assert known is not None
    assert (known.owner, known.expires_at_ms) == ("alice", 3_000)
    assert known.credential != token_credential(image, KEY, "one", "SCRAM-SHA-512").credential
    assert token_credential(image, KEY, "two", "SCRAM-SHA-256") is None
