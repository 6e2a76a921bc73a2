"""A secret that a command needs: never a word of the command line, which the whole machine sees."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from .failure import CommandFailed, UsageError

STDIN = Path("-")


def read_secret(noun: str, question: str, file: Path | None, *, twice: bool = False) -> str:
    """The first line of `file`; of the input, where it is "-" or no terminal; else asked for.

    Args:
        noun: what it is, for errors.
        question: how a terminal is asked.
        file: where it is.
        twice: it is new, so it is asked for twice.

    Raises:
        UsageError: that line is empty.
        CommandFailed: it is no text.
        OSError: there is no such file.
    """
    if file is None and sys.stdin.isatty():
        answer: str = typer.prompt(question, hide_input=True, confirmation_prompt=twice, err=True)
        return answer
    if file is None or file == STDIN:
        where, line = "the input", sys.stdin.readline()
    else:
        where = str(file)
        try:
            with file.open(encoding="utf-8") as lines:
                line = lines.readline()
        except UnicodeDecodeError:
            raise CommandFailed(f"{file}: a {noun} has to be UTF-8") from None
    secret = line.rstrip("\r\n")
    if not secret:
        raise UsageError(f"{where}: its first line has to be the {noun}, and is empty")
    return secret
