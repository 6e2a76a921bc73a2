r"""Kafka's `sasl.jaas.config`: one login module with its options.

    org.apache.kafka.common.security.scram.ScramLoginModule required
        username="alice" password="se;c\"ret";

Words, or texts in single or double quotes with C's escapes; `//`, `/* */` and `/` begin comments.
Errors name a position, never the text, which has passwords. Source: JaasConfig in apache/kafka,
which parses it with Java's StreamTokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ..errors import InvalidConfig

_FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_TOKEN: Final = re.compile(
    r"(?P<space>[\x00-\x20]+|//[^\r\n]*|/\*.*?(?:\*/|\Z)|/[^\r\n]*)"
    r'|"(?P<double>(?:[^"\\\r\n]|\\.)*)(?P<end2>"?)'
    r"|'(?P<single>(?:[^'\\\r\n]|\\.)*)(?P<end1>'?)"
    r"|(?P<sign>[;=])"
    r"|(?P<word>[^\x00-\x20/\"';=]+)",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasEntry:
    """A login module with its options, which are not in the repr: they contain passwords."""

    login_module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """Passwords that a broker accepts with PLAIN, by user name: `user_alice="..."`."""
        return {
            name.removeprefix("user_"): value
            for name, value in self.options.items()
            if name.startswith("user_")
        }


def parse_jaas(text: str) -> JaasEntry:
    """Parse the one login module of a text.

    Raises:
        InvalidConfig: there is no login module, or several. One line of text, without passwords.
    """
    tokens = list(_tokens(text))
    if not tokens:
        raise InvalidConfig("sasl.jaas.config: no login module is named")
    module = _word(tokens, 0, "the name of a login module")
    flag = _word(tokens, 1, "`required` after the login module")
    if flag.upper() not in _FLAGS:
        raise InvalidConfig("sasl.jaas.config: `required` is missing after the login module")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != (";", True):
        number = len(options) + 1
        name = _word(tokens, at, f"the name of option {number}")
        if tokens[at + 1 : at + 2] != [("=", True)]:
            raise InvalidConfig(f"sasl.jaas.config: option {number} has no `=value`")
        options[name] = _word(tokens, at + 2, f"the value of option {number}")
        at += 3
    if at == len(tokens):
        raise InvalidConfig("sasl.jaas.config: it does not end with a semicolon")
    if at + 1 < len(tokens):
        raise InvalidConfig("sasl.jaas.config: more than one login module; give one")
    return JaasEntry(login_module=module, options=options)


def _word(tokens: list[tuple[str, bool]], at: int, what: str) -> str:
    if at >= len(tokens) or tokens[at][1]:
        raise InvalidConfig(f"sasl.jaas.config: {what} is missing")
    return tokens[at][0]


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Tokens, each with whether it is a sign. Every character belongs to one of them."""
    for found in _TOKEN.finditer(text):
        if found["space"] is not None:
            continue
        if found["sign"] is not None:
            yield found["sign"], True
        elif found["word"] is not None:
            yield found["word"], False
        else:
            if not (found["end1"] or found["end2"]):
                # Java's tokenizer ends the text at the end of the line: a password would be cut.
                raise InvalidConfig("sasl.jaas.config: a quote is not closed in its line")
            yield _ESCAPE.sub(_unescape, found["double"] or found["single"] or ""), False


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _ESCAPED.get(code, code)
