"""Base of requests that change access: once one is answered, every node applies the change.

So the answer is the present controller's alone, and waits for every node in service to go by it,
also where nothing had to be changed. An earlier try, whose answer was lost, may have changed it a
moment before, under another controller.
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
