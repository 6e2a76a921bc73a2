"""Who signs tokens (JWT), and the settings of a cluster that believes it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

ISSUER, AUDIENCE = "https://issuer.example", "logs"


class Issuer:
    """Signs tokens with a key of its own; its public half stands in `path`."""

    def __init__(self, folder: Path, key_id: str) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._key_id = key_id
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        self.path = folder / f"{key_id}.json"
        self.path.write_text(json.dumps({"keys": [public | {"kid": key_id, "use": "sig"}]}))

    def token(self, subject: str, **claims: Any) -> str:
        now = int(time.time())
        said = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600}
        return jwt.encode(said | claims, self._key, "RS256", headers={"kid": self._key_id})


def config(issuer: Issuer, **more: str) -> dict[str, str]:
    return {
        "listeners": "INSIDE://:0,CLIENT://:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,CLIENT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file:{issuer.path}",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        **more,
    }
