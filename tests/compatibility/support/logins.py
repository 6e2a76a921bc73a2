"""A cluster that is told who somebody is in every way it knows, and those who tell it, rightly or not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import bradbury
from bradbury import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from bradbury.clients.admin.users_admin import UserScramCredentialUpsertion
from bradbury.tests.support.certificates import CertificateAuthority
from tests.live.security.access_scene import AUTHORIZER
from tests.live.security.token_issuer import Issuer, config as oauth_config

USER = "alice"
PASSWORD = 'se"cret=,\\'
PREFIX = "logins-"
"""Of topics and groups that whoever is known may use."""
LOGIN = "org.apache.kafka.common.security"
MODULES = {
    "PLAIN": f"{LOGIN}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{LOGIN}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{LOGIN}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{LOGIN}.oauthbearer.OAuthBearerLoginModule",
}
OTHERS_TOKEN, OLD_TOKEN, TOKEN = "others.jwt", "old.jwt", "alice.jwt"
TOKEN_SECONDS = 3_600
DELEGATION_TOKEN, CERTIFICATE = "delegation token", "certificate"
OTHER_CA, EXPIRED_SERVER = "server of another CA", "server with an expired certificate"
WAYS = (*MODULES, DELEGATION_TOKEN, CERTIFICATE)


class Login(NamedTuple):
    """What a client is told: a certificate alone where there is no mechanism."""

    servers: str
    authority: str  # whom it trusts, a file
    mechanism: str = ""
    user: str = ""
    password: str = ""
    is_delegation_token: bool = False
    token: str = ""  # of OAUTHBEARER, a file
    certificate: str = ""  # a file, with its key

    def in_java(self) -> dict[str, str]:
        """The settings of a Java client."""
        settings = {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_SSL" if self.mechanism else "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
        }
        if self.certificate:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
        if self.mechanism:
            said = ""
            if self.user:
                said = f" username={_quoted(self.user)} password={_quoted(self.password)}"
            if self.is_delegation_token:
                said += ' tokenauth="true"'
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f"{MODULES[self.mechanism]} required{said};",
            }
        if self.token:
            settings |= {
                "sasl.login.callback.handler.class": (
                    f"{LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
                ),
                "sasl.oauthbearer.token.endpoint.url": Path(self.token).as_uri(),
            }
        return settings

    def properties(self, path: Path) -> str:
        """The same as a file of properties, in which a backslash begins an escape."""
        lines = [f"{name}={value}" for name, value in self.in_java().items()]
        path.write_text("".join(f"{line}\n" for line in lines).replace("\\", "\\\\"))
        return str(path)

    def in_go(self) -> dict[str, object]:
        """What franz_go/login.go takes."""
        return {
            "mechanism": self.mechanism,
            "user": self.user,
            "password": self.password,
            "isToken": self.is_delegation_token,
            "token": Path(self.token).read_text() if self.token else "",
            "authority": self.authority,
            "certificate": self.certificate,
        }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class LoginScene:
    """Two nodes with an authorizer. ROOT asks nobody who he is, and is for the tests alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority(folder)
        (folder / "others").mkdir()
        self.other_authority = CertificateAuthority(folder / "others", "other CA")
        issuer = Issuer(folder, "ours")
        now = int(time.time())
        for name, token in {
            TOKEN: issuer.token(USER, exp=now + TOKEN_SECONDS),
            OLD_TOKEN: issuer.token(USER, iat=now - 2 * TOKEN_SECONDS, exp=now - TOKEN_SECONDS),
            # The same key id, or it would not be tried at all.
            OTHERS_TOKEN: Issuer(folder / "others", "ours").token(USER, exp=now + TOKEN_SECONDS),
        }.items():
            (folder / name).write_text(token)
        self.config = oauth_config(issuer) | {
            "listeners": "ROOT://:0,CLIENT://:0,MUTUAL://:0,EXPIRED://:0",
            "listener.security.protocol.map": (
                "ROOT:PLAINTEXT,CLIENT:SASL_SSL,MUTUAL:SSL,EXPIRED:SASL_SSL"
            ),
            "inter.broker.listener.name": "ROOT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.authority.sign("broker"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.certificate,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.expired.ssl.keystore.location": self.authority.sign(
                "late", expired=True
            ),
            "listener.name.expired.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.enabled.mechanisms": ",".join(MODULES),
            "listener.name.client.plain.sasl.jaas.config": (
                f"{MODULES['PLAIN']} required user_{USER}={_quoted(PASSWORD)};"
            ),
            "delegation.token.secret.key": "between brokers",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }

    @contextmanager
    def running(self) -> Iterator[LoginScene]:
        with bradbury.local(nodes=2, config=self.config) as self.cluster:
            self.root = self.cluster.bootstrap_servers_of("ROOT")
            self._let_in()
            yield self

    def _let_in(self) -> None:
        kinds = (ResourceType.TOPIC, ResourceType.GROUP)
        with bradbury.Admin(self.root) as admin:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                one = UserScramCredentialUpsertion(USER, PASSWORD, mechanism)
                admin.alter_user_scram_credentials([one])  # as in Kafka, one of a user at a time
            admin.create_acls(
                [
                    allow(kind, PREFIX, who, AclOperation.ALL, PatternType.PREFIXED)
                    for kind in kinds
                    for who in (principal(""), principal(CERTIFICATE))
                ]
            )

    def login(self, way: str, wrong: str = "") -> Login:
        """What somebody says who is let in this way; or who is not, as something is wrong."""
        client = self.cluster.bootstrap_servers_of("CLIENT")
        login = Login(client, self.authority.certificate, way, USER, PASSWORD)
        if way == DELEGATION_TOKEN:
            login = self._by_token(ended=wrong == "token ended")
        elif way == "OAUTHBEARER":
            file = {"token expired": OLD_TOKEN, "token of another key": OTHERS_TOKEN}
            token = str(self.folder / file.get(wrong, TOKEN))
            login = login._replace(user="", password="", token=token)
        elif way == CERTIFICATE:
            signs = self.other_authority if wrong == "certificate of another CA" else self.authority
            login = Login(
                self.cluster.bootstrap_servers_of("MUTUAL"),
                self.authority.certificate,
                certificate="" if wrong == "no certificate" else signs.sign(USER),
            )
        if wrong == "password":
            login = login._replace(password=login.password[::-1])
        elif wrong == "user":
            login = login._replace(user="mallory")
        elif wrong == OTHER_CA:
            login = login._replace(authority=self.other_authority.certificate)
        elif wrong == EXPIRED_SERVER:
            login = login._replace(servers=self.cluster.bootstrap_servers_of("EXPIRED"))
        return login

    def connected(self, principal: str, topic: str) -> set[str]:
        """The addresses of whoever is connected as this principal to the leader of partition 0."""
        leader = self.cluster.nodes[0].image.live_leader(topic, 0)
        return {
            connection.peer
            for node in self.cluster.nodes
            if node.node_id == leader
            for connection in list(node.socket_server._connections)
            if str(connection.session.principal) == principal
        }

    def _by_token(self, *, ended: bool) -> Login:
        alice = self.login("SCRAM-SHA-512")
        with bradbury.Admin(
            alice.servers,
            security_protocol="SASL_SSL",
            ssl_truststore_location=alice.authority,
            sasl_mechanism=alice.mechanism,
            sasl_username=alice.user,
            sasl_password=alice.password,
        ) as admin:
            made = admin.create_delegation_token()
            if ended:
                admin.expire_delegation_token(made.hmac)
        return alice._replace(
            user=made.token_info.token_id,
            password=made.hmac_as_base64_string,
            is_delegation_token=True,
        )


def principal(way: str) -> str:
    """Who it is that logs in this way."""
    return f"User:CN={USER},O=Example" if way == CERTIFICATE else f"User:{USER}"


def allow(
    kind: ResourceType,
    name: str,
    who: str,
    operation: AclOperation,
    pattern: PatternType = PatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, who, "*", operation, AclPermission.ALLOW)
