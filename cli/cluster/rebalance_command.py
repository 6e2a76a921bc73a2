"""The commands `bradbury rebalance` and `drain`: even out replicas, or move them off a machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..terminal.options import AsJson
from ..terminal.output import count_text, note, print_json, print_table
from ..terminal.progress import progress_bar
from .copy_throttle import CopyThrottle
from .running_cluster import DEFAULT_NAMESPACE, Address, Namespace, running_cluster

if TYPE_CHECKING:
    from ...cluster.control.rebalance import PartitionMove
    from ...launch.cluster import Cluster

POLL_SECONDS = 0.2
SHOWN = 20

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would move; change nothing.")]
Throttle = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="BYTES",
        help="Maximum bytes per second that each node sends, and receives, for new replicas.",
        show_default=False,
    ),
]


def rebalance(
    dry_run: DryRun = False,
    throttle: Throttle = None,
    address: Address = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Move replicas so that nodes have equal shares and lead equal shares. Clients keep working."""
    with running_cluster(address, namespace) as cluster:
        _move(cluster, {}, throttle, dry_run=dry_run, as_json=as_json)


def drain(
    machine: Annotated[str, typer.Argument(help="Name of the machine, from `bradbury status`.")],
    restore: Annotated[
        bool, typer.Option("--restore", help="Allow partitions on the machine again.")
    ] = False,
    dry_run: DryRun = False,
    throttle: Throttle = None,
    address: Address = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Move every replica off a machine, so that it can be stopped. Clients keep working."""
    with running_cluster(address, namespace) as cluster:
        if restore:
            cluster.rebalance(restore=machine, dry_run=dry_run)
            note(f"{machine} can have partitions again; `bradbury rebalance` moves its share there")
            return
        _move(cluster, {"drain": machine}, throttle, dry_run=dry_run, as_json=as_json)


def _move(
    cluster: Cluster,
    asked: dict[str, Any],
    bytes_per_second: int | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    if bytes_per_second is None or dry_run:
        moved = _carry_out(cluster, asked, None, dry_run=dry_run)
    else:
        with cluster.admin() as admin:
            moved = _carry_out_slowly(cluster, asked, CopyThrottle(admin, bytes_per_second))
    if as_json:
        print_json([move._asdict() for move in moved])
        return
    if moved:
        _print(moved)
    verb = "would move" if dry_run else "moved"
    note(f"{count_text(len(moved), 'partition')} {verb}" if moved else "nothing has to move")


def _carry_out_slowly(
    cluster: Cluster, asked: dict[str, Any], throttle: CopyThrottle
) -> list[PartitionMove]:
    try:
        moved = _carry_out(cluster, asked, throttle, dry_run=False)
        left = int(cluster.status()["reassigned"])
        if left:  # of a command that was interrupted
            _wait(cluster, left)
    except KeyboardInterrupt:
        note(
            "replicas keep moving, throttled; run the same command again to wait for them and "
            "remove the throttle"
        )
        raise
    throttle.lift()
    return moved


def _carry_out(
    cluster: Cluster, asked: dict[str, Any], throttle: CopyThrottle | None, *, dry_run: bool
) -> list[PartitionMove]:
    """Move replicas in rounds, as the controller limits concurrent moves; return all moves."""
    moved: list[PartitionMove] = []
    while True:
        if throttle is not None:
            throttle.cover(cluster.rebalance(**asked, dry_run=True))
        moves = cluster.rebalance(**asked, dry_run=dry_run)
        moved += moves
        if dry_run or not moves:
            return moved
        _wait(cluster, len(moves))


def _wait(cluster: Cluster, count: int) -> None:
    """Wait until the moves are done: new replicas are copied, then old ones deleted."""
    with progress_bar("moving replicas", count, "records") as advance:
        done = 0
        while True:
            left = min(count, int(cluster.status()["reassigned"]))
            advance(max(0, count - left - done))
            done = max(done, count - left)
            if not left:
                return
            time.sleep(POLL_SECONDS)


def _print(moves: list[PartitionMove]) -> None:
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
