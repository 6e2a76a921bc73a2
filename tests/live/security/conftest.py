"""Clusters of one node whose listener speaks TLS, and who vouches for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import bradbury
from bradbury.actors.network import kernel_tls
from bradbury.tests.support.certificates import CertificateAuthority

BrokerConfig = Callable[..., dict[str, str]]


@pytest.fixture(scope="package")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="package")
def tls(authority: CertificateAuthority) -> BrokerConfig:
    """A listener's settings; more by Kafka's names, with underscores."""

    def config(**more: str) -> dict[str, str]:
        return {
            "listeners": "SSL://:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.sign("broker"),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    return config


@pytest.fixture(scope="module")
def is_in_kernel() -> bool:
    """Whether TLS is left to the kernel; as on this machine."""
    return kernel_tls.is_available()


@pytest.fixture(scope="module")
def cluster(is_in_kernel: bool, tls: BrokerConfig) -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(config=tls()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mutual(
    is_in_kernel: bool, tls: BrokerConfig, authority: CertificateAuthority
) -> Iterator[bradbury.LocalCluster]:
    """One that asks clients for a certificate."""
    config = tls(
        ssl_client_auth="required",
        ssl_truststore_type="PEM",
        ssl_truststore_location=authority.certificate,
    )
    with bradbury.local(config=config) as cluster:
        yield cluster
