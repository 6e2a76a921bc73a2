"""Is there every command, and every option, that a page names in its text?

What stands in blocks for a shell is followed in test_pages.
"""

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import bradbury
from bradbury.cli.main import app

ROOT = Path(bradbury.__file__).resolve().parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
NAMED = re.compile(
    r"`(?:\$ )?bradbury (?P<inline>[^`\n]+(?:\n[^`\n]+)?)`"
    r"|^ {4,}(?:\$ )?bradbury (?P<block>(?:[^\n]*\\\n)*[^\n]+)",
    re.MULTILINE,
)
ENDS = ("|", ">", "<", "&&", ";")


@cache
def command_line() -> Any:
    """Made from all its functions, which takes a third of a second."""
    return typer.main.get_command(app)


def options(command: Any) -> set[str]:
    named = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return {*named, "--help", "-h"}


def unknown(text: str) -> str | None:
    """What of a command line there is not. Names of several commands are joined by `|`."""
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    command = command_line()
    while subcommands := getattr(command, "commands", None):
        while words and words[0].startswith("-"):
            if words[0] not in options(command):
                return words[0]
            del words[0]
            if words and words[0] not in subcommands and not words[0].startswith("-"):
                del words[0]  # the option's value
        if not words or words[0] in ENDS:
            return None
        names = words.pop(0).split("|")
        for name in names:
            if name not in subcommands:
                return name
        command = subcommands[names[-1]]
    for word in words:
        if word in ENDS:
            break
        name = word.partition("=")[0]
        if re.match(r"--?[a-z]", word) and name not in options(command):
            return name
    return None


def test_what_is_not_there_is_noticed() -> None:
    assert unknown("topics create flights --partitions 4 | cat --no-such") is None
    assert unknown("topics create|list") is None
    assert unknown("topics make flights") == "make"
    assert unknown("topics create|make flights") == "make"
    assert unknown("topics create flights --partition 4") == "--partition"
    assert unknown("--client-conf x topics list") == "--client-conf"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_there_with_their_options(page: Path) -> None:
    text = page.read_text()
    for found in NAMED.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        named = found["inline"] or found["block"]
        missing = unknown(named.replace("\n", " ") if found["inline"] else named)
        assert missing is None, f"{page.name}:{line}: bradbury {named}: {missing}"
