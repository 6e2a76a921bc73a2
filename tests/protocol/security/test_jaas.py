"""sasl.jaas.config as Kafka reads it, and that a password is never in an error."""

import pytest

from bradbury.protocol.errors import InvalidConfig
from bradbury.protocol.security.jaas import parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", {}),
        ('username="alice" password="a b;c=d"', {"username": "alice", "password": "a b;c=d"}),
        ("username='al\"ice'", {"username": 'al"ice'}),
        (r'password="a\"b\\c\td\101"', {"password": 'a"b\\c\tdA'}),
        (
            "username = alice-secret\n\tpassword\n=\n'x'",
            {"username": "alice-secret", "password": "x"},
        ),
        ('a="1" // words\nb="2" /* more\nwords */ c="3"', {"a": "1", "b": "2", "c": "3"}),
        ('password="a//b"', {"password": "a//b"}),
        ('user_alice="1" user_bob="2"', {"user_alice": "1", "user_bob": "2"}),
        ("password='zoë'", {"password": "zoë"}),
        ('a="1" a="2"', {"a": "2"}),
        ("a='1'b='2'", {"a": "1", "b": "2"}),
    ],
)
def test_options_are_words_and_quoted_texts(options: str, expected: dict[str, str]) -> None:
    for flag in ("required", "Sufficient"):
        entry = parse_jaas(f" {MODULE}  {flag} {options};\n")
        assert (entry.login_module, dict(entry.options)) == (MODULE, expected)


def test_the_users_of_a_broker() -> None:
    entry = parse_jaas(f'{MODULE} required username="admin" user_alice="1" user_bob="2";')
    assert entry.users == {"alice": "1", "bob": "2"}
    assert "1" not in repr(entry)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no login module"),
        (";", "name of a login module is missing"),
        (MODULE, "`required` after"),
        (f"{MODULE} password='secret';", "`required` is missing"),
        (f"{MODULE} required password='secret'", "semicolon"),
        (f"{MODULE} required password='secret", "quote is not closed"),
        (f"{MODULE} required password='sec\nret';", "quote is not closed"),
        (f"{MODULE} required 'secret';", "option 1 has no `=value`"),
        (f"{MODULE} required a=1 secret=;", "value of option 2 is missing"),
        (f"{MODULE} required a=1 =secret;", "name of option 2 is missing"),
        (f"{MODULE} required; {MODULE} required;", "more than one"),
    ],
)
def test_what_is_none_is_refused_in_one_line_without_a_password(text: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words) as caught:
        parse_jaas(text)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
