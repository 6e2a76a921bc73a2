"""Methods of the parts of Admin, made methods of Admin.

    class Admin:
        create_acls = delegated("_acls", AclsCalls.create_acls)

Signature, types and docstring are the part's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def delegated(
    part: str, method: Callable[Concatenate[Any, P], T]
) -> Callable[Concatenate[Any, P], T]:
    """A method that calls `method` of the object in the attribute `part`."""

    @functools.wraps(method)
    def call(owner: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        return method(getattr(owner, part), *arguments, **options)

    return call
