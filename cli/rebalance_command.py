"""`bradbury rebalance` and `bradbury drain`: replicas go where there is room, or off a machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .cluster_commands import Address, running_cluster
from .options import AsJson, Namespace
from .output import note, print_json, print_table
from .progress import progress_bar
from .state_file import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from ..actors.launch import Cluster
    from ..cluster.rebalance import Move

POLL_SECONDS = 0.2
SHOWN = 20

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would move.")]


def rebalance(
    dry_run: DryRun = False,
    address: Address = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Move replicas so that every node has its share, and leads its share. Clients go on."""
    with running_cluster(address, namespace) as cluster:
        _carry_out(cluster, {}, dry_run=dry_run, as_json=as_json)


def drain(
    machine: Annotated[str, typer.Argument(help="Its name, as `bradbury status` shows it.")],
    restore: Annotated[
        bool, typer.Option("--restore", help="It gets partitions again; then rebalance.")
    ] = False,
    dry_run: DryRun = False,
    address: Address = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Move every replica off a machine, which then can be stopped. Clients go on."""
    with running_cluster(address, namespace) as cluster:
        if restore:
            cluster.rebalance(restore=machine, dry_run=dry_run)
            note(f"{machine} gets partitions again; `bradbury rebalance` gives it its share")
            return
        _carry_out(cluster, {"drain": machine}, dry_run=dry_run, as_json=as_json)


def _carry_out(cluster: Cluster, asked: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    moves = cluster.rebalance(**asked, dry_run=dry_run)
    moved = list(moves)
    while moves and not dry_run:
        _wait(cluster, len(moves))
        moves = cluster.rebalance(**asked)
        moved += moves
    if as_json:
        print_json([move._asdict() for move in moved])
        return
    _print(moved)
    verb = "would move" if dry_run else "moved"
    note(f"{len(moved)} partitions {verb}" if moved else "nothing has to move")


def _wait(cluster: Cluster, count: int) -> None:
    """Until what was begun is done: new replicas copy, then old ones go."""
    with progress_bar("moving replicas", count, "records") as advance:
        done = 0
        while True:
            left = min(count, int(cluster.status()["reassigned"]))
            advance(max(0, count - left - done))
            done = max(done, count - left)
            if not left:
                return
            time.sleep(POLL_SECONDS)


def _print(moves: list[Move]) -> None:
    print_table(
        ("topic", "partition", "from", "to"),
        [
            (move.topic, move.partition, _nodes(move.before), _nodes(move.after))
            for move in moves[:SHOWN]
        ],
    )
    if len(moves) > SHOWN:
        note(f"and {len(moves) - SHOWN} more; --json shows all")


def _nodes(ids: tuple[int, ...]) -> str:
    return ",".join(str(node_id) for node_id in ids)
