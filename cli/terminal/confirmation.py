"""Confirmation by the user before data is lost."""

from __future__ import annotations

import typer

from .failure import CommandFailed


def confirm(question: str) -> None:
    """Ask a yes/no question. Raises CommandFailed: the answer was no."""
    if not typer.confirm(question, err=True):
        raise CommandFailed("nothing was changed: the answer was no")
