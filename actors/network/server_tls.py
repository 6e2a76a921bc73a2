"""The TLS context of a listener, from Kafka's `ssl.*` settings. PEM files only (KIP-651)."""

from __future__ import annotations

import ssl
from typing import NoReturn

from ...cluster.broker_config import BrokerConfig
from ...protocol.errors import InvalidConfig

_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(config: BrokerConfig) -> ssl.SSLContext:
    """Reads the files.

    Raises:
        InvalidConfig: a file is not there, not PEM, or its key is of another certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    protocols = config.tls_protocols()
    context.minimum_version = (
        ssl.TLSVersion.TLSv1_2 if "TLSv1.2" in protocols else ssl.TLSVersion.TLSv1_3
    )
    context.maximum_version = (
        ssl.TLSVersion.TLSv1_3 if "TLSv1.3" in protocols else ssl.TLSVersion.TLSv1_2
    )
    # Who may begin a new handshake at will makes us do the costly half of it again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    keystore = config.ssl_keystore_location
    try:
        context.load_cert_chain(keystore, password=_refuse_password)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(
            f"ssl.keystore.location: {keystore} cannot be used ({error.strerror or error}); it has "
            "to hold the private key and its certificate chain, in PEM"
        ) from None
    context.verify_mode = _CLIENT_AUTH[config.ssl_client_auth]
    if config.ssl_truststore_location:
        try:
            context.load_verify_locations(config.ssl_truststore_location)
        except (OSError, ssl.SSLError) as error:
            raise InvalidConfig(
                f"ssl.truststore.location: {config.ssl_truststore_location} cannot be used "
                f"({error.strerror or error}); it has to hold certificates, in PEM"
            ) from None
    return context


def _refuse_password() -> NoReturn:
    """Without this, OpenSSL asks at the terminal."""
    raise InvalidConfig(
        "ssl.keystore.location: the key is encrypted, and there is no ssl.key.password yet; "
        "give a key without a password in a file that only the broker's user can read"
    )
