"""Input of secrets: never on the command line, which every user of the machine can read."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from .failure import CommandFailed, UsageError

STDIN = Path("-")


def read_secret(noun: str, question: str, file: Path | None, *, twice: bool = False) -> str:
    """Read a secret: the first line of `file`, or of stdin, or the answer to a prompt.

    Args:
        noun: name of the secret, for errors.
        question: text of the prompt.
        file: path of the file; "-" for stdin; None: prompt on a terminal, else stdin.
        twice: prompt twice, for a new secret.

    Raises:
        UsageError: the line is empty, or there is no such file.
        CommandFailed: the file is not UTF-8.
        OSError: the file cannot be read.
    """
    if file is None and sys.stdin.isatty():
        answer: str = typer.prompt(question, hide_input=True, confirmation_prompt=twice, err=True)
        return answer
    if file is None or file == STDIN:
        where, line = "the input", sys.stdin.readline()
    else:
        where = str(file)
        if not file.exists():
            raise UsageError(f"{file}: there is no such file")
        try:
            with file.open(encoding="utf-8") as lines:
                line = lines.readline()
        except UnicodeDecodeError:
            raise CommandFailed(f"{file}: a {noun} has to be UTF-8") from None
    secret = line.rstrip("\r\n")
    if not secret:
        raise UsageError(f"{where}: the first line, which has to be the {noun}, is empty")
    return secret
