"""ssl.principal.mapping.rules: from a certificate's subject to a short name (KIP-371, KIP-409).

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,RULE:^CN=([^,]+).*$/$1/,DEFAULT

The first rule whose pattern matches the whole subject applies; DEFAULT leaves the subject as it is.
Subjects without a matching rule are rejected. Source: apache/kafka SslPrincipalMapper.java.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ...protocol.errors import InvalidConfig

_RULE: Final = re.compile(r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?)")
_GROUP: Final = re.compile(r"\$(\d)")
MAX_SUBJECT: Final = 4096
"""Longest subject that is matched: patterns come from an operator, subjects from a client."""


class NoRuleApplies(Exception):
    """No rule matches a subject; the message is one line for the log."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def name(self, match: re.Match[str]) -> str:
        """Name that the rule gives to a matched subject."""
        name = _GROUP.sub(lambda group: match[int(group[1])] or "", self.replacement)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


class PrincipalMapping:
    """List of mapping rules. Raises InvalidConfig: the text is not a list of rules."""

    def __init__(self, rules: str) -> None:
        self._rules = _parse(rules or "DEFAULT")

    def name_of(self, subject: str) -> str:
        """Name for a subject. `subject`: as RFC 2253 writes it, e.g. `CN=alice,OU=etl`. Raises
        NoRuleApplies.
        """
        for rule in self._rules:
            if rule.pattern is None:
                return subject
            match = rule.pattern.fullmatch(subject) if len(subject) <= MAX_SUBJECT else None
            if match is None:
                continue
            return rule.name(match)
        raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules applies to {subject[:200]!r}")


def _parse(text: str) -> list[_Rule]:
    rules = []
    position = 0
    while True:
        match = _RULE.match(text, position)
        if match is None:
            raise InvalidConfig(
                f"ssl.principal.mapping.rules: {text[position:]!r} is not a rule; "
                "RULE:pattern/replacement/[LU] and DEFAULT are"
            )
        rules.append(_rule(match))
        position = match.end()
        if position == len(text):
            return rules
        separator = re.compile(r"\s*,\s*").match(text, position)
        if separator is None:
            raise InvalidConfig(
                f"ssl.principal.mapping.rules: expected a comma before {text[position:]!r}"
            )
        position = separator.end()


def _rule(match: re.Match[str]) -> _Rule:
    if match[1]:
        return _Rule(None, "", "")
    try:
        pattern = re.compile(match[2])
    except re.error as error:
        raise InvalidConfig(
            f"ssl.principal.mapping.rules: {match[2]!r} is not a regular expression ({error})"
        ) from None
    groups = [int(number) for number in _GROUP.findall(match[4])]
    if groups and max(groups) > pattern.groups:
        raise InvalidConfig(
            f"ssl.principal.mapping.rules: {match[4]!r} names a group that {match[2]!r} has not"
        )
    return _Rule(pattern, match[4], match[6])
