"""Whatever is changed in what a client says, it is not let in, and is told in Kafka's codes."""

import random
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings, strategies as st

from bradbury.cluster.security.sasl.credentials import TokenCredential
from bradbury.cluster.security.sasl.mechanisms import make_server
from bradbury.protocol.errors import IllegalSaslState, SaslAuthenticationFailed
from bradbury.protocol.security.scram import HASHES, ScramCredential
from bradbury.protocol.security.scram_client import ScramClient

MECHANISMS = ("PLAIN", *HASHES)


@cache
def credential(mechanism: str) -> ScramCredential:
    return ScramCredential.of_password(mechanism, "pencil", salt=b"salt", iterations=4096)


class Users:
    """alice, with a password and a token `id`."""

    def plain_password(self, user: str) -> str | None:
        return "pencil" if user == "alice" else None

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        return credential(mechanism) if user == "alice" else None

    def delegation_token(self, token_id: str, mechanism: str) -> TokenCredential | None:
        if token_id != "id":
            return None
        return TokenCredential(
            owner="alice", credential=credential(mechanism), expires_at_ms=10**15
        )


@cache
def said(mechanism: str, is_token: bool) -> tuple[bytes, ...]:
    """What an honest client says."""
    if mechanism == "PLAIN":
        return (b"\0alice\0pencil",)
    user = "id" if is_token else "alice"
    client = ScramClient(mechanism, user, "pencil", nonce="clientnonce", is_token=is_token)
    server = make_server(mechanism, credentials=Users(), nonce="servernonce")
    first = client.first()
    return first, client.final(server.respond(first, now_ms=0).reply)


def is_let_in(mechanism: str, tokens: tuple[bytes, ...]) -> bool:
    """Raises whatever is not an expected refusal."""
    server = make_server(mechanism, credentials=Users(), nonce="servernonce")
    try:
        return any(server.respond(each, now_ms=0).principal_name for each in tokens)
    except (SaslAuthenticationFailed, IllegalSaslState):
        return False


def mutated(token: bytes, draw: Callable[[int], int]) -> bytes:
    """draw(n): one of 0 to n - 1."""
    position = draw(len(token) + 1)
    head, tail = token[:position], token[position:]
    match draw(6):
        case 0:
            return head + bytes([draw(256)]) + tail
        case 1:
            return head + tail[1:]
        case 2:
            return head + bytes([draw(256)]) + tail[1:]
        case 3:
            return head + tail[:1] * 2 + tail[1:]
        case 4:
            return head + tail[1:2] + tail[:1] + tail[2:]
        case _:
            return head + b",=\0/+A"[draw(6) :][:1] + tail


def check(mechanism: str, is_token: bool, draw: Callable[[int], int]) -> None:
    honest = said(mechanism, is_token)
    tokens = list(honest)
    for _ in range(1 + draw(3)):
        which = draw(len(tokens))
        tokens[which] = mutated(tokens[which], draw)
    assert is_let_in(mechanism, tuple(tokens)) == (tuple(tokens) == honest), tokens


def test_the_honest_client_is_let_in() -> None:
    for mechanism in MECHANISMS:
        for is_token in (False, True):
            assert is_let_in(mechanism, said(mechanism, is_token))


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism", MECHANISMS)
@settings(deadline=None, max_examples=200)
@given(is_token=st.booleans(), data=st.data())
def test_a_token_that_was_changed_is_refused(mechanism: str, is_token: bool, data) -> None:
    check(mechanism, is_token, lambda n: data.draw(st.integers(0, n - 1)))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(tokens=st.lists(st.binary(max_size=200), max_size=3))
def test_any_bytes_are_refused(mechanism: str, tokens: list[bytes]) -> None:
    assert not is_let_in(mechanism, tuple(tokens))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("count", [2_000, pytest.param(350_000, marks=pytest.mark.deep)])
def test_of_very_many_none_is_let_in(mechanism: str, count: int) -> None:
    drawn = random.Random(f"{mechanism}{count}")
    for _ in range(count):
        check(mechanism, drawn.random() < 0.5, drawn.randrange)


def test_a_first_message_that_ends_in_an_exchange_of_somebody_else_is_refused() -> None:
    """Recorded messages are of no use with another nonce of the server."""
    for mechanism in MECHANISMS[1:]:
        server = make_server(mechanism, credentials=Users(), nonce="anothernonce")
        first, final = said(mechanism, False)
        server.respond(first, now_ms=0)
        with pytest.raises(SaslAuthenticationFailed):
            server.respond(final, now_ms=0)
