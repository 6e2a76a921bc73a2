"""Protocols that the members of a classic group support, and the one they would select.

Invariants: while there are members, at least one protocol is supported by all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

Protocols = tuple[tuple[str, bytes], ...]
"""(assignor name, metadata) in the order of preference; names are distinct."""


class Supporter(Protocol):
    """A member, as the vote for a protocol needs it."""

    protocols: Protocols


class SupportedProtocols:
    """Number of members that support each protocol."""

    def __init__(self) -> None:
        self._supporters: Counter[str] = Counter()
        self._member_count = 0

    def add(self, protocols: Protocols) -> None:
        """Add the protocols of a member."""
        self._supporters.update(name for name, _ in protocols)
        self._member_count += 1

    def remove(self, protocols: Protocols) -> None:
        """Remove the protocols of a member."""
        self._supporters.subtract(name for name, _ in protocols)
        self._supporters += Counter()  # drops the zeros
        self._member_count -= 1

    def clear(self) -> None:
        self._supporters.clear()
        self._member_count = 0

    def supports_any(self, names: Iterable[str]) -> bool:
        """Whether all members support one of these protocols."""
        return any(self._supporters[name] == self._member_count for name in names)

    def select(self, members: Iterable[Supporter]) -> str:
        """Select a protocol: each member votes for its first one that all support; most votes win.

        A tie goes to the protocol that was voted for first.
        """
        known_by_all = {name for name, n in self._supporters.items() if n == self._member_count}
        votes = Counter(
            next(name for name, _ in member.protocols if name in known_by_all) for member in members
        )
        return votes.most_common(1)[0][0]
