"""Effects that end a request, whatever kind of step it was given to.

A ticket is the driver's own object for a request; it comes back with the answer, once.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Reply(NamedTuple):
    """The request of this ticket is carried out; its caller need not wait any longer."""

    ticket: Any
    answer: Any = None


class Refuse(NamedTuple):
    """The request of this ticket has failed, with a KafkaError unless the failure is unexpected."""

    ticket: Any
    error: Exception


def ended(ticket: Any, error: Exception | None) -> Reply | Refuse:
    """The effect that ends a request whose success has no data to return."""
    return Reply(ticket) if error is None else Refuse(ticket, error)
