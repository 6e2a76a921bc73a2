"""A client's security settings as other clients take them: Kafka's, librdkafka's, this package's.

Each form has lines for stdout, and notes on what its client needs that no setting says. A form that
cannot say what the settings ask for is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ...clients.security.client_config_file import (
    CONFIG_PROVIDERS,
    LOGIN_HANDLER,
    OAUTH_HANDLER,
    PROVIDERS,
)
from ...clients.security.java_properties import escape
from ...clients.security.security_options import (
    CLIENT_ID,
    CLIENT_SECRET,
    ENDPOINT_URL,
    JAAS_NAMES,
    OAUTH_MODULE,
    SCOPE,
    ClientSecurity,
    SecurityOptions,
    looked_up,
)
from ...protocol.security.jaas import parse_jaas
from ...protocol.security.pem_text import pem_in_lines
from ...protocol.security.sasl_client import OAUTHBEARER
from ...protocol.security.scram_messages import TOKEN_AUTH
from ...protocol.security.secret_reference import is_reference
from ..terminal.failure import CommandFailed

_WHO: Final = ("sasl_jaas_config", "sasl_username", "sasl_password")
_IN_JAAS: Final = (*_WHO, CLIENT_ID, CLIENT_SECRET, SCOPE)
_LOGIN: Final = "org.apache.kafka.common.security"
_MODULES: Final = {
    "PLAIN": f"{_LOGIN}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_LOGIN}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_LOGIN}.scram.ScramLoginModule",
    OAUTHBEARER: OAUTH_MODULE,
}
_ALLOWED_URLS: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
_LIBRDKAFKA: Final = (
    ("security_protocol", "security.protocol"),
    ("ssl_truststore_location", "ssl.ca.location"),
    ("ssl_truststore_certificates", "ssl.ca.pem"),
    ("ssl_keystore_location", "ssl.certificate.location"),
    ("ssl_keystore_location", "ssl.key.location"),  # our file has both
    ("ssl_keystore_certificate_chain", "ssl.certificate.pem"),
    ("ssl_keystore_key", "ssl.key.pem"),
    ("ssl_key_password", "ssl.key.password"),
    ("sasl_mechanism", "sasl.mechanism"),
)


class Printed(NamedTuple):
    """Lines of a form, and notes for its reader."""

    lines: list[str]
    notes: list[str]


def as_properties(servers: str, options: SecurityOptions) -> Printed:
    """For Kafka's tools and Java clients, and for `bradbury --client-config`.

    Raises:
        InvalidConfig: a reference to a user's name or password cannot be resolved here.
    """
    lines, notes = [f"# bootstrap.servers={servers}"], []
    settings: dict[str, Any] = {
        name: value for name, value in options.items() if name not in _IN_JAAS
    }
    for store in ("ssl_truststore", "ssl_keystore"):
        # Kafka's default is JKS; these files are PEM, whether or not that was said.
        if any(name.startswith(f"{store}_") for name in settings):
            settings[f"{store}_type"] = "PEM"
    mechanism = options.get("sasl_mechanism", "")
    if mechanism:
        settings["sasl_jaas_config"] = _jaas(options, mechanism)
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    if mechanism == OAUTHBEARER:
        named[LOGIN_HANDLER] = OAUTH_HANDLER
        url = options.get(ENDPOINT_URL, "")
        notes.append(
            f"Kafka's clients 4.0 and newer need the Java option {_ALLOWED_URLS}={url}; add it, "
            "for Kafka's tools in KAFKA_OPTS"
        )
    providers = _providers(named)
    lines += [f"{name}={escape(value)}" for name, value in (*named.items(), *providers)]
    return Printed(lines, notes)


def as_librdkafka(servers: str, options: SecurityOptions) -> Printed:
    """For confluent-kafka, kcat and others, which look up no references.

    Raises:
        CommandFailed: librdkafka cannot log in by these settings.
        InvalidConfig: a reference cannot be resolved here.
    """
    given: dict[str, Any] = {**options}
    settings, notes = {"bootstrap.servers": servers}, []
    for name, theirs in _LIBRDKAFKA:
        if name in given:
            settings[theirs] = looked_up(str(given[name]))
    if "ssl_endpoint_identification_algorithm" in given:
        algorithm = looked_up(given["ssl_endpoint_identification_algorithm"])
        settings["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    texts = [name for name in settings if name.endswith(".pem")]
    for name in texts:
        # In one line with spaces librdkafka would refuse it.
        in_lines = pem_in_lines(settings[name]).strip()
        settings[name] = in_lines.replace("\r", "").replace("\n", r"\n")
    if texts:
        notes.append(
            rf"each \n in {', '.join(texts)} is a line break: replace it where a program reads "
            "these lines, as librdkafka does not; kcat needs files, ssl.ca.location, "
            "ssl.certificate.location and ssl.key.location"
        )
    _add_login(settings, notes, ClientSecurity.from_options(options))
    return Printed([f"{name}={value}" for name, value in settings.items()], notes)


def as_python(servers: str, options: SecurityOptions) -> Printed:
    """For this package's clients, which look up references themselves."""
    settings: dict[str, Any] = {**options}
    jaas = options.get("sasl_jaas_config", "")
    if jaas and options.get("sasl_mechanism") != OAUTHBEARER and not is_reference(jaas):
        found = parse_jaas(jaas).options
        if TOKEN_AUTH not in found:
            del settings["sasl_jaas_config"]
            settings["sasl_username"] = found["username"]
            settings["sasl_password"] = found["password"]
    arguments = [
        f"    {servers!r},",
        *(f"    {name}={value!r}," for name, value in settings.items()),
    ]
    return Printed(["bradbury.Producer(", *arguments, ")"], [])


