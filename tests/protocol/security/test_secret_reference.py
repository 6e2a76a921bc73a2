"""References to secrets: what is put in their place, and what is said when it is not there."""

import pytest

from bradbury.protocol.errors import InvalidConfig
from bradbury.protocol.security.secret_reference import is_reference, resolve

FILES = {"/run/kafka": "name=alice\npassword = p=1\n", "/run/d/password": "in a file\n"}
NAMES = {"PASSWORD": "of the environment", "HOME": "/home/alice"}


def read(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[path]


def looked_up(text: str) -> str:
    return resolve(text, read=read, environment=NAMES.get)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("as it is", "as it is"),
        ("${file:/run/kafka:password}", "p=1"),
        ("${dir:/run/d:password}", "in a file"),
        ("${env:PASSWORD}", "of the environment"),
        ("${env:HOME}/key.pem", "/home/alice/key.pem"),
        ("$PASSWORD ${vault:a:b}", "$PASSWORD ${vault:a:b}"),
    ],
)
def test_what_is_referred_to_takes_its_place(text: str, value: str) -> None:
    assert looked_up(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("${env:NONE}", "no such environment variable"),
        ("${file:/run/kafka:nothing}", "does not set nothing"),
        ("${file:/run/none:a}", "No such file"),
        ("${file:/run/kafka}", "a file and a key"),
    ],
)
def test_what_is_not_there_is_named_by_its_place_alone(text: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why) as caught:
        looked_up(text)
    assert "alice" not in str(caught.value)


def test_a_text_that_is_only_a_reference_holds_no_secret() -> None:
    assert is_reference("${env:PASSWORD}")
    assert not is_reference("a${env:PASSWORD}")
    assert not is_reference("secret")
