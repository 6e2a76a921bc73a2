"""Lines and escapes of Java's properties."""

import pytest
from hypothesis import given, strategies as st

from bradbury.clients.security.java_properties import escape, read_lines, unescape


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (r"a\\b", r"a\b"),
        (r"a\b", "ab"),
        (r"line\nline\ttab\r\f", "line\nline\ttab\r\f"),
        (r"\u00e9\uD83D\uDE00", "é😀"),
        (r"\"\:\=\#", '":=#'),
        ("\\u00e", "u00e"),
    ],
)
def test_escapes_are_javas(value: str, text: str) -> None:
    assert unescape(value) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_escaped_is_one_line_of_ascii_and_comes_back(text: str) -> None:
    value = escape(text)
    assert value.isascii()
    assert value.isprintable()
    assert unescape(value) == text
    if text.strip(" \t\f"):
        assert list(read_lines(f"name={value}\nother=1")) == [(1, f"name={value}"), (2, "other=1")]


def test_a_line_goes_on_after_one_backslash_and_not_after_two() -> None:
    text = "# no \\\na=1\\\\\n  b=2\\\n   # is no comment\n\n ! one\r\nc=3\\"
    assert list(read_lines(text)) == [(2, "a=1\\\\"), (4, "b=2# is no comment"), (7, "c=3")]
