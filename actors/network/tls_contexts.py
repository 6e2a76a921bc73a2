"""TLS contexts from Kafka's `ssl.*` settings: of a listener, and of connections to other nodes.

PEM only (KIP-651). Keys and certificates given as text instead of a file reach OpenSSL through
memory, never through a file that others could read.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ...cluster.security.listener_config import TlsSettings
from ...protocol.errors import InvalidConfig
from ...protocol.security.pem_text import pem_in_lines
from ..security.secret_files import read_secret
from . import kernel_tls

_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Make the context of a listener; reads its files.

    Raises:
        InvalidConfig: a file is missing or not PEM, or key and certificate do not match.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit(context, settings)
    # Each renegotiation costs the server far more CPU than the client, which could repeat it.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if kernel_tls.is_available():
        context.options |= kernel_tls.OP_ENABLE_KTLS
        context.set_ciphers(kernel_tls.CIPHERS)
    _load_key(context, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    _load_trusted(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Make the context of connections to other nodes; this node presents the listener's key.

    Raises:
        InvalidConfig: like server_context.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, settings)
    context.check_hostname = settings.checks_host
    context.verify_mode = ssl.CERT_REQUIRED
    _load_key(context, settings)
    _load_trusted(context, settings)
    return context


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    has_old, has_new = ("TLSv1.2" in settings.versions), ("TLSv1.3" in settings.versions)
    context.minimum_version = ssl.TLSVersion.TLSv1_2 if has_old else ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3 if has_new else ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    name = "ssl.keystore.location" if settings.keystore_location else "ssl.keystore.key"

    def refuse_password() -> NoReturn:
        """Refuse an encrypted key: OpenSSL would ask for its password at the terminal."""
        place = f" in {settings.keystore_location}" if settings.keystore_location else ""
        raise InvalidConfig(
            f"{name}: the key{place} is encrypted, and there is no ssl.key.password; set it"
        )

    password = read_secret(settings.key_password) if settings.key_password else refuse_password
    try:
        if settings.keystore_location:
            context.load_cert_chain(settings.keystore_location, password=password)
            return
        text = read_secret(settings.keystore_key) + "\n" + read_secret(settings.certificate_chain)
        with _in_memory(pem_in_lines(text)) as path:
            context.load_cert_chain(path, password=password)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(
            f"{name}: {settings.keystore_location or 'it'} cannot be used "
            f"({error.strerror or error}); it has to hold the private key and its certificate "
            "chain, in PEM; ssl.key.password is the key's"
        ) from None


def _load_trusted(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if not settings.has_truststore:
        return
    try:
        if settings.truststore_location:
            context.load_verify_locations(settings.truststore_location)
        else:
            text = pem_in_lines(read_secret(settings.truststore_certificates))
            context.load_verify_locations(cadata=text)
    except (OSError, ssl.SSLError, ValueError) as error:
        name, place = "ssl.truststore.certificates", "it"
        if settings.truststore_location:
            name, place = "ssl.truststore.location", settings.truststore_location
        reason = getattr(error, "strerror", None) or error
        raise InvalidConfig(
            f"{name}: {place} cannot be used ({reason}); it has to hold certificates, in PEM"
        ) from None


def file_versions(settings: TlsSettings) -> tuple[object, ...]:
    """Versions of the files: a value that differs once a file, or a link to it, has changed."""
    return tuple(map(_version, settings.files))


def _version(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Path under which this process alone can read `text`."""
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