def _jaas(options: SecurityOptions, mechanism: str) -> str:
    """The login module with its options."""
    given = options.get("sasl_jaas_config", "")
    if given and (mechanism != OAUTHBEARER or is_reference(given)):
        return given
    values = dict(parse_jaas(given).options) if given else {}
    if mechanism == OAUTHBEARER:
        # As its options, which Kafka's clients know for longer than the settings of 4.1.
        own: dict[str, Any] = {**options}
        values |= {jaas: own[name] for jaas, name in JAAS_NAMES.items() if name in own}
    else:
        values["username"] = options.get("sasl_username", "")
        values["password"] = options.get("sasl_password", "")
    # Kafka's clients put what a reference stands for into this text as it is, quotes and all.
    said = "".join(f" {name}={_quoted(looked_up(value))}" for name, value in values.items())
    return f"{_MODULES[mechanism]} required{said};"


def _providers(settings: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Settings with which Kafka's clients look up references, where there are any."""
    used = [kind for kind in PROVIDERS if any(f"${{{kind}:" in each for each in settings.values())]
    if used:
        yield CONFIG_PROVIDERS, ",".join(used)
        for kind in used:
            yield f"{CONFIG_PROVIDERS}.{kind}.class", PROVIDERS[kind]


def _add_login(settings: dict[str, str], notes: list[str], security: ClientSecurity) -> None:
    source = security.oauth()
    if source is None:
        if not security.is_sasl:
            return
        name, password, is_token = security.credentials()
        if is_token:
            raise CommandFailed(
                f"--form librdkafka: librdkafka cannot log in by a delegation token ({TOKEN_AUTH}="
                "true in sasl.jaas.config); use settings with a user and a password"
            )
        settings["sasl.username"], settings["sasl.password"] = name, password
    elif source.url.lower().startswith("file:"):
        notes.append(
            f"librdkafka does not read the token of {source.url}: set a callback that returns it, "
            "in confluent-kafka oauth_cb"
        )
    else:
        settings["sasl.oauthbearer.method"] = "oidc"
        settings["sasl.oauthbearer.token.endpoint.url"] = source.url
        settings["sasl.oauthbearer.client.id"] = source.client_id
        settings["sasl.oauthbearer.client.secret"] = source.client_secret
        if source.scope:
            settings["sasl.oauthbearer.scope"] = source.scope


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
