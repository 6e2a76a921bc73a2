"""Settings of listeners, TLS and SASL, under Kafka's own names.

One field per setting that applies to all listeners; settings of a single listener,
`listener.name.<listener>.<setting>`, are in `overrides`. `listener_configs` has the effective
configuration of each listener. The settings are given at a cluster's start and cannot be changed
while brokers run; the content of the files that they name can. The limits of connections of a
listener, which can be changed, are in handlers/ports/server_config, beside those of the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

from ...protocol.config_key import (
    DAY_MS,
    Config,
    ConfigKey,
    ConfigType,
    integer,
    keys_of,
    long,
    password,
    string,
    word_list,
)
from ...protocol.errors import InvalidConfig
from .advertised_listeners import AdvertisedListener, parse_advertised
from .listener_config import (
    TLS_VERSIONS,
    InterBrokerConfig,
    ListenerConfig,
    OauthSettings,
    SecurityProtocol,
    TlsSettings,
)
from .principal_mapping import PrincipalMapping
from .sasl.json_web_token import OauthRules

OAUTHBEARER: Final = "OAUTHBEARER"
OF_PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (*OF_PASSWORDS, OAUTHBEARER)
STORES: Final = ("JKS", "PKCS12", "PEM")
OF_A_LISTENER: Final = "listener.name."
_LISTENER: Final = re.compile(r"([A-Za-z0-9_-]+)://([^:/]*):(\d{1,5})")
_JAAS: Final = "sasl.jaas.config"
_REAUTH: Final = "connections.max.reauth.ms"
LIMITS: Final = ("max.connections", "max.connection.creation.rate")
"""Limits of a node that a listener can have for itself, at run time, too."""
_EVERY_PROTOCOL: Final = ",".join(f"{each}:{each}" for each in SecurityProtocol)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_PER_LISTENER: Final = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.principal.mapping.rules",
        "sasl.enabled.mechanisms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.server.max.receive.size",
        _REAUTH,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig(Config):
    """Settings of listeners, TLS and SASL. Defaults are Kafka 4.1's, except the mechanisms: there
    is no GSSAPI.
    """

    kind: ClassVar[str] = "broker"

    listeners: str = string(
        "PLAINTEXT://:0",
        "Listeners of a node, `NAME://:port`, separated by commas. The host is given where the "
        "cluster is started, and so is the port of the first; of the others a port is that of the "
        "first node of a machine, the next nodes take the next ones. 0: any free port.",
    )
    advertised_listeners: str = string(
        "",
        "Where clients and other nodes are told that listeners are, `NAME://host:port`, if that is "
        "elsewhere; a listener that is left out is told to nobody. Empty: where they are. Without "
        "a host it is the node's own. A port is that of the first node of a machine: each node "
        "adds what it adds to the ports of `listeners`; 0: the one that is bound. Host and port "
        "may be references (`${env:NAME}`, `${file:path:key}`), which each node looks up.",
    )
    listener_security_protocol_map: str = string(
        _EVERY_PROTOCOL,
        "Protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    inter_broker_listener_name: str = string(
        "",
        "The listener that nodes use among each other. Empty: the one whose protocol is "
        "security.inter.broker.protocol, or else the only one.",
    )
    security_inter_broker_protocol: str = string(
        "PLAINTEXT",
        "Listener that nodes use among each other, by its protocol.",
        choices=tuple(SecurityProtocol),
    )
    ssl_keystore_type: str = string(
        "JKS",
        "Format of the key store; PEM for a TLS listener, as Java's formats are not supported.",
        choices=STORES,
    )
    ssl_keystore_location: str = string(
        "",
        "A PEM file with the private key and its certificate chain. A new one at its place is read "
        "while the node runs.",
    )
    ssl_keystore_key: str = password("The private key itself, as PEM, instead of a file.")
    ssl_keystore_certificate_chain: str = password(
        "The certificate chain of the private key, as PEM."
    )
    ssl_key_password: str = password("Password of the private key.")
    ssl_truststore_type: str = string(
        "JKS", "Format of the trust store; must be PEM.", choices=STORES
    )
    ssl_truststore_location: str = string(
        "",
        "A PEM file with the certificates that may have signed those of clients and of other "
        "nodes.",
    )
    ssl_truststore_certificates: str = password(
        "The trusted certificates themselves, as PEM, instead of a file."
    )
    ssl_client_auth: str = string(
        "none",
        "Whether clients of SSL listeners are asked for a certificate. The subject of one that is "
        "accepted is the client's principal. For SASL_SSL only if said of that listener.",
        choices=("none", "requested", "required"),
    )
    ssl_enabled_protocols: str = word_list(
        ",".join(TLS_VERSIONS), "Versions of TLS that are spoken.", choices=TLS_VERSIONS
    )
    ssl_endpoint_identification_algorithm: str = string(
        "https",
        "Whether nodes that connect to others look for their host in the certificate: https, or "
        "nothing.",
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT", "Rules that map a certificate's subject to the name of a principal; see KIP-371."
    )
    sasl_enabled_mechanisms: str = word_list(
        "",
        "SASL mechanisms of the SASL listeners. Kafka's default, GSSAPI, is not there.",
        choices=MECHANISMS,
        may_be_empty=True,
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        "",
        "The mechanism by which nodes prove to each other who they are, where the listener between "
        "them is a SASL one.",
        choices=("", *OF_PASSWORDS),
    )
    sasl_server_max_receive_size: int = integer(
        512 * 1024, 1, "The most bytes of a SASL token before a client is known."
    )
    sasl_oauthbearer_jwks_endpoint_url: str = string(
        "",
        "URL (file:, http: or https:) of the JSON Web Key Set with the keys that sign "
        "OAUTHBEARER tokens.",
    )
    sasl_oauthbearer_expected_audience: str = word_list(
        "", "Accepted audiences of a token; empty: a token must have no audience."
    )
    sasl_oauthbearer_expected_issuer: str = string("", "Required issuer of a token; empty: any.")
    sasl_oauthbearer_sub_claim_name: str = string(
        "sub", "Claim of a token that has the name of the principal."
    )
    sasl_oauthbearer_scope_claim_name: str = string(
        "scope", "Claim of a token that has its scopes."
    )
    sasl_oauthbearer_clock_skew_seconds: int = integer(
        30, 0, "Accepted difference between the clocks of issuer and broker, in seconds."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = long(
        3_600_000, 1, "Interval of reading the keys again."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = long(
        100, 1, "Pause before keys that could not be read are read again; doubled each time."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = long(
        10_000, 1, "Longest pause before keys that could not be read are read again."
    )
    connections_max_reauth_ms: int = long(
        0,
        0,
        "Time for which a SASL authentication is valid; a client must authenticate again "
        "before. 0: as long as its connection.",
    )
    connection_failed_authentication_delay_ms: int = integer(
        100, 0, "Delay of the answer to a failed authentication.", highest=10_000
    )
    delegation_token_secret_key: str = password(
        "Secret that signs delegation tokens, the same on all nodes. Empty: delegation tokens"
        " are disabled."
    )
    delegation_token_max_lifetime_ms: int = long(
        7 * DAY_MS, 1, "Longest lifetime of a delegation token, renewals included."
    )
    delegation_token_expiry_time_ms: int = long(
        DAY_MS, 1, "Time after which a delegation token expires unless it is renewed."
    )
    overrides: Mapping[str, str] = field(default_factory=lambda: _NOTHING, repr=False)

    @classmethod
    def from_kafka(cls, values: Mapping[str, Any], *, defaults: Self | None = None) -> Self:
        """Parse settings by Kafka's names, including those with a `listener.name.` prefix."""
        of_listeners = {name: str(values[name]) for name in values if is_of_a_listener(name)}
        for name, value in of_listeners.items():
            listener_key(name).parse(value)
        arguments = cls.parse_all(
            {name: value for name, value in values.items() if name not in of_listeners}
        )
        if of_listeners:
            arguments["overrides"] = MappingProxyType(of_listeners)
        return cls(**arguments) if defaults is None else replace(defaults, **arguments)

    def listener_configs(self) -> tuple[ListenerConfig, ...]:
        """Configurations of the listeners, in the order of `listeners`. Raises InvalidConfig."""
        protocols = self._protocols()
        found: dict[str, ListenerConfig] = {}
        for text in filter(None, (each.strip() for each in self.listeners.split(","))):
            match = _LISTENER.fullmatch(text)
            if match is None or int(match[3]) > 65535:
                raise InvalidConfig(f"listeners: {text!r} is not NAME://:port")
            name = match[1].upper()
            if match[2]:
                raise InvalidConfig(
                    f"listeners: {text!r} names a host; it is given by --host where the cluster is "
                    f"started, so use {name}://:{match[3]}"
                )
            if name not in protocols:
                raise InvalidConfig(
                    f"listeners: {name} has no protocol; set it in listener.security.protocol.map"
                )
            if name in found:
                raise InvalidConfig(f"listeners: there are two of the name {name}")
            found[name] = self._listener(name, protocols[name], int(match[3]), is_first=not found)
        if not found:
            raise InvalidConfig("listeners: a node has at least one")
        return tuple(found.values())

    def advertised(self, text: str | None = None) -> tuple[AdvertisedListener, ...]:
        """Parse advertised.listeners. `text`: value of the setting with its references resolved.
        Raises InvalidConfig.
        """
        names = [each.name for each in self.listener_configs()]
        said = self.advertised_listeners if text is None else text
        advertised = parse_advertised(said, names)
        between = self.inter_broker().listener.name
        if advertised and between not in [each.name for each in advertised]:
            raise InvalidConfig(
                "inter.broker.listener.name must be a listener name defined in "
                f"advertised.listeners, or nodes could not find each other: there is no {between}"
            )
        return advertised

    def inter_broker(self) -> InterBrokerConfig:
        """Configuration of connections between nodes. Raises InvalidConfig: it is not given, or
        that listener does not exist.
        """
        listeners = self.listener_configs()
        name = self.inter_broker_listener_name.upper()
        if name:
            if self.security_inter_broker_protocol != "PLAINTEXT":
                raise InvalidConfig(
                    "only one of inter.broker.listener.name and security.inter.broker.protocol "
                    "can be given"
                )
            chosen = [each for each in listeners if each.name == name]
        else:
            chosen = [
                each for each in listeners if each.protocol == self.security_inter_broker_protocol
            ]
            if not chosen and len(listeners) == 1:
                chosen = [listeners[0]]
        if not chosen:
            raise InvalidConfig(
                "inter.broker.listener.name: it must be one of "
                + ", ".join(each.name for each in listeners)
            )
        mechanism = ""
        if chosen[0].protocol.is_sasl:
            mechanism = self.sasl_mechanism_inter_broker_protocol
            if mechanism not in chosen[0].mechanisms:
                raise InvalidConfig(
                    "sasl.mechanism.inter.broker.protocol must be one of the mechanisms of "
                    f"listener {chosen[0].name}: {', '.join(chosen[0].mechanisms)}"
                )
        return InterBrokerConfig(listener=chosen[0], mechanism=mechanism)

    def check_for_several_nodes(self) -> None:
        """Check what several nodes need. Raises InvalidConfig: nodes could not connect to each
        other.
        """
        between = self.inter_broker()
        listener = between.listener
        prefix = f"listener.name.{listener.name.lower()}."
        if listener.protocol.is_tls and not listener.tls.has_truststore:
            raise InvalidConfig(
                f"nodes connect to each other by listener {listener.name}, which speaks TLS: set "
                f"ssl.truststore.location or {prefix}ssl.truststore.location to the certificates "
                "that they trust"
            )
        if between.mechanism and not between.jaas:
            raise InvalidConfig(
                f"nodes connect to each other by listener {listener.name} with SASL: "
                f"{prefix}{between.mechanism.lower()}.{_JAAS} has to give username and password"
            )

    def check_together(self) -> None:
        listeners = self.listener_configs()
        self.inter_broker()
        self.advertised()
        self._check_unused(listeners)

    # --- one listener ----------------------------------------------------------------------------

    def _protocols(self) -> dict[str, SecurityProtocol]:
        """Security protocols by listener name."""
        found = {}
        for text in filter(
            None, (each.strip() for each in self.listener_security_protocol_map.split(","))
        ):
            name, _, protocol = text.partition(":")
            try:
                found[name.strip().upper()] = SecurityProtocol(protocol.strip().upper())
            except ValueError:
                raise InvalidConfig(
                    f"listener.security.protocol.map: {text!r} is not NAME:PROTOCOL, of which "
                    f"there are {', '.join(SecurityProtocol)}"
                ) from None
        return found

    def _listener(
        self, name: str, protocol: SecurityProtocol, port: int, *, is_first: bool
    ) -> ListenerConfig:
        if is_first and port:
            raise InvalidConfig(
                f"listeners: the port of the first, {name}, is given by --port where the cluster "
                f"is started; use {name}://:0"
            )
        if not protocol.is_tls and not protocol.is_sasl:
            return ListenerConfig(name=name, protocol=protocol, port=port)
        mechanisms: tuple[str, ...] = ()
        if protocol.is_sasl:
            text = self._value(name, "sasl.enabled.mechanisms")
            mechanisms = tuple(filter(None, text.split(",")))
            if not mechanisms:
                raise InvalidConfig(
                    f"listener {name} is {protocol}: set sasl.enabled.mechanisms to one or more "
                    f"of {', '.join(MECHANISMS)}"
                )
        return ListenerConfig(
            name=name,
            protocol=protocol,
            port=port,
            tls=self._tls(name, protocol) if protocol.is_tls else TlsSettings(),
            mechanisms=mechanisms,
            jaas=MappingProxyType({each: self._jaas(name, each) for each in mechanisms}),
            oauth=self._oauth(name) if OAUTHBEARER in mechanisms else None,
            max_reauth_ms=MappingProxyType({each: self._reauth(name, each) for each in mechanisms}),
            max_receive_bytes=int(self._value(name, "sasl.server.max.receive.size")),
        )

    def _tls(self, name: str, protocol: SecurityProtocol) -> TlsSettings:
        def value(setting: str) -> str:
            return self._value(name, setting)

        own_auth = self.overrides.get(f"{OF_A_LISTENER}{name.lower()}.ssl.client.auth")
        settings = TlsSettings(
            keystore_location=value("ssl.keystore.location"),
            keystore_key=value("ssl.keystore.key"),
            certificate_chain=value("ssl.keystore.certificate.chain"),
            key_password=value("ssl.key.password"),
            truststore_location=value("ssl.truststore.location"),
            truststore_certificates=value("ssl.truststore.certificates"),
            client_auth=(own_auth or "none") if protocol.is_sasl else value("ssl.client.auth"),
            versions=frozenset(value("ssl.enabled.protocols").split(",")),
            checks_host=bool(value("ssl.endpoint.identification.algorithm")),
            principal_mapping_rules=value("ssl.principal.mapping.rules"),
        )
        has_key = settings.keystore_location or (
            settings.keystore_key and settings.certificate_chain
        )
        if value("ssl.keystore.type") != "PEM" or not has_key:
            raise InvalidConfig(
                f"listener {name} needs ssl.keystore.type=PEM and ssl.keystore.location, or "
                "ssl.keystore.key and ssl.keystore.certificate.chain"
            )
        if settings.keystore_location and settings.keystore_key:
            raise InvalidConfig(
                f"listener {name}: ssl.keystore.location and ssl.keystore.key are two keys; "
                "give one"
            )
        if settings.has_truststore and value("ssl.truststore.type") != "PEM":
            raise InvalidConfig("a truststore needs ssl.truststore.type=PEM")
        if settings.client_auth != "none" and not settings.has_truststore:
            raise InvalidConfig(
                f"ssl.client.auth={settings.client_auth} needs ssl.truststore.location: "
                "without it, client certificates cannot be verified"
            )
        if value("ssl.endpoint.identification.algorithm") not in ("", "https"):
            raise InvalidConfig("ssl.endpoint.identification.algorithm is https or nothing")
        PrincipalMapping(settings.principal_mapping_rules)
        return settings

    def _oauth(self, name: str) -> OauthSettings:
        def value(setting: str) -> str:
            return self._value(name, f"sasl.oauthbearer.{setting}")

        if not value("jwks.endpoint.url"):
            raise InvalidConfig(
                f"listener {name} accepts SASL OAUTHBEARER: set sasl.oauthbearer.jwks.endpoint.url "
                "to the JSON Web Key Set that verifies tokens"
            )
        return OauthSettings(
            jwks_url=value("jwks.endpoint.url"),
            refresh_ms=self.sasl_oauthbearer_jwks_endpoint_refresh_ms,
            retry_backoff_ms=self.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
            retry_backoff_max_ms=self.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
            rules=OauthRules(
                sub_claim_name=value("sub.claim.name"),
                scope_claim_name=value("scope.claim.name"),
                expected_audience=tuple(filter(None, value("expected.audience").split(","))),
                expected_issuer=value("expected.issuer"),
                clock_skew_seconds=int(value("clock.skew.seconds")),
            ),
        )

    def _jaas(self, name: str, mechanism: str) -> str:
        return self.overrides.get(f"{OF_A_LISTENER}{name.lower()}.{mechanism.lower()}.{_JAAS}", "")

    def _reauth(self, name: str, mechanism: str) -> int:
        own = self.overrides.get(f"{OF_A_LISTENER}{name.lower()}.{mechanism.lower()}.{_REAUTH}")
        return int(self._value(name, _REAUTH) if own is None else own)

    def _value(self, name: str, setting: str) -> str:
        key, field_name = keys_of(type(self))[setting]
        own = self.overrides.get(f"{OF_A_LISTENER}{name.lower()}.{setting}")
        return key.format(getattr(self, field_name) if own is None else key.parse(own))

    # --- settings without effect -----------------------------------------------------------------

    def _check_unused(self, listeners: tuple[ListenerConfig, ...]) -> None:
        """Raise InvalidConfig for settings that have no effect, as they are mistakes."""
        has_tls = any(each.protocol.is_tls for each in listeners)
        has_sasl = any(each.protocol.is_sasl for each in listeners)
        for name, (key, field_name) in keys_of(type(self)).items():
            if getattr(self, field_name) == key.default:
                continue
            if name.startswith("ssl.") and not has_tls:
                raise InvalidConfig(
                    f"{name} has no effect: no listener is SSL or SASL_SSL; see `listeners`"
                )
            if name.startswith(("sasl.", "connections.max.reauth")) and not has_sasl:
                raise InvalidConfig(
                    f"{name} has no effect: no listener is SASL_PLAINTEXT or SASL_SSL; see "
                    "`listeners`"
                )
        if (
            self.ssl_client_auth != "none"
            and has_tls
            and not any(each.protocol is SecurityProtocol.SSL for each in listeners)
        ):
            raise InvalidConfig(
                f"ssl.client.auth={self.ssl_client_auth} has no effect on SASL_SSL; set "
                "listener.name.<listener>.ssl.client.auth"
            )
        if not any("OAUTHBEARER" in each.mechanisms for each in listeners):
            self._refuse_set(
                "sasl.oauthbearer.", "no listener has OAUTHBEARER in sasl.enabled.mechanisms"
            )
        if not self.delegation_token_secret_key:
            self._refuse_set("delegation.token.", "delegation.token.secret.key is not set")
        self.check_listeners(self.overrides)
        names = {each.name.lower(): each for each in listeners}
        for name in self.overrides:
            of, setting = _parts(name)
            protocol, mechanisms = names[of].protocol, names[of].mechanisms
            if setting.startswith("ssl.") and not protocol.is_tls:
                raise InvalidConfig(f"{name} has no effect: the listener is {protocol}")
            if not setting.startswith("ssl.") and not protocol.is_sasl:
                raise InvalidConfig(f"{name} has no effect: the listener is {protocol}")
            mechanism = setting.removesuffix(f".{_REAUTH}")
            if mechanism != setting and mechanism.upper() not in mechanisms:
                raise InvalidConfig(
                    f"{name} has no effect: the mechanisms of listener {names[of].name} are "
                    + ", ".join(mechanisms)
                )

    def check_listeners(self, names: Iterable[str]) -> None:
        """Raise InvalidConfig if one of `names` is a setting of a listener that does not exist."""
        listeners = [each.name for each in self.listener_configs()]
        for name in names:
            if is_of_a_listener(name) and (listener := _parts(name)[0].upper()) not in listeners:
                raise InvalidConfig(
                    f"{name}: there is no listener {listener}; there are {', '.join(listeners)}"
                )

    def _refuse_set(self, prefix: str, why: str) -> None:
        for name, (key, field_name) in keys_of(type(self)).items():
            if name.startswith(prefix) and getattr(self, field_name) != key.default:
                raise InvalidConfig(f"{name} has no effect: {why}")


