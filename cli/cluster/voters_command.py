"""The command `bradbury voters`: the voters of the metadata log and their lag; add and remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..terminal.app import App
from ..terminal.failure import CommandFailed
from ..terminal.options import AsJson
from ..terminal.output import note, print_json, print_table
from .running_cluster import DEFAULT_NAMESPACE, Address, Namespace, running_cluster

if TYPE_CHECKING:
    from ...launch.cluster import Cluster

NOBODY = "-"
FEW = 3

voters = App(
    help="Show, add and remove voters, which hold the metadata log.", invoke_without_command=True
)


@voters.callback()
def show_without_a_subcommand(
    context: typer.Context,
    address: Address = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Show the voters and their lag. A majority of them has to be available."""
    if context.invoked_subcommand is not None:
        return
    show(address, namespace, as_json)


@voters.command()
def show(
    address: Address = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Show the voters and their lag, as `bradbury voters` does."""
    with running_cluster(address, namespace) as cluster:
        _show(cluster, as_json=as_json)


@voters.command()
def add(
    machine: Annotated[str, typer.Argument(help="Name of the machine, from `bradbury status`.")],
    address: Address = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Add a voter, once it has caught up. Three or five voters are good numbers."""
    from ...cluster.quorum.voter_change import VoterChange

    with running_cluster(address, namespace) as cluster:
        node = _broker_of(cluster.status(), machine)
        if node is None:
            raise CommandFailed(f"there is no broker on {machine!r}; `bradbury status` shows them")
        cluster.change_voter(VoterChange(is_addition=True, node_id=int(node["node_id"])))
        _show(cluster, as_json=as_json)


@voters.command()
def remove(
    machine: Annotated[
        str,
        typer.Argument(
            metavar="MACHINE|DIRECTORY",
            help="Name of the machine; or the directory's id, if the disk is lost.",
        ),
    ],
    address: Address = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Remove a voter, whether its broker runs or not."""
    from ...cluster.quorum.voter_change import VoterChange

    with running_cluster(address, namespace) as cluster:
        described = cluster.status()
        node = _broker_of(described, machine)
        if machine in described["voters"]:
            owner = _owner_of(described, machine)
            change = VoterChange(
                is_addition=False,
                node_id=-1 if owner is None else int(owner["node_id"]),
                directory_id=machine,
            )
        elif node is not None:
            change = VoterChange(is_addition=False, node_id=int(node["node_id"]))
        else:
            raise CommandFailed(f"{machine!r} is not a voter; `bradbury voters` shows the voters")
        cluster.change_voter(change)
        _show(cluster, as_json=as_json)


def _broker_of(described: dict[str, Any], machine: str) -> dict[str, Any] | None:
    for node in described["nodes"]:
        if node["machine"] == machine and "broker" in node["roles"]:
            found: dict[str, Any] = node
            return found
    return None


def _owner_of(described: dict[str, Any], directory_id: str) -> dict[str, Any] | None:
    for node in described["nodes"]:
        if node["metadata_directory_id"] == directory_id:
            found: dict[str, Any] = node
            return found
    return None


def _show(cluster: Cluster, *, as_json: bool) -> None:
    described = cluster.status()
    end = int(described["metadata_offset"])
    rows = []
    for directory_id, offset in described["voters"].items():
        owner = _owner_of(described, directory_id)
        rows.append(
            {
                "node_id": None if owner is None else owner["node_id"],
                "machine": None if owner is None else owner["machine"],
                "is_there": owner is not None and not owner["fenced"],
                "directory_id": directory_id,
                "offset": offset,
                "lag": max(0, end - offset),
            }
        )
    if as_json:
        print_json(rows)
        return
    print_table(
        ("node", "machine", "there", "directory", "offset", "lag"),
        [
            (
                NOBODY if row["node_id"] is None else row["node_id"],
                row["machine"] or NOBODY,
                "yes" if row["is_there"] else "no",
                row["directory_id"],
                row["offset"],
                row["lag"],
            )
            for row in rows
        ],
    )
    if len(rows) < FEW:
        note("fewer than three voters: none may be lost; use `bradbury voters add MACHINE`")
