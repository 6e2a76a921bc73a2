"""OAUTHBEARER: which tokens let somebody in, and that no change of one does."""

import base64
import json
import random
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bradbury.cluster.security.sasl.json_web_token import (
    KeySet,
    OauthRules,
    TokenRefused,
    TokenValidator,
)
from bradbury.cluster.security.sasl.mechanisms import make_server
from bradbury.cluster.security.sasl.oauth_bearer import REFUSAL
from bradbury.cluster.security.sasl.sasl_server import SaslServer, SaslStep
from bradbury.protocol.errors import (
    IllegalSaslState,
    InvalidConfig,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)

NOW = 1_800_000_000
INVALID = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism"
)


@cache
def private(kind: str) -> Any:
    if kind == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    if kind == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_jwk(kind: str, **more: str) -> dict[str, Any]:
    algorithm = jwt.get_algorithm_by_name("RS256" if kind.startswith("RS") else kind)
    described = algorithm.to_jwk(private(kind).public_key(), as_dict=True)
    return {**described, "kid": kind, "use": "sig", **more}


def key_set(*kinds: str) -> KeySet:
    return KeySet.parse(json.dumps({"keys": [public_jwk(kind) for kind in kinds or ("RS256",)]}))


def signed(kind: str = "RS256", *, kid: str | None = "", **claims: Any) -> str:
    claims = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 60, **claims}
    kept = {name: value for name, value in claims.items() if value is not None}
    headers = {} if kid is None else {"kid": kid or kind}
    return jwt.encode(kept, private(kind), algorithm=kind, headers=headers)


def validator(**rules: Any) -> TokenValidator:
    keys = key_set("RS256", "ES256", "EdDSA")
    return TokenValidator(OauthRules(**rules), lambda: keys)


def server(**rules: Any) -> SaslServer:
    return make_server("OAUTHBEARER", credentials=None, nonce="", oauth=validator(**rules))  # type: ignore[arg-type]


def first(token: str, authorization_id: str = "") -> bytes:
    return f"n,{authorization_id},\x01auth=Bearer {token}\x01\x01".encode()


def respond(token: str, **rules: Any) -> SaslStep:
    return server(**rules).respond(first(token), now_ms=NOW * 1000)


@pytest.mark.parametrize("kind", ["RS256", "ES256", "EdDSA"])
def test_a_signed_token_lets_its_subject_in_until_it_expires(kind: str) -> None:
    assert respond(signed(kind)) == SaslStep(
        reply=b"", principal_name="alice", expires_at_ms=(NOW + 60) * 1000
    )


def test_extensions_and_the_own_name_may_be_said() -> None:
    text = f"n,a=alice,\x01auth=bearer  {signed()}\x01traceId=a b\x01\x01"
    step = server().respond(text.encode(), now_ms=NOW * 1000)
    assert step.principal_name == "alice"
    with pytest.raises(SaslAuthenticationFailed, match="authorization id"):
        server().respond(first(signed(), "a=bob"), now_ms=NOW * 1000)


@pytest.mark.parametrize(
    ("claims", "rules"),
    [
        ({"exp": NOW - 30}, {}),
        ({"exp": NOW - 1}, {"clock_skew_seconds": 0}),
        ({"exp": None}, {}),
        ({"exp": True}, {}),
        ({"exp": "soon"}, {}),
        ({"exp": 10**30}, {}),
        ({"iat": None}, {}),
        ({"nbf": NOW + 31}, {}),
        ({"sub": None}, {}),
        ({"sub": " "}, {}),
        ({}, {"sub_claim_name": "email"}),
        ({"iss": "other"}, {"expected_issuer": "issuer"}),
        ({}, {"expected_issuer": "issuer"}),
        ({"aud": "other"}, {"expected_audience": ("kafka",)}),
        ({"aud": ["other", 7]}, {"expected_audience": ("kafka",)}),
        ({}, {"expected_audience": ("kafka",)}),
        ({"aud": "kafka"}, {}),
        ({"scope": ""}, {}),
        ({"scope": ["a", "a "]}, {}),
    ],
)
def test_a_token_that_is_not_for_us_is_refused(
    claims: dict[str, Any], rules: dict[str, Any]
) -> None:
    one = server(**rules)
    step = one.respond(first(signed(**claims)), now_ms=NOW * 1000)
    assert (step.reply, step.principal_name) == (REFUSAL.encode(), None)
    with pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
        one.respond(b"\x01", now_ms=NOW * 1000)
    with pytest.raises(IllegalSaslState):
        one.respond(first(signed()), now_ms=NOW * 1000)


@pytest.mark.parametrize(
    ("claims", "rules"),
    [
        ({"exp": NOW - 29}, {}),
        ({"nbf": NOW + 30}, {}),
        ({"email": " alice "}, {"sub_claim_name": "email"}),
        ({"aud": ["x", "kafka"], "iss": "i"}, {"expected_audience": ("kafka", "y"), "expected_issuer": "i"}),
        ({"roles": ["a", "b"]}, {"scope_claim_name": "roles"}),
    ],
)  # fmt: skip
def test_what_is_for_us_is_accepted(claims: dict[str, Any], rules: dict[str, Any]) -> None:
    assert respond(signed(**claims), **rules).principal_name == "alice"