def is_of_a_listener(name: str) -> bool:
    return name.startswith(OF_A_LISTENER)


def is_listener_limit(name: str) -> bool:
    """Whether it is a limit of connections of one listener."""
    return is_of_a_listener(name) and _parts(name)[1] in LIMITS


def listener_key(name: str) -> ConfigKey:
    """Key of `listener.name.<listener>.<setting>`, for TLS and SASL. It has no default: without it,
    the setting of all listeners holds.

    Raises:
        InvalidConfig: no setting of a single listener.
    """
    setting = _parts(name)[1]
    mechanism, _, rest = setting.partition(".")
    if setting in _PER_LISTENER or (rest == _REAUTH and mechanism.upper() in MECHANISMS):
        known = setting if setting in _PER_LISTENER else rest
        return replace(keys_of(SecurityConfig)[known][0], name=name, default=None)
    if rest == _JAAS and mechanism.upper() in OF_PASSWORDS:
        return ConfigKey(
            name=name,
            type=ConfigType.PASSWORD,
            default=None,
            documentation="Users of PLAIN, and who nodes are to each other.",
        )
    raise InvalidConfig(
        f"{name}: there is no such setting of a single listener; ssl.*, sasl.enabled.mechanisms, "
        f"{_REAUTH}, <mechanism>.{_REAUTH}, <mechanism>.{_JAAS}, {' and '.join(LIMITS)} are"
    )


def wider_names(name: str) -> tuple[str, ...]:
    """Settings that hold where this one of a single listener, or of one of its mechanisms, is not
    given, the nearest first.
    """
    listener, setting = _parts(name)
    if setting in _PER_LISTENER or setting in LIMITS:
        return (setting,)
    rest = setting.partition(".")[2]
    return (f"{OF_A_LISTENER}{listener}.{rest}", rest) if rest == _REAUTH else ()


def _parts(name: str) -> tuple[str, str]:
    """(listener, setting) of `listener.name.<listener>.<setting>`. Raises InvalidConfig: the former
    is not in lower case.
    """
    listener, _, setting = name.removeprefix(OF_A_LISTENER).partition(".")
    if listener != listener.lower():
        raise InvalidConfig(f"{name}: the name of the listener is written in lower case here")
    return listener, setting
