"""A client's security settings, by Kafka's names with underscores, checked when they are given.

PEM is the only form of certificates and keys (KIP-651). `sasl_username` and `sasl_password` are
librdkafka's names; `sasl_jaas_config` is Kafka's.

Values may be references, `${file:/run/secrets/kafka:password}`, `${dir:...}` or
`${env:KAFKA_PASSWORD}` (secret_reference). Checked settings keep references as they are: the
process that connects resolves them, a password at each authentication.
"""

from __future__ import annotations

import difflib
import inspect
import os
import secrets
import ssl
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypedDict

from ...protocol.errors import InvalidConfig
from ...protocol.security.gssapi import refuse_gssapi
from ...protocol.security.jaas import parse_jaas
from ...protocol.security.pem_text import pem_in_lines
from ...protocol.security.sasl_client import (
    MECHANISMS,
    NONCE_BYTES,
    OAUTHBEARER,
    SaslExchange,
)
from ...protocol.security.scram_messages import TOKEN_AUTH
from ...protocol.security.secret_reference import is_reference, resolve
from .oauth_tokens import SCHEMES, TokenProvider, TokenSource

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
JAAS_MODULES: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule",
)
OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PROVIDER: Final = "sasl_oauth_token_provider"
ENDPOINT_URL: Final = "sasl_oauthbearer_token_endpoint_url"
CLIENT_ID: Final = "sasl_oauthbearer_client_credentials_client_id"
CLIENT_SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105 -- a name
SCOPE: Final = "sasl_oauthbearer_scope"
OAUTH_NAMES: Final = (PROVIDER, ENDPOINT_URL, CLIENT_ID, CLIENT_SECRET, SCOPE)
JAAS_NAMES: Final = {"clientId": CLIENT_ID, "clientSecret": CLIENT_SECRET, "scope": SCOPE}
"""Settings by the names of OAuthBearerLoginModule's options since Kafka 4.1."""


class SecurityOptions(TypedDict, total=False):
    """Security settings of Producer, Consumer and Admin.

    security_protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    ssl_truststore_location, ssl_truststore_certificates: trusted certificates, as a PEM file, or
        its text; without either the system's certificates.
    ssl_keystore_location: a PEM file with this client's private key and certificate chain;
        ssl_keystore_key, ssl_keystore_certificate_chain: the same as text.
    ssl_key_password: of the private key.
    ssl_endpoint_identification_algorithm: "https", or "" to accept any host name in a certificate.
    ssl_truststore_type, ssl_keystore_type: PEM.
    sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
    sasl_username, sasl_password, or sasl_jaas_config: this client's credentials.

    Of OAUTHBEARER, one of these:
    sasl_oauth_token_provider: a function without arguments that returns a token, or an object with
        such a method `token`, as kafka-python's; called whenever the client authenticates.
    sasl_oauthbearer_token_endpoint_url: a file: URL of a file that holds a token, read each time;
        or an http: or https: URL that returns one for
        sasl_oauthbearer_client_credentials_client_id and ..._client_secret (and
        sasl_oauthbearer_scope), or for clientId, clientSecret and scope in sasl_jaas_config.

    All but the protocol, the types, the mechanism and the function may be references,
    `${file:PATH:KEY}`, `${dir:PATH:FILE}` or `${env:NAME}`.
    """

    security_protocol: str
    ssl_truststore_type: str
    ssl_truststore_location: str
    ssl_truststore_certificates: str
    ssl_keystore_type: str
    ssl_keystore_location: str
    ssl_keystore_key: str
    ssl_keystore_certificate_chain: str
    ssl_key_password: str
    ssl_endpoint_identification_algorithm: str
    sasl_mechanism: str
    sasl_username: str
    sasl_password: str
    sasl_jaas_config: str
    sasl_oauth_token_provider: TokenProvider
    sasl_oauthbearer_token_endpoint_url: str
    sasl_oauthbearer_client_credentials_client_id: str
    sasl_oauthbearer_client_credentials_client_secret: str
    sasl_oauthbearer_scope: str


NAMES: Final = frozenset(SecurityOptions.__annotations__)
NAMES_ELSEWHERE: Final = {
    "bootstrap_servers": "bootstrap",
    "group_id": "group",
    "max_in_flight_requests_per_connection": "max_in_flight",
}
"""Our names of arguments by those of other Python clients of Kafka."""
SECRETS: Final = (
    "sasl_password",
    "sasl_jaas_config",
    "ssl_key_password",
    "ssl_keystore_key",
    CLIENT_SECRET,
)
"""Settings that must not be logged."""


