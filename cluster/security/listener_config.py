"""Configuration of one listener: its protocol, TLS and SASL, put together from all settings.

A setting of one listener, `listener.name.<listener>.<setting>`, takes precedence (KIP-103).
Source: apache/kafka server/.../config/AbstractKafkaConfig.java, SecurityConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from .sasl.json_web_token import OauthRules


class SecurityProtocol(StrEnum):
    """Security protocol of a listener, under Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS settings in PEM: files, or the text itself (KIP-651). Secrets may be references, see
    secret_reference.

    keystore_location: private key and certificate chain; or keystore_key and certificate_chain.
    truststore_location: certificates trusted to sign those of peers; or truststore_certificates.
    client_auth: none, requested or required.
    """

    keystore_location: str = ""
    keystore_key: str = field(default="", repr=False)
    certificate_chain: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    truststore_location: str = ""
    truststore_certificates: str = field(default="", repr=False)
    client_auth: str = "none"
    versions: frozenset[str] = frozenset(TLS_VERSIONS)
    checks_host: bool = True
    """Whether the host of other nodes is verified (ssl.endpoint.identification.algorithm)."""
    principal_mapping_rules: str = "DEFAULT"

    @property
    def has_truststore(self) -> bool:
        return bool(self.truststore_location or self.truststore_certificates)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the files that are read; they may be replaced while the node runs."""
        return tuple(filter(None, (self.keystore_location, self.truststore_location)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OauthSettings:
    """Rules for accepted OAuth tokens: sasl.oauthbearer.*."""

    jwks_url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    rules: OauthRules


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """Configuration of one listener. port: of the first node of a machine, the others use the
    following ones; 0: any free port.

    jaas: by SASL mechanism, Kafka's sasl.jaas.config; a secret.
    max_reauth_ms: by SASL mechanism, how long an authentication is valid (KIP-368); 0: as long as
    the connection.
    """

    name: str
    protocol: SecurityProtocol
    port: int = 0
    tls: TlsSettings = field(default_factory=TlsSettings)
    mechanisms: tuple[str, ...] = ()
    jaas: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: OauthSettings | None = None
    """OAuth settings, for a listener with OAUTHBEARER."""
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    max_receive_bytes: int = 512 * 1024

    @property
    def authenticates(self) -> bool:
        """Whether a client has to prove who it is."""
        if self.protocol is SecurityProtocol.SSL:
            return self.tls.client_auth == "required"
        return self.protocol.is_sasl


@dataclass(frozen=True, slots=True, kw_only=True)
class InterBrokerConfig:
    """Connections between nodes: the listener they use, and how they authenticate."""

    listener: ListenerConfig
    mechanism: str = ""

    @property
    def jaas(self) -> str:
        return self.listener.jaas.get(self.mechanism, "")
