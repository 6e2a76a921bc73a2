"""Confirmation by the user before data is lost."""

from __future__ import annotations

import sys

import typer

from .failure import CommandFailed


def confirm(question: str) -> None:
    """Ask a yes/no question on the terminal.

    Raises:
        CommandFailed: the answer was no, or there is no terminal to ask on.
    """
    if not sys.stdin.isatty():
        raise CommandFailed(
            f"nothing was changed: there is no terminal to ask on ({question}); add --yes"
        )
    if not typer.confirm(question, err=True):
        raise CommandFailed("nothing was changed: the answer was no")
