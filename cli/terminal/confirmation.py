"""A question before something is lost."""

from __future__ import annotations

import typer

from .failure import CommandFailed


def confirm(question: str) -> None:
    """Raises CommandFailed: the answer was no. Ctrl-C ends the command, as anywhere."""
    if not typer.confirm(question, err=True):
        raise CommandFailed("nothing was changed: the answer was no")