class ClientSecurity:
    """Checked settings, immutable and comparable. Their repr shows no password.

    Not a dataclass: Ray Data writes dataclasses, and all dataclasses in them, into the files that
    its dashboard reads.
    """

    __slots__ = ("options", "protocol", "token_provider")

    def __init__(
        self,
        protocol: str = PLAINTEXT,
        options: Iterable[tuple[str, str]] = (),
        token_provider: TokenProvider | None = None,
    ) -> None:
        self.protocol: Final = protocol
        self.options: Final = tuple(options)
        self.token_provider: Final = token_provider

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClientSecurity):
            return NotImplemented
        return self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def _value(self) -> tuple[Any, ...]:
        return self.protocol, self.options, self.token_provider

    def __repr__(self) -> str:
        return f"ClientSecurity(protocol={self.protocol!r})"

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> ClientSecurity:
        """Raises:
        TypeError: a name that is none of SecurityOptions.
        InvalidConfig: an invalid value, or settings that have no effect together.
        """
        refuse_gssapi(options)
        check_names(options)
        provider = options.get(PROVIDER)
        if not (provider is None or callable(provider) or hasattr(provider, "token")):
            raise InvalidConfig(
                f"{PROVIDER}: use a function that gives a token, or an object with a method `token`"
            )
        given = {
            name: str(value)
            for name, value in options.items()
            if value is not None and name != PROVIDER
        }
        protocol = given.pop("security_protocol", PLAINTEXT).upper()
        if protocol not in PROTOCOLS:
            raise InvalidConfig(
                f"security_protocol={protocol!r}: use one of {', '.join(PROTOCOLS)}"
            )
        security = cls(protocol, sorted(given.items()), provider)
        security._check_ssl(given)
        security._check_sasl(given | ({} if provider is None else {PROVIDER: "given"}))
        return security

    def as_options(self) -> SecurityOptions:
        """Settings as options."""
        options: Any = {"security_protocol": self.protocol, **dict(self.options)}
        if self.token_provider is not None:
            options[PROVIDER] = self.token_provider
        typed: SecurityOptions = options
        return typed

    @property
    def is_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def is_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def mechanism(self) -> str:
        return self._get("sasl_mechanism")

    def oauth(self) -> TokenSource | None:
        """Source of OAUTHBEARER tokens; None for other mechanisms.

        Raises:
            InvalidConfig: a reference of the settings cannot be resolved.
        """
        if self.mechanism != OAUTHBEARER:
            return None
        jaas = dict(self.options).get("sasl_jaas_config", "")
        found = _oauth_options(looked_up(jaas) if is_reference(jaas) else jaas) if jaas else {}
        own = {name: self._get(name) for name in OAUTH_NAMES if name != PROVIDER}
        values = {
            name: own[name] or looked_up(found.get(name, "")) for name in OAUTH_NAMES if name in own
        }
        return TokenSource(
            self.token_provider,
            values[ENDPOINT_URL],
            values[CLIENT_ID],
            values[CLIENT_SECRET],
            values[SCOPE],
        )

    def exchange(self) -> SaslExchange:
        """Exchange by name and password. Raises InvalidConfig: a reference cannot be resolved."""
        username, password, is_token = self.credentials()
        return SaslExchange(
            self.mechanism,
            username,
            password,
            nonce=secrets.token_urlsafe(NONCE_BYTES),
            is_token=is_token,
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """TLS context; None: this client does not use TLS.

        Raises:
            InvalidConfig: a file does not exist, or has no valid certificates or key.
        """
        if not self.is_tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it has no trusted certificates yet
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self._get("ssl_endpoint_identification_algorithm", "https") != ""
        location = self._get("ssl_truststore_location")
        certificates = self._get("ssl_truststore_certificates")
        try:
            if location or certificates:
                context.load_verify_locations(
                    location or None, cadata=pem_in_lines(certificates) or None
                )
            else:
                context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise InvalidConfig(
                f"ssl_truststore_location: {location or 'the given text'} cannot be used "
                f"({_words(error)}); it has to hold certificates, in PEM"
            ) from None
        self._load_own(context)
        return context

    def _load_own(self, context: ssl.SSLContext) -> None:
        location = self._get("ssl_keystore_location")
        key, chain = self._get("ssl_keystore_key"), self._get("ssl_keystore_certificate_chain")
        if not location and not key:
            return
        password = self._get("ssl_key_password")
        # Without a function OpenSSL would ask for a missing password at the terminal.
        try:
            if location:
                context.load_cert_chain(location, password=lambda: password)
            else:
                _load_texts(context, key + "\n" + chain, password)
        except (OSError, ValueError) as error:
            raise InvalidConfig(
                f"ssl_keystore_location: {location or 'the given text'} cannot be used "
                f"({_words(error)}); it has to hold the private key and its certificate chain, in "
                "PEM; ssl_key_password is the key's"
            ) from None

    # --- checks ----------------------------------------------------------------------------------

    def _check_ssl(self, given: Mapping[str, str]) -> None:
        named = sorted(name for name in given if name.startswith("ssl_"))
        if named and not self.is_tls:
            raise InvalidConfig(
                f"{named[0]} has no effect with security_protocol={self.protocol}: use SSL or "
                "SASL_SSL"
            )
        for name in ("ssl_truststore_type", "ssl_keystore_type"):
            if given.get(name, "PEM") != "PEM":
                raise InvalidConfig(f"{name}={given[name]}: use PEM; Java's formats are not read")
        if given.get("ssl_endpoint_identification_algorithm", "https").lower() not in ("https", ""):
            raise InvalidConfig('ssl_endpoint_identification_algorithm: use "https" or ""')
        for name, other in (
            ("ssl_truststore_location", "ssl_truststore_certificates"),
            ("ssl_keystore_location", "ssl_keystore_key"),
        ):
            if name in given and other in given:
                raise InvalidConfig(f"{name} and {other}: give one of them")
        if ("ssl_keystore_key" in given) != ("ssl_keystore_certificate_chain" in given):
            raise InvalidConfig("ssl_keystore_key and ssl_keystore_certificate_chain: give both")

    def _check_sasl(self, given: Mapping[str, str]) -> None:
        named = sorted(name for name in given if name.startswith("sasl_"))
        if named and not self.is_sasl:
            raise InvalidConfig(
                f"{named[0]} has no effect with security_protocol={self.protocol}: use SASL_SSL "
                "or SASL_PLAINTEXT"
            )
        if not self.is_sasl:
            return
        if self.mechanism not in MECHANISMS:
            raise InvalidConfig(
                f"sasl_mechanism={self.mechanism!r}: use one of {', '.join(MECHANISMS)}"
            )
        if self.mechanism == OAUTHBEARER:
            self._check_oauth(given)
            return
        foreign = sorted(name for name in given if name in OAUTH_NAMES)
        if foreign:
            raise InvalidConfig(
                f"{foreign[0]} has no effect with sasl_mechanism={self.mechanism}: use OAUTHBEARER"
            )
        self._check_credentials(given)

    def _check_oauth(self, given: Mapping[str, str]) -> None:
        for name in ("sasl_username", "sasl_password"):
            if name in given:
                raise InvalidConfig(f"{name} has no effect with sasl_mechanism={OAUTHBEARER}")
        url, jaas = given.get(ENDPOINT_URL, ""), given.get("sasl_jaas_config", "")
        if (PROVIDER in given) == bool(url):
            raise InvalidConfig(f"{OAUTHBEARER} needs {PROVIDER} or {ENDPOINT_URL}, one of them")
        is_known = not jaas or not is_reference(jaas)
        names = {**given, **(_oauth_options(jaas) if jaas and is_known else {})}
        if is_reference(url):
            return
        scheme = url.partition(":")[0].lower()
        if url and scheme not in SCHEMES:
            raise InvalidConfig(f"{ENDPOINT_URL}: use a file:, http: or https: URL")
        if scheme in ("http", "https"):
            if is_known and not (names.get(CLIENT_ID) and names.get(CLIENT_SECRET)):
                raise InvalidConfig(f"{ENDPOINT_URL}: an endpoint needs {CLIENT_ID} and its secret")
            return
        unused = next((name for name in (CLIENT_ID, CLIENT_SECRET, SCOPE) if name in names), None)
        if unused:
            raise InvalidConfig(f"{unused} has no effect without an http: or https: {ENDPOINT_URL}")

    def _check_credentials(self, given: Mapping[str, str]) -> None:
        """Check credentials without resolving references, which may be on another machine."""
        names = given
        if jaas := given.get("sasl_jaas_config"):
            if "sasl_username" in given or "sasl_password" in given:
                raise InvalidConfig("sasl_jaas_config and sasl_username: give one of them")
            if is_reference(jaas):
                return
            names = {f"sasl_{name}": value for name, value in _jaas_options(jaas).items()}
        if not names.get("sasl_username") or not names.get("sasl_password"):
            raise InvalidConfig(f"{self.mechanism} needs sasl_username and sasl_password")

    def credentials(self) -> tuple[str, str, bool]:
        """Name, password, and whether they are those of a delegation token.

        Raises:
            InvalidConfig: a reference of the settings cannot be resolved.
        """
        jaas = dict(self.options).get("sasl_jaas_config", "")
        if not jaas:
            return self._get("sasl_username"), self._get("sasl_password"), False
        # The whole text, or values in it, may be references: their content may have any characters.
        found = _jaas_options(looked_up(jaas) if is_reference(jaas) else jaas)
        values = {name: looked_up(value) for name, value in found.items()}
        name, password = values.get("username", ""), values.get("password", "")
        if not name or not password:
            raise InvalidConfig("sasl_jaas_config: it needs a username and a password")
        return name, password, values.get(TOKEN_AUTH, "").lower() == "true"

    def _get(self, name: str, default: str = "") -> str:
        """Value of a setting. Raises InvalidConfig: its reference cannot be resolved."""
        return looked_up(dict(self.options).get(name, default))


def check_names(
    options: Mapping[str, object],
    of: Callable[..., object] | None = None,
    others: Collection[str] = (),
) -> None:
    """Check the names of a client's remaining keyword arguments.

    of: the client, whose own arguments may have been meant. others: further names that are allowed.

    Raises:
        TypeError: a name that is none of SecurityOptions, nor of the others.
    """
    for name in options:
        if name not in NAMES and name not in others:
            raise TypeError(f"unexpected keyword argument {name!r}{_hint(name, of, others)}")


def _hint(name: str, of: Callable[..., object] | None, others: Collection[str]) -> str:
    """Hint at the option that `name` may stand for; empty if none is similar."""
    parameters = {} if of is None else inspect.signature(of).parameters
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = [each for each, parameter in parameters.items() if parameter.kind not in variadic]
    if name in ("topic", "topics") and "topics" in parameters:
        return ": give topics by position, before all keyword arguments"
    meant = NAMES_ELSEWHERE.get(name)
    if meant not in own:
        known = [*own, *sorted(NAMES), *sorted(others)]
        meant = next(iter(difflib.get_close_matches(name, known, 1)), None)
    return "" if meant is None else f": did you mean {meant!r}?"


def given_security(
    options: SecurityOptions, of: Callable[..., object] | None = None
) -> ClientSecurity | None:
    """Checked settings; None: nothing was given, so client_config_file finds them.

    of: the client, for the error of a misspelt name; see check_names.
    """
    if not options:
        return None
    check_names(options, of)
    return ClientSecurity.from_options(options)


def security_of(options: Mapping[str, Any]) -> SecurityOptions:
    """Security settings among other options."""
    found: Any = {name: value for name, value in options.items() if name in NAMES}
    typed: SecurityOptions = found
    return typed


def secrets_in_clear(options: Mapping[str, Any]) -> list[str]:
    """The names of secrets that are given in clear text, not as references."""
    found = []
    for name in SECRETS:
        text = str(options.get(name) or "")
        if name == "sasl_jaas_config" and text and not is_reference(text):
            values = parse_jaas(text).options
            text = values.get("password") or values.get("clientSecret") or ""
        if text and not is_reference(text):
            found.append(name)
    return found


def refuse_secrets_for_actors(options: Mapping[str, Any]) -> None:
    """Raise InvalidConfig for a secret in clear text: Ray keeps actors' arguments as they are, in
    the memory of its head or in a database.
    """
    for secret in secrets_in_clear(options):
        raise InvalidConfig(
            f"{secret}: Ray keeps the arguments of actors in clear text; use a reference that the "
            'actor looks up, "${file:PATH:KEY}" or "${env:NAME}", or name a file with '
            "BRADBURY_CLIENT_CONFIG in the actor's environment"
        )


def as_given(security: ClientSecurity | None) -> SecurityOptions:
    """Options of a Producer, Consumer or Admin for these settings."""
    return {} if security is None else security.as_options()


def looked_up(text: str) -> str:
    """Resolve the references in a text. Raises InvalidConfig: one cannot be."""
    return resolve(text, read=_read_text, environment=os.environ.get)


def _read_text(path: str) -> str:
    return Path(path).read_text()


def _jaas_options(text: str) -> Mapping[str, str]:
    """Raises InvalidConfig: it names another module than Kafka's two, or is invalid."""
    entry = parse_jaas(text)
    if entry.login_module not in JAAS_MODULES:
        raise InvalidConfig(
            f"sasl_jaas_config: use {JAAS_MODULES[0]} or {JAAS_MODULES[1]}, then "
            'required username="..." password="...";'
        )
    return entry.options


def _oauth_options(text: str) -> dict[str, str]:
    """Options by names of settings. Raises InvalidConfig: another module, or unknown option."""
    entry = parse_jaas(text)
    unknown = sorted(name for name in entry.options if name not in JAAS_NAMES)
    if entry.login_module != OAUTH_MODULE or unknown:
        raise InvalidConfig(
            f"sasl_jaas_config: use {OAUTH_MODULE} required, with no options or "
            'clientId="..." clientSecret="..." scope="...";'
        )
    return {JAAS_NAMES[name]: value for name, value in entry.options.items()}


def _load_texts(context: ssl.SSLContext, text: str, password: str) -> None:
    """Load a key by a temporary file that only this user can read: OpenSSL reads files only."""
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(pem_in_lines(text))
        context.load_cert_chain(path, password=lambda: password)
    finally:
        os.unlink(path)


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
