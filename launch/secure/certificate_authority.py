"""The certificate authority of one cluster: a key and a certificate in a folder of its user.

It signs certificates of nodes and nothing else. The owner of its key could act as a node: the
key stays on the machine where `bradbury up --secure` was run, readable by its user alone.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...actors.ray.secure_folder import AUTHORITY_FILE
from .private_file import make_private_folder, write_private

KEY_FILE: Final = "ca.key"
NODE_NAME: Final = "bradbury-node"
"""Common name of every node's certificate: nodes are the principal `User:CN=bradbury-node`."""
AUTHORITY_DAYS: Final = 3650
NODE_DAYS: Final = 365
_EARLIER: Final = dt.timedelta(hours=1)
"""How long before now certificates become valid, as clocks of machines differ."""
_USAGE: Final = dict.fromkeys(
    (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    ),
    False,
)


class CertificateAuthority:
    """Certificate authority of a cluster, made by `open`."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def open(cls, folder: Path, name: str, *, now: dt.datetime) -> CertificateAuthority:
        """Open the authority in the folder; make a new one, called `name`, if there is none.

        Raises:
            OSError, ValueError: its files cannot be read, or are not a key and a certificate.
        """
        try:
            key = serialization.load_pem_private_key((folder / KEY_FILE).read_bytes(), None)
        except FileNotFoundError:
            return cls._make(folder, name, now)
        certificate = x509.load_pem_x509_certificate((folder / AUTHORITY_FILE).read_bytes())
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{folder / KEY_FILE} is not a key of this cluster")  # noqa: TRY004 -- a wrong file
        return cls(key, certificate)

    @classmethod
    def _make(cls, folder: Path, name: str, now: dt.datetime) -> CertificateAuthority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _EARLIER)
            .not_valid_after(now + dt.timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(**_USAGE | {"key_cert_sign": True, "crl_sign": True}), critical=True
            )
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        made = cls(key, certificate)
        make_private_folder(folder)
        # The key is written last: a folder without a key has no authority yet.
        write_private(folder / AUTHORITY_FILE, made.certificate)
        write_private(
            folder / KEY_FILE,
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
        )
        return made

    @property
    def certificate(self) -> str:
        """Certificate of the authority, in PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def sign(self, request: bytes, hosts: Iterable[str], *, now: dt.datetime) -> str:
        """Sign the certificate of a node that listens at `hosts` (names or addresses); returns PEM.

        Only the key is taken from the request (PKCS 10); the rest of the certificate is set here.

        Raises:
            ValueError: not a request, or not signed with its own key.
        """
        asked = x509.load_pem_x509_csr(request)
        if not asked.is_signature_valid:
            raise ValueError("the request is not signed with the key that it names")
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NODE_NAME)]))
            .issuer_name(self._certificate.subject)
            .public_key(asked.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _EARLIER)
            .not_valid_after(now + dt.timedelta(days=NODE_DAYS))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**_USAGE | {"digital_signature": True}), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]),
                critical=False,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(asked.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
