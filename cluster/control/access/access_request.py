"""Base of requests that change access: once one is answered, every node applies the change.

So only the active controller answers, and it waits (up to the timeout) until every node in service
has applied the change, also if nothing had to be changed: an earlier attempt, whose answer was
lost, may have made the change a moment before, under another controller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from ..controller_request import ControllerRequest

A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest(ControllerRequest[A]):
    """Base class of requests about access; see the module."""

    needs_confirmation: ClassVar[bool] = True
    is_for_all: ClassVar[bool] = True
