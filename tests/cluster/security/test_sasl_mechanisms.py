"""The broker's side of PLAIN and SCRAM: who is let in, who is not, and what the others are told."""

from dataclasses import dataclass, field

import pytest

from bradbury.cluster.security.sasl.credentials import TokenCredential
from bradbury.cluster.security.sasl.mechanisms import make_server
from bradbury.cluster.security.sasl.sasl_server import SaslServer, SaslStep
from bradbury.protocol.errors import (
    IllegalSaslState,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from bradbury.protocol.security.scram import HASHES, ScramCredential
from bradbury.protocol.security.scram_client import ScramClient

NONCE = "server+nonce"
MECHANISMS = ("PLAIN", *HASHES)
INVALID = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism"
)


@dataclass
class Users:
    """alice has the password `pencil`, for every mechanism; more may be known."""

    passwords: dict[str, str] = field(default_factory=lambda: {"alice": "pencil"})
    tokens: dict[str, TokenCredential] = field(default_factory=dict)
    iterations: int = 4096

    def plain_password(self, user: str) -> str | None:
        return self.passwords.get(user)

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        password = self.passwords.get(user)
        return password and ScramCredential.of_password(  # type: ignore[return-value]
            mechanism, password, salt=b"salt", iterations=self.iterations
        )

    def delegation_token(self, token_id: str, mechanism: str) -> TokenCredential | None:
        return self.tokens.get(token_id)


def server(mechanism: str, users: Users | None = None, *, is_repeated: bool = False) -> SaslServer:
    return make_server(
        mechanism, credentials=users or Users(), nonce=NONCE, is_repeated=is_repeated
    )


def exchange(one: SaslServer, client: ScramClient) -> SaslStep:
    challenge = one.respond(client.first(), now_ms=0)
    assert challenge.principal_name is None
    step = one.respond(client.final(challenge.reply), now_ms=0)
    client.check(step.reply)
    return step


def client(mechanism: str, name: str = "alice", password: str = "pencil") -> ScramClient:
    return ScramClient(mechanism, name, password, nonce="abc")


@pytest.mark.parametrize("mechanism", HASHES)
def test_who_knows_the_password_is_let_in(mechanism: str) -> None:
    step = exchange(server(mechanism), client(mechanism))
    assert (step.principal_name, step.expires_at_ms, step.is_token) == ("alice", None, False)


def test_the_example_of_rfc_7677() -> None:
    class Example(Users):
        def scram(self, user: str, mechanism: str) -> ScramCredential | None:
            assert (user, mechanism) == ("user", "SCRAM-SHA-256")
            salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81"
            return ScramCredential.of_password(mechanism, "pencil", salt=salt, iterations=4096)

    one = make_server(
        "SCRAM-SHA-256", credentials=Example(), nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    assert one.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", now_ms=0).reply == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    step = one.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        now_ms=0,
    )
    assert step.reply == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert step.principal_name == "user"


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_wrong_password_and_nobody_at_all_are_told_the_same(mechanism: str) -> None:
    one = server(mechanism)
    wrong = client(mechanism, password="pencils")
    challenge = one.respond(wrong.first(), now_ms=0).reply
    told = []
    with pytest.raises(SaslAuthenticationFailed) as caught:
        one.respond(wrong.final(challenge), now_ms=0)
    told.append(str(caught.value))
    with pytest.raises(SaslAuthenticationFailed) as caught:
        server(mechanism).respond(client(mechanism, "mallory").first(), now_ms=0)
    told.append(str(caught.value))
    assert told == [f"{INVALID} {mechanism}"] * 2


def test_names_with_commas_and_signs() -> None:
    users = Users({"a=b,c": "pencil"})
    mechanism = "SCRAM-SHA-512"
    step = exchange(server(mechanism, users), client(mechanism, "a=b,c"))
    assert step.principal_name == "a=b,c"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=alice",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=a c",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,m=more,n=alice,r=abc",
        b"n,,n=zo\xc3\xab,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=alice,r=abc,x",
        b"n,,n=alice,r=" + b"a" * 20_000,
        b"\0alice\0pencil",
    ],
)
def test_what_is_no_first_message_is_refused(first: bytes) -> None:
    one = server("SCRAM-SHA-256")
    with pytest.raises(SaslAuthenticationFailed, match=INVALID):
        one.respond(first, now_ms=0)
    with pytest.raises(IllegalSaslState):
        one.respond(client("SCRAM-SHA-256").first(), now_ms=0)


