"""Does a pattern match what Python's own matcher says, and end in time?"""

import re

import pytest
from hypothesis import given, settings, strategies as st

from bradbury.handlers.transactions.linear_pattern import InvalidPattern, LinearPattern

PATTERNS = [
    "",
    "a",
    "ab",
    "a|b",
    "a|",
    "(a|b)*",
    "a*b+c?",
    "a{2}",
    "a{2,}",
    "a{1,3}b",
    "x{0}a",
    "[a-c]+",
    "[^a-c]*",
    "[]a]",
    "[a-]+",
    r"[\d\-]+",
    r"\d+-\w*",
    r"\S\s\D\W",
    ".*-1",
    "^a$",
    r"\Aa\Z".replace("Z", "z"),
    r"a\b.b",
    r"a\Bb",
    "(?:a(b|c)){2}",
    "(?i)aB[c-d]",
    r"\x61\.\t?",
    "a{,2}",
    "a{b",
    "a*?b??",
    "(a+)+b",
    "(a*)*",
]
TEXTS = st.text(alphabet="abcABCD019-_. \t]{,}x", max_size=8)


@pytest.mark.thorough
@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_it_matches_what_pythons_own_does(pattern: str, text: str) -> None:
    theirs = re.compile(pattern.replace(r"\z", r"\Z").replace("a{,2}", r"a\{,2\}"), re.ASCII)
    found = LinearPattern(pattern).matches(text)
    if "$" in pattern or r"\s" in pattern.lower():
        assert found is (theirs.fullmatch(text) is not None) or text.endswith("\n")
    else:
        assert found is (theirs.fullmatch(text) is not None)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=r"ab|()[]{}^$*+?.\d-,1:i", max_size=12))
def test_what_is_no_pattern_is_only_ever_invalid(pattern: str) -> None:
    try:
        ours = LinearPattern(pattern)
    except InvalidPattern:
        return
    for text in ("", "a", "ab1", "aab-"):
        ours.matches(text)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "*",
        "a**",
        "[",
        "[z-a]",
        r"\q",
        "\\",
        "(?=a)",
        "(?P<n>a)",
        "(?a",
        r"\pL",
        "[[:alpha:]]",
        "a{2,1}",
        "a{1001}",
        "(" * 60 + ")" * 60,
        "(a{100}){100}",
        r"\xg1",
    ],
)
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        LinearPattern(pattern)


def test_a_pattern_that_other_matchers_try_for_ever_ends() -> None:
    assert not LinearPattern("(a+)+b").matches("a" * 2_000)
    assert not LinearPattern("(a|a)*(a|a)*(a|a)*b").matches("a" * 2_000)
