"""A node's key and certificate, on the node: `<data directory>/tls/node.pem`, and its trusted CA.

The key is made on the node and never leaves it: the node sends a signing request to the authority,
and receives a certificate. Until then the key is in a file of its own; then both are written to
node.pem together, so its readers find a matching pair. Runs in a Ray task.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ...actors.ray.secure_folder import AUTHORITY_FILE, CLIENT_FILE, FOLDER, NODE_FILE
from .certificate_authority import NODE_NAME
from .private_file import make_private_folder, write_private

logger = logging.getLogger(__name__)

_NEW_KEY: Final = "node.key.new"
RENEW_DAYS: Final = 120
"""Days before its expiry from which a certificate is replaced (up --secure, NodeCertifier)."""


def request_if_needed(
    data_dir: str,
    hosts: Sequence[str],
    authority: str,
    now: dt.datetime,
    more_data_dirs: Sequence[str] = (),
) -> bytes | None:
    """Make a request for a new certificate of this node, in PEM.

    The data directories become private, if this user owns them: they hold records and SCRAM keys,
    which nobody else may read without a password.

    Args:
        data_dir: data directory of the cluster, on this node.
        more_data_dirs: others of nodes on this machine.
        hosts: names and addresses at which others reach the node.
        authority: the certificate of the cluster's authority, in PEM.

    Returns None if the node has a certificate of this authority, for these hosts, that is valid for
    RENEW_DAYS more.
    """
    for each in (data_dir, *more_data_dirs):
        _make_private_if_own(Path(each))
    folder = Path(data_dir) / FOLDER
    make_private_folder(folder)
    if _is_good(folder, hosts, authority, now):
        return None
    key = ec.generate_private_key(ec.SECP256R1())
    write_private(
        folder / _NEW_KEY,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode(),
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NODE_NAME)])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def _make_private_if_own(directory: Path) -> None:
    """Make a folder private, unless it is root's and written by its group (Kubernetes' fsGroup)."""
    try:
        make_private_folder(directory)
    except PermissionError:
        logger.warning("%s is owned by another user: permissions unchanged", directory)


def install(data_dir: str, certificate: str | None, authority: str, client_settings: str) -> None:
    """Install the certificate, the authority's certificate, and the client file on this node.

    certificate: None: the node keeps the one that it has.
    """
    folder = Path(data_dir) / FOLDER
    write_private(folder / AUTHORITY_FILE, authority)
    if certificate is not None:
        key = (folder / _NEW_KEY).read_text()
        write_private(folder / NODE_FILE, key + certificate)
        (folder / _NEW_KEY).unlink()
    write_private(folder / CLIENT_FILE, client_settings)


def _is_good(folder: Path, hosts: Sequence[str], authority: str, now: dt.datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate((folder / NODE_FILE).read_bytes())
        signer = x509.load_pem_x509_certificate(authority.encode())
        certificate.verify_directly_issued_by(signer)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # noqa: BLE001 -- any invalid certificate is replaced
        return False
    has = {
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    }
    left = certificate.not_valid_after_utc - now
    return left > dt.timedelta(days=RENEW_DAYS) and set(map(_canonical, hosts)) <= has


def _canonical(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host
