"""SCRAM as a client speaks it, by RFC 7677's own example, and against servers that cheat."""

import pytest

from bradbury.protocol.errors import AuthenticationFailed
from bradbury.protocol.security.scram_client import MOST_ITERATIONS, ScramClient

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def client() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)


def test_the_example_of_rfc_7677() -> None:
    one = client()
    assert one.first() == f"n,,n=user,r={NONCE}".encode()
    assert one.final(CHALLENGE.encode()) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    one.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_names_are_escaped() -> None:
    one = ScramClient("SCRAM-SHA-512", "a=b,c", "p", nonce="x")
    assert one.first() == b"n,,n=a=3Db=2Cc,r=x"


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (CHALLENGE.replace(NONCE, "another"), "does not continue"),
        (CHALLENGE.replace("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", ""), "does not continue"),
        (CHALLENGE.replace("i=4096", "i=1"), "1 SCRAM iterations"),
        (CHALLENGE.replace("i=4096", f"i={MOST_ITERATIONS + 1}"), "iterations"),
        (CHALLENGE.replace("i=4096", "i=many"), "is malformed"),
        (CHALLENGE.replace("W22Z", "!!!!"), "is malformed"),
        ("", "is malformed"),
        ("\x00\xff", "is malformed"),
    ],
)
def test_a_challenge_that_is_none_is_refused(challenge: str, text: str) -> None:
    with pytest.raises(AuthenticationFailed, match=text):
        client().final(challenge.encode())


@pytest.mark.parametrize("outcome", [b"v=AAAA", b"v=", b"", b"e=other-error", b"nonsense"])
def test_a_server_that_does_not_know_the_password_is_not_believed(outcome: bytes) -> None:
    one = client()
    one.final(CHALLENGE.encode())
    with pytest.raises(AuthenticationFailed):
        one.check(outcome)
