"""Can the programs of the pages be pasted at Python's prompt, not only be run as a file?"""

from __future__ import annotations

import re
from codeop import CommandCompiler
from pathlib import Path

import pytest

import bradbury
from bradbury.tests.docs.page_runner import blocks

ROOT = Path(bradbury.__file__).resolve().parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
EMPTY_WITHIN_A_BLOCK = re.compile(r"\n(?:[ \t]*\n)+(?=[ \t])")


def refused_lines(source: str) -> list[str]:
    """What the prompt answers with a SyntaxError, line by line.

    Empty lines within a function or class are left out, as the README says: the prompt of Python
    3.11 and 3.12 would take them for its end.
    """
    compile_command = CommandCompiler()
    refused: list[str] = []
    typed = ""
    for line in [*EMPTY_WITHIN_A_BLOCK.sub("\n", source).splitlines(), ""]:
        typed += line + "\n"
        try:
            if compile_command(typed.rstrip("\n") if line else typed, symbol="single") is not None:
                typed = ""
        except SyntaxError as error:
            refused.append(f"{line}: {error.msg}")
            typed = ""
    return refused


def test_a_statement_right_behind_an_indented_one_is_seen() -> None:
    [refused] = refused_lines("with x:\n    y\nz\n")
    assert refused.startswith("z: ")  # the message is another one in some versions of Python
    assert refused_lines("with x:\n    y\n\nz\n") == []
    assert refused_lines("class A:\n    b = 1\n\n    c = 2\n") == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_can_be_typed_at_the_prompt(page: Path) -> None:
    refused = {
        f"{page.name}:{block.line}": lines
        for block in blocks(page)
        if block.language == "python" and not block.is_left_out
        if (lines := refused_lines(block.source))
    }
    assert refused == {}
