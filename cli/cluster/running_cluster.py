"""The cluster that a command is about: the options that name it, and the connection to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ...discovery.state_file import DEFAULT_NAMESPACE, NAMESPACE_VARIABLE
from ..terminal.options import check_namespace

if TYPE_CHECKING:
    from ...launch.cluster import Cluster

__all__ = ["DEFAULT_NAMESPACE", "Address", "Namespace", "running_cluster"]


Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Ray cluster where Bradbury is up; by default that of RAY_ADDRESS, or the one it was "
        "started in from this machine.",
        show_default=False,
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        envvar=NAMESPACE_VARIABLE,
        callback=check_namespace,
        help="Ray namespace of the cluster, which is also its name.",
    ),
]


@contextmanager
def running_cluster(address: str | None, namespace: str) -> Iterator[Cluster]:
    """Yield the cluster that is up here, or in the Ray cluster at `address`. Raises UpError."""
    import ray

    from ...launch.cluster import connect

    try:
        yield connect(address, namespace)
    finally:
        ray.shutdown()
