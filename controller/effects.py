"""What the steps of this folder ask of their drivers, in the order in which it is to be begun.

A ticket is the driver's: whatever it gave with a request comes back with the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """The request of this ticket is carried out."""

    ticket: Any
    answer: Any


class Refuse(NamedTuple):
    """The request of this ticket has failed."""

    ticket: Any
    error: Exception


class RunOnDisk(NamedTuple):
    """Work that waits for the disk: run it in a thread, then tell the voter what came of it."""

    work: Callable[[], Any]
