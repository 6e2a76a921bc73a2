r"""Lines of java.util.Properties, as in the files that Kafka's clients and tools read.

`#` and `!` begin a comment, a line that ends with `\` goes on in the next, and in a value `\n`,
`\t`, `\r`, `\f` and `\uXXXX` are characters; any other `\` is left out, so `\\` is one. Names and
values are separated by `=` alone: with Java's other separators, the rest of a password that was
broken over two lines would be taken for a setting, and its name be shown in an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.|$)", re.DOTALL)
_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LETTERS: Final = {character: letter for letter, character in _CHARACTERS.items()}
_BLANKS: Final = " \t\f"


def read_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers, without comments; continued lines are joined."""
    line = ""
    for number, raw in enumerate(re.split("\r\n|\r|\n", text), 1):
        part = raw.lstrip(_BLANKS)
        if not line and part[:1] in ("", "#", "!"):
            continue
        line += part
        if (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1]
            continue
        yield number, line
        line = ""
    if line:
        yield number, line


def unescape(value: str) -> str:
    """The text that a value stands for."""
    found = _ESCAPE.sub(lambda match: _character(match[1]), value)
    # A character beyond 16 bits is two escapes.
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def escape(text: str) -> str:
    """The value that stands for a text, in ASCII: Kafka reads its files as ISO 8859-1."""
    return "".join(map(_escaped, text))


def _character(code: str) -> str:
    if len(code) == 5:
        return chr(int(code[1:], 16))
    return _CHARACTERS.get(code, code)


def _escaped(character: str) -> str:
    if character in _LETTERS:
        return f"\\{_LETTERS[character]}"
    if character == "\\":
        return "\\\\"
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