def test_a_client_that_would_bind_channels_is_told_that_we_do_not_by_the_mechanisms_alone() -> None:
    class Binding(ScramClient):
        """RFC 5802: `y`, where the server names no mechanism with PLUS."""

        def __init__(self) -> None:
            super().__init__("SCRAM-SHA-256", "alice", "pencil", nonce="abc")
            self._first = type(self._first)(
                header="y,,", bare="n=alice,r=abc", name="alice", nonce="abc"
            )

    assert exchange(server("SCRAM-SHA-256"), Binding()).principal_name == "alice"


def test_a_header_that_changed_between_the_messages_is_refused() -> None:
    one, honest = server("SCRAM-SHA-256"), client("SCRAM-SHA-256")
    challenge = one.respond(b"y" + honest.first()[1:], now_ms=0).reply
    with pytest.raises(SaslAuthenticationFailed):
        one.respond(honest.final(challenge), now_ms=0)


def test_nobody_is_authenticated_as_somebody_else() -> None:
    for mechanism in HASHES:
        with pytest.raises(SaslAuthenticationFailed, match="authorization id"):
            server(mechanism).respond(b"n,a=bob,n=alice,r=abc", now_ms=0)
    with pytest.raises(SaslAuthenticationFailed, match="authorization id"):
        server("PLAIN").respond(b"bob\0alice\0pencil", now_ms=0)
    assert server("PLAIN").respond(b"alice\0alice\0pencil", now_ms=0).principal_name == "alice"


def test_a_credential_with_few_iterations_is_none() -> None:
    with pytest.raises(SaslAuthenticationFailed):
        server("SCRAM-SHA-256", Users(iterations=4095)).respond(
            client("SCRAM-SHA-256").first(), now_ms=0
        )


def test_an_exchange_that_is_over_stays_over() -> None:
    one = server("SCRAM-SHA-256")
    exchange(one, client("SCRAM-SHA-256"))
    with pytest.raises(IllegalSaslState):
        one.respond(client("SCRAM-SHA-256").first(), now_ms=0)
    plain = server("PLAIN")
    plain.respond(b"\0alice\0pencil", now_ms=0)
    with pytest.raises(IllegalSaslState):
        plain.respond(b"\0alice\0pencil", now_ms=0)


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (b"\0alice\0pencils", "Authentication failed: Invalid username or password"),
        (b"\0mallory\0pencil", "Authentication failed: Invalid username or password"),
        (b"\0alice\0", INVALID),
        (b"\0\0pencil", INVALID),
        (b"alice\0pencil", INVALID),
        (b"\0\xff\0pencil", INVALID),
        (b"", INVALID),
        (b"\0alice\0" + b"p" * 20_000, INVALID),
    ],
)
def test_plain_refuses_in_kafkas_words(token: bytes, words: str) -> None:
    with pytest.raises(SaslAuthenticationFailed, match=words):
        server("PLAIN").respond(token, now_ms=0)


def test_plain_lets_in_who_knows_the_password() -> None:
    assert server("PLAIN").respond(b"\0alice\0pencil", now_ms=0) == SaslStep(
        reply=b"", principal_name="alice"
    )


def test_a_failed_reauthentication_is_called_one() -> None:
    for mechanism in MECHANISMS:
        with pytest.raises(SaslAuthenticationFailed, match="during re-authentication due to"):
            server(mechanism, is_repeated=True).respond(b"", now_ms=0)


def test_other_mechanisms_are_refused() -> None:
    with pytest.raises(UnsupportedSaslMechanism, match="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        server("SCRAM-SHA-1")


# --- delegation tokens ---------------------------------------------------------------------------


def with_token(expires_at_ms: int) -> Users:
    credential = ScramCredential.of_password(
        "SCRAM-SHA-256", "hmac", salt=b"other", iterations=4096
    )
    token = TokenCredential(owner="alice", credential=credential, expires_at_ms=expires_at_ms)
    return Users(tokens={"id": token})


def token_client(password: str = "hmac") -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "id", password, nonce="abc", is_token=True)


def test_a_delegation_token_logs_in_as_its_owner_until_it_expires() -> None:
    step = exchange(server("SCRAM-SHA-256", with_token(1000)), token_client())
    assert (step.principal_name, step.expires_at_ms, step.is_token) == ("alice", 1000, True)


def test_a_token_that_is_over_or_none_is_refused() -> None:
    for users in (with_token(0), Users(), Users({"id": "hmac"})):
        with pytest.raises(SaslAuthenticationFailed, match=INVALID):
            server("SCRAM-SHA-256", users).respond(token_client().first(), now_ms=0)


def test_a_token_is_no_password() -> None:
    plain = ScramClient("SCRAM-SHA-256", "id", "hmac", nonce="abc")
    with pytest.raises(SaslAuthenticationFailed):
        server("SCRAM-SHA-256", with_token(1000)).respond(plain.first(), now_ms=0)
