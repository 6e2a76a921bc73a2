"""A cluster that is logged in to in several ways, and files of settings that do so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bradbury
from bradbury.clients.admin.users_admin import UserScramCredentialUpsertion
from bradbury.tests.support.certificates import CertificateAuthority
from tests.live.security.token_issuer import (
    CLIENT,
    SECRET,
    Issuer,
    config as oauth_config,
    token_endpoint,
)

USER, PASSWORD = "alice", 'se"cret=,\\né'
TOPIC = "flights"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
WAYS = (
    "password",
    "password that stands elsewhere",
    "token of an endpoint",
    "token of an endpoint, by JAAS",
    "token in a file",
    "certificate",
    "certificate as text",
    "certificate as text, blanks for line breaks",
)


class ClientConfigScene:
    """One node. ROOT asks nobody who he is, and is for the tests alone.

    key_password: of the client's private key, if it is encrypted.
    """

    def __init__(self, folder: Path, key_password: str = "") -> None:
        self._folder = folder
        self._key_password = key_password
        self.authority = CertificateAuthority(folder)
        self._issuer = Issuer(folder, "ours")
        self.token_file = folder / "alice.jwt"
        self.token_file.write_text(self._issuer.token(USER))
        self.config = oauth_config(self._issuer) | {
            "listeners": "ROOT://:0,CLIENT://:0,MUTUAL://:0",
            "listener.security.protocol.map": "ROOT:PLAINTEXT,CLIENT:SASL_SSL,MUTUAL:SSL",
            "inter.broker.listener.name": "ROOT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.authority.sign("broker"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.certificate,
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        }

    @contextmanager
    def running(self) -> Iterator[ClientConfigScene]:
        with (
            token_endpoint(self._issuer) as endpoint,
            bradbury.local(config=self.config) as self.cluster,
        ):
            self.url = endpoint.url
            with self.cluster.admin() as admin:
                admin.create_topic(TOPIC, 1)
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(USER, PASSWORD, "SCRAM-SHA-512")]
                )
            yield self

    def servers(self, way: str) -> str:
        listener = "MUTUAL" if way.startswith("certificate") else "CLIENT"
        return self.cluster.bootstrap_servers_of(listener)

    def file(self, way: str) -> Path:
        """Settings that log in this way, as a file for Java and for `bradbury --client-config`."""
        trusted = f"ssl.truststore.location={self.authority.certificate}"
        if way.startswith("certificate"):
            lines = ["security.protocol=SSL", *self._certificate(trusted, way)]
        elif way.startswith("password"):
            lines = ["security.protocol=SASL_SSL", *self._password(trusted, way)]
        else:
            lines = ["security.protocol=SASL_SSL", trusted, *self._token(way)]
        path = self._folder / "client.properties"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def _password(self, trusted: str, way: str) -> list[str]:
        if way == "password":
            # As a file of Java's has it: JAAS has escapes, and so have properties.
            said = PASSWORD.replace("\\", "\\" * 4).replace('"', '\\\\"').replace("é", "\\u00e9")
            jaas = f'{SCRAM_MODULE} required username="{USER}" password="{said}";'
            return [trusted, "sasl.mechanism=SCRAM-SHA-512", f"sasl.jaas.config={jaas}"]
        (self._folder / "password").write_text(f"{PASSWORD}\n")
        return [
            f"ssl.truststore.certificates=${{dir:{self._folder}:test-CA.pem}}",
            "sasl.mechanism=SCRAM-SHA-512",
            f"sasl.username={USER}",
            f"sasl.password=${{dir:{self._folder}:password}}",
        ]

    def _token(self, way: str) -> list[str]:
        lines = ["sasl.mechanism=OAUTHBEARER"]
        if way == "token in a file":
            url = self.token_file.as_uri()
        else:
            url = self.url
            if way == "token of an endpoint":
                lines += [
                    f"sasl.oauthbearer.client.credentials.client.id={CLIENT}",
                    f"sasl.oauthbearer.client.credentials.client.secret={SECRET}",
                    "sasl.oauthbearer.scope=logs",
                ]
            else:
                said = f'clientId="{CLIENT}" clientSecret="{SECRET}" scope="logs"'
                lines.append(f"sasl.jaas.config={OAUTH_MODULE} required {said};")
        return [*lines, f"sasl.oauthbearer.token.endpoint.url={url}"]

    def _certificate(self, trusted: str, way: str) -> list[str]:
        path = self.authority.sign(USER, password=self._key_password.encode())
        lines = [f"ssl.key.password={self._key_password}"] if self._key_password else []
        if way == "certificate":
            return [*lines, trusted, f"ssl.keystore.location={path}"]
        text = Path(path).read_text()
        start = text.index("-----BEGIN CERTIFICATE-----")
        texts = {
            "ssl.truststore.certificates": Path(self.authority.certificate).read_text(),
            "ssl.keystore.key": text[:start],
            "ssl.keystore.certificate.chain": text[start:],
        }
        line_break = " " if "blanks" in way else "\\n"
        return lines + [
            f"{name}={text.strip().replace(chr(10), line_break)}" for name, text in texts.items()
        ]
