"""Filters of topics for a connector: a regular expression that allows or excludes them.

As in 0.7 the whole name must match, a comma is an "or", and spaces and quotes around the expression
are ignored: "flights, weather.*" is the expression flights|weather.*
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod


class TopicFilter(ABC):
    """Filter of topics. A connector never reads internal topics.

    Raises ValueError: `raw` is not a regular expression.
    pattern: matches the whole names of the topics that are allowed.
    """

    def __init__(self, raw: str) -> None:
        self.regex = raw.strip().replace(",", "|").replace(" ", "").strip("\"'")
        if not self.regex:
            raise ValueError("a topic filter needs a regular expression")
        try:
            re.compile(self.regex)
            self.pattern = re.compile(self._allowing(self.regex))
        except re.error as error:
            raise ValueError(f"{self.regex!r} is not a regular expression here: {error}") from None

    def is_topic_allowed(self, topic: str) -> bool:
        return self.pattern.fullmatch(topic) is not None

    @abstractmethod
    def _allowing(self, regex: str) -> str: ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"


class Whitelist(TopicFilter):
    """Filter that allows the topics that match."""

    def _allowing(self, regex: str) -> str:
        return regex


class Blacklist(TopicFilter):
    """Filter that allows the topics that do not match."""

    def _allowing(self, regex: str) -> str:
        return rf"(?!(?:{regex})\Z).+"
