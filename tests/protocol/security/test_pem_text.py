"""Is PEM in one line, as Kafka takes it, what OpenSSL reads?"""

import ssl
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from bradbury.protocol.security.pem_text import pem_in_lines
from bradbury.tests.support.certificates import CertificateAuthority

WHITE = st.text(" \t\r\n", min_size=1, max_size=3)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A key and its certificate, as a file has them."""
    authority = CertificateAuthority(tmp_path_factory.mktemp("certificates"))
    return Path(authority.sign("broker")).read_text()


def in_one_line(pem: str, white: str = " ") -> str:
    """Every line break is `white`."""
    return white.join(pem.split("\n"))


def test_a_file_remains_as_it_is(chain: str) -> None:
    assert pem_in_lines(chain).split() == chain.split()
    assert set(map(len, pem_in_lines(chain).splitlines())) <= {*range(1, 65), 0}


@given(white=WHITE)
def test_all_white_space_between_the_parts_will_do(chain: str, white: str) -> None:
    read = pem_in_lines(in_one_line(chain, white))
    assert read.split() == chain.split()


def test_openssl_reads_what_it_refused(chain: str, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = tmp_path / "chain.pem"
    path.write_text(in_one_line(chain))
    with pytest.raises(ssl.SSLError):
        context.load_cert_chain(path)
    path.write_text(pem_in_lines(in_one_line(chain)))
    context.load_cert_chain(path)


def test_a_block_with_headers_and_other_text_remain() -> None:
    legacy = (
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n"
        "AAAA\n-----END RSA PRIVATE KEY-----\n"
    )
    assert pem_in_lines(legacy) == legacy
    assert pem_in_lines("no PEM") == "no PEM"
