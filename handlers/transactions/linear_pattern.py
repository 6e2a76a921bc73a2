r"""Regular expressions that a client may send: matched in time linear in the text.

    a  .  [a-z]  [^a]  \d \w \s \D \W \S  \. \t \x41  (x)  (?:x)  x|y
    x*  x+  x?  x{2}  x{2,}  x{2,5}, each also lazy  ^  $  \A  \z  \b  \B  (?i) first

The rest of RE2's syntax (Unicode and POSIX classes, names, flags) is refused. Python's own matcher
backtracks, for minutes on a pattern like (a+)+b, which would block all other clients; this one
reads the text once and keeps the set of all positions in the pattern that are possible.
Source: github.com/google/re2/wiki/Syntax, which Kafka's brokers use (KIP-1152).
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import NamedTuple

MOST_STEPS = 2_000
"""Maximum steps of a compiled pattern. A repeated part counts as often as it is repeated."""
MOST_REPEATS = 1_000
MOST_NESTED = 50

_WORD = frozenset(string.ascii_letters + string.digits + "_")
_CLASSES = {"d": frozenset(string.digits), "w": _WORD, "s": frozenset(" \t\n\r\f")}
_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


class InvalidPattern(ValueError):
    """The text is not a regular expression, or uses syntax that is not supported here."""


class _Take(NamedTuple):
    """Step that takes one character, if it is accepted."""

    accepts: Callable[[str], bool]


class _Check(NamedTuple):
    """Step that takes no character, and goes on if it holds at this position of the text."""

    holds: Callable[[str, int], bool]


class _Fork(NamedTuple):
    """Step that goes on at each of these distances."""

    ways: tuple[int, ...]


_Step = _Take | _Check | _Fork
_Steps = list[_Step]


class LinearPattern:
    """Compiled pattern. Cost of a match: about 1 us for each character and possible step."""

    def __init__(self, text: str) -> None:
        """Compile a pattern. Raises InvalidPattern."""
        self._steps = _Parser(text).parse()

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole of `text`."""
        places = self._reach({0}, text, 0)
        for position, character in enumerate(text):
            taken = set()
            for place in places:
                step = self._steps[place] if place < len(self._steps) else None
                if isinstance(step, _Take) and step.accepts(character):
                    taken.add(place + 1)
            if not taken:
                return False
            places = self._reach(taken, text, position + 1)
        return len(self._steps) in places

    def _reach(self, places: set[int], text: str, position: int) -> set[int]:
        """`places`, and those that are reached from them without another character."""
        found: set[int] = set()
        unseen = list(places)
        while unseen:
            place = unseen.pop()
            if place in found:
                continue
            found.add(place)
            step = self._steps[place] if place < len(self._steps) else None
            if isinstance(step, _Fork):
                unseen += [place + way for way in step.ways]
            elif isinstance(step, _Check) and step.holds(text, position):
                unseen.append(place + 1)
        return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nested = 0
        self._ignores_case = False

    def parse(self) -> _Steps:
        if self._text.startswith("(?i)"):
            self._at, self._ignores_case = 4, True
        steps = self._alternatives()
        if self._at < len(self._text):
            raise InvalidPattern("there is a ) without a (")
        return steps

    def _next(self) -> str:
        """Take the next character; "" at the end."""
        character = self._text[self._at : self._at + 1]
        self._at += 1
        return character

    def _skip(self, wanted: str) -> bool:
        if self._text.startswith(wanted, self._at):
            self._at += len(wanted)
            return True
        return False

    def _alternatives(self) -> _Steps:
        steps = self._sequence()
        while self._skip("|"):
            other = self._sequence()
            steps = _bounded([_Fork((1, len(steps) + 2)), *steps, _Fork((len(other) + 1,)), *other])
        return steps

    def _sequence(self) -> _Steps:
        steps: _Steps = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            steps = _bounded(steps + self._repeated(self._atom()))
        return steps

    def _atom(self) -> _Steps:
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return [self._take(self._set())]
            case ".":
                return [_Take(lambda one: one != "\n")]
            case "^":
                return [_Check(lambda text, position: position == 0)]
            case "$":
                return [_Check(lambda text, position: position == len(text))]
            case "*" | "+" | "?":
                raise InvalidPattern(f"{character} follows nothing that it could repeat")
            case "\\":
                return self._escaped()
        return [self._take(lambda one: one == character)]

    def _take(self, accepts: Callable[[str], bool]) -> _Take:
        if not self._ignores_case:
            return _Take(accepts)
        return _Take(lambda one: accepts(one) or accepts(one.lower()) or accepts(one.upper()))

    def _group(self) -> _Steps:
        if self._skip("?") and not self._skip(":"):
            raise InvalidPattern("of the groups (?...) only (?:...) is supported")
        self._nested += 1
        if self._nested > MOST_NESTED:
            raise InvalidPattern(f"groups are nested more than {MOST_NESTED} deep")
        steps = self._alternatives()
        if not self._skip(")"):
            raise InvalidPattern("there is a ( without a )")
        self._nested -= 1
        return steps

    def _escaped(self) -> _Steps:
        character = self._next()
        match character:
            case "A":
                return [_Check(lambda text, position: position == 0)]
            case "z":
                return [_Check(lambda text, position: position == len(text))]
            case "b":
                return [_Check(_is_at_word_end)]
            case "B":
                return [_Check(lambda text, position: not _is_at_word_end(text, position))]
        return [self._take(self._class_or_character(character))]

    def _class_or_character(self, character: str) -> Callable[[str], bool]:
        """Matcher of a character for what comes after a backslash."""
        known = _CLASSES.get(character.lower())
        if known is not None:
            is_negated = character.isupper()
            return lambda one: (one in known) is not is_negated
        wanted = self._character(character)
        return lambda one: one == wanted

    def _character(self, character: str) -> str:
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character == "x":
            digits = self._next() + self._next()
            if len(digits) == 2 and all(each in string.hexdigits for each in digits):
                return chr(int(digits, 16))
        elif character and character in string.punctuation:
            return character
        raise InvalidPattern(f"\\{character} is not supported")

    def _set(self) -> Callable[[str], bool]:
        is_negated = self._skip("^")
        parts: list[Callable[[str], bool]] = []
        while not (parts and self._skip("]")):
            first = self._next()
            if not first or (first == "[" and self._text.startswith(":", self._at)):
                raise InvalidPattern("a [ without a ], or a [:name:]")
            if first == "\\":
                first = self._next()
                if first.lower() in _CLASSES:
                    parts.append(self._class_or_character(first))
                    continue
                first = self._character(first)
            last = first
            if self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 :][:1] != "]":
                self._next()
                last = self._next()
                if last == "\\":
                    last = self._character(self._next())
                if not last or last < first:
                    raise InvalidPattern(f"{first}-{last} is not a range")
            parts.append(lambda one, first=first, last=last: first <= one <= last)  # type: ignore[misc]
        return lambda one: any(part(one) for part in parts) is not is_negated

    # --- repetitions -----------------------------------------------------------------------------

    def _repeated(self, steps: _Steps) -> _Steps:
        """Parse a repetition. Lazy or greedy makes no difference to a match of the whole text."""
        if self._skip("*"):
            found = _star(steps)
        elif self._skip("+"):
            found = steps + _star(steps)
        elif self._skip("?"):
            found = _maybe(steps)
        elif (limits := self._limits()) is not None:
            least, most = limits
            if len(steps) * least > MOST_STEPS:
                raise InvalidPattern(f"it has more than {MOST_STEPS} steps")
            found = steps * least
            if most is None:
                found = found + _star(steps)
            else:
                for _ in range(most - least):
                    found = _bounded(found + _maybe(steps))
        else:
            return steps
        self._skip("?")
        if self._text[self._at : self._at + 1] in ("*", "+", "?") and self._at < len(self._text):
            raise InvalidPattern("a repetition follows a repetition")
        return _bounded(found)

    def _limits(self) -> tuple[int, int | None] | None:
        """Limits of {2}, {2,} and {2,5}, or None; another { is an ordinary character."""
        end = self._text.find("}", self._at)
        if not self._text.startswith("{", self._at) or end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not _is_number(least) or (most and not _is_number(most)):
            return None
        self._at = end + 1
        low = int(least)
        high = low if not comma else int(most) if most else None
        if max(low, high or 0) > MOST_REPEATS or (high is not None and high < low):
            raise InvalidPattern(f"{{{least}{comma}{most}}} is not a valid number of repetitions")
        return low, high


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _bounded(steps: _Steps) -> _Steps:
    if len(steps) > MOST_STEPS:
        raise InvalidPattern(f"it has more than {MOST_STEPS} steps")
    return steps


def _star(steps: _Steps) -> _Steps:
    return [_Fork((1, len(steps) + 2)), *steps, _Fork((-len(steps) - 1,))]


def _maybe(steps: _Steps) -> _Steps:
    return [_Fork((1, len(steps) + 1)), *steps]


def _is_at_word_end(text: str, position: int) -> bool:
    before = position > 0 and text[position - 1] in _WORD
    after = position < len(text) and text[position] in _WORD
    return before is not after