def test_another_token_after_one_that_was_refused_is_none() -> None:
    one = server()
    one.respond(first(signed(exp=0)), now_ms=NOW * 1000)
    with pytest.raises(SaslAuthenticationFailed, match=INVALID):
        one.respond(first(signed()), now_ms=NOW * 1000)


def segment(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_a_token_does_not_choose_how_its_key_is_meant() -> None:
    _, claims, signature = signed().split(".")
    pem = (
        private("RS256").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for algorithm in ("none", "None", "HS256", "ES256", "RS384", 7, None):
        header = segment({"alg": algorithm, "kid": "RS256"})
        assert respond(f"{header}.{claims}.{signature}").principal_name is None
        assert respond(f"{header}.{claims}.").principal_name is None
    import hashlib
    import hmac

    head = segment({"alg": "HS256", "kid": "RS256"}) + "." + claims
    mac = base64.urlsafe_b64encode(hmac.digest(pem, head.encode(), hashlib.sha256)).rstrip(b"=")
    assert respond(f"{head}.{mac.decode()}").principal_name is None


def test_a_key_that_is_not_in_the_set_is_asked_for() -> None:
    asked = []
    keys = [key_set("ES256")]
    one = TokenValidator(OauthRules(), lambda: keys[0], lambda: asked.append(1))
    with pytest.raises(TokenRefused):
        one.validate(signed("RS256"), now_ms=NOW * 1000)
    assert asked == [1]
    keys[0] = key_set("RS256")
    assert one.validate(signed("RS256"), now_ms=NOW * 1000).principal_name == "alice"
    with pytest.raises(TokenRefused):
        one.validate(signed("RS256", kid="x"), now_ms=NOW * 1000)


def test_a_token_without_a_key_id_is_of_the_only_key_that_fits() -> None:
    assert respond(signed(kid=None)).principal_name == "alice"
    keys = [public_jwk("RS256"), public_jwk("RS512", kid="2")]
    both = KeySet.parse(json.dumps({"keys": keys}))
    with pytest.raises(TokenRefused):
        TokenValidator(OauthRules(), lambda: both).validate(signed(kid=None), now_ms=NOW * 1000)


def test_a_key_set_has_public_keys_for_signatures_alone() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "s", "alg": "HS256"}
    others = [
        secret,
        public_jwk("RS256", use="enc"),
        public_jwk("RS256", alg="HS256"),
        {"kty": "RSA", "n": "%", "e": "AQAB"},
        {"kty": "new"},
        {},
    ]
    with pytest.raises(InvalidConfig, match="no public key"):
        KeySet.parse(json.dumps({"keys": others}))
    assert len(KeySet.parse(json.dumps({"keys": [*others, public_jwk("RS256")]})).keys) == 1
    for text in ("", "[]", "{}", '{"keys":7}', '{"keys":[7]}', "[" * 100_000, b"\xff"):
        with pytest.raises(InvalidConfig, match="not a JSON Web Key Set"):
            KeySet.parse(text)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01host=a\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer a\xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 200_000 + b"\x01\x01",
    ],
)
def test_what_is_no_first_message_is_refused(token: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed, match=INVALID):
        server().respond(token, now_ms=NOW * 1000)


def test_a_listener_without_it_does_not_speak_it() -> None:
    with pytest.raises(UnsupportedSaslMechanism):
        make_server("OAUTHBEARER", credentials=None, nonce="")  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [500, pytest.param(50_000, marks=pytest.mark.deep)])
def test_a_token_that_was_changed_is_refused(count: int) -> None:
    drawn = random.Random(count)
    honest = first(signed("EdDSA"))
    start = honest.index(b"Bearer ") + 7
    for _ in range(count):
        changed = bytearray(honest)
        for _ in range(1 + drawn.randrange(3)):
            at = drawn.randrange(start, len(changed))
            match drawn.randrange(3):
                case 0:
                    changed[at] = drawn.choice(b"abcXYZ019-_.\x01 =")
                case 1:
                    del changed[at]
                case _:
                    changed.insert(at, drawn.choice(b"abcXYZ019-_.\x01 ="))
        if changed == honest or not _differs(bytes(changed), honest):
            continue
        try:
            step = server().respond(bytes(changed), now_ms=NOW * 1000)
        except SaslAuthenticationFailed:
            continue
        assert step.principal_name is None, bytes(changed)


def _differs(changed: bytes, honest: bytes) -> bool:
    """Another token, and not the same between more spaces or pairs."""
    token = honest.split(b"Bearer ")[1].split(b"\x01")[0]
    return b" " + token + b"\x01" not in changed
