"""The cluster that a command is about: options that name it, and how it is reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ...discovery.state_file import DEFAULT_NAMESPACE, NAMESPACE_VARIABLE

if TYPE_CHECKING:
    from ...launch.cluster import Cluster

__all__ = ["DEFAULT_NAMESPACE", "Address", "Namespace", "running_cluster"]


def _checked(namespace: str) -> str:
    if not namespace or not all(letter.isalnum() or letter in "-_." for letter in namespace):
        raise typer.BadParameter("letters, digits, '-', '_' and '.' make a namespace")
    return namespace


Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The Ray cluster it is up in; by default that of RAY_ADDRESS, or the one where it was "
        "started from here.",
        show_default=False,
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        envvar=NAMESPACE_VARIABLE,
        callback=_checked,
        help="The cluster's name, and its Ray namespace.",
    ),
]


@contextmanager
def running_cluster(address: str | None, namespace: str) -> Iterator[Cluster]:
    """The cluster that is up here, or on the Ray cluster that is named. Raises UpError."""
    import ray

    from ...launch.cluster import connect

    try:
        yield connect(address, namespace)
    finally:
        ray.shutdown()
