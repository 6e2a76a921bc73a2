"""Who signs tokens (JWT), and the settings of a cluster that believes it."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

import bradbury

ISSUER, AUDIENCE = "https://issuer.example", "logs"
CLIENT, SECRET = "etl", "s3:cret"


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


@contextmanager
def token_endpoint(issuer: Issuer) -> Iterator[TokenEndpoint]:
    with TokenEndpoint(issuer) as endpoint:
        threading.Thread(target=endpoint.serve_forever, daemon=True).start()
        yield endpoint
        endpoint.shutdown()


class TokenEndpoint(ThreadingHTTPServer):
    """Gives tokens to the client CLIENT that knows SECRET; `asked` has what it was asked with."""

    def __init__(self, issuer: Issuer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issuer = issuer
        self.asked: list[dict[str, list[str]]] = []
        self.status = 200
        self.url = f"http://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    server: TokenEndpoint

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked.append(form)
        who = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        known = self.headers["Authorization"] == f"Basic {who}"
        token = self.server.issuer.token("etl-job")
        answer = {"access_token": token, "expires_in": 600, "token_type": "Bearer"}
        content = json.dumps(answer).encode()
        self.send_response(self.server.status if known else 401)
        self.send_header("Content-Type", "application/json")  # librdkafka reads no other
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal of the tests."""


class TokenScene(NamedTuple):
    """A cluster that believes `issuer`, and an endpoint that gives its tokens.

    servers: where they are asked for. inside: where nothing is.
    """

    issuer: Issuer
    endpoint: TokenEndpoint
    servers: str
    inside: str


@contextmanager
def token_scene(folder: Path, count: int, *targets: str) -> Iterator[TokenScene]:
    """With a topic `numbers`, of so many, and empty ones, all of two partitions."""
    issuer = Issuer(folder, "ours")
    with token_endpoint(issuer) as endpoint, bradbury.local(config=config(issuer)) as cluster:
        inside = cluster.bootstrap_servers
        with bradbury.Admin(inside) as admin:
            for topic in ("numbers", *targets):
                admin.create_topic(topic, 2)
        with bradbury.Producer(inside) as producer:
            producer.send_batch("numbers", [b"%d" % number for number in range(count)]).result(60)
        yield TokenScene(issuer, endpoint, cluster.bootstrap_servers_of("CLIENT"), inside)
