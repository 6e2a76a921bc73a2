"""How does a client find its cluster?"""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from bradbury.clients.wire.bootstrap_servers import find_bootstrap, parse_servers
from bradbury.clients.wire.connection import Address
from bradbury.protocol.errors import ConnectionFailed


def test_the_argument_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", "there:1")
    assert find_bootstrap("here:2") == [Address("here", 2)]
    assert find_bootstrap(None) == [Address("there", 1)]


def test_nothing_said_is_one_line_with_the_remedies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BRADBURY_BOOTSTRAP", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConnectionFailed, match=r"bradbury up.*bootstrap="):
        find_bootstrap(None, namespace="a namespace without a cluster")


def test_lists_ipv6_and_the_usual_port() -> None:
    assert parse_servers(" a:1, [::1]:2 ,c,[fe80::1]") == [
        Address("a", 1),
        Address("::1", 2),
        Address("c", 9092),
        Address("fe80::1", 9092),
    ]
    assert str(Address("::1", 2)) == "[::1]:2"


@pytest.mark.parametrize("servers", [",", "a:b", "a:0", "a:65536", ":9092", "a:-1"])
def test_what_is_no_address_says_so(servers: str) -> None:
    with pytest.raises(ValueError, match="bootstrap="):
        parse_servers(servers)


@given(st.text(max_size=30))
def test_any_text_is_addresses_or_a_value_error(text: str) -> None:
    try:
        addresses = parse_servers(text)
    except ValueError:
        return
    assert all(address.host and 0 < address.port < 65536 for address in addresses)
