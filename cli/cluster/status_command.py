"""The command `bradbury status`: the cluster's actors and their problems."""

from __future__ import annotations

from typing import Any

import typer

from ..terminal.options import AsJson
from ..terminal.output import count_text, print_json, print_table, size_text
from .running_cluster import DEFAULT_NAMESPACE, Address, Namespace, running_cluster

VOTER_LAG = 100
"""Records that a voter may be behind without a problem: describing the cluster takes a moment."""


def status(
    address: Address = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> int:
    """Show the cluster's actors and problems. Exit code 0 if there are no problems."""
    described = _describe(address, namespace)
    described["problems"] = _problems(described)
    described["healthy"] = not described["problems"]
    if as_json:
        print_json(described)
    else:
        _print_status(described)
    return 0 if described["healthy"] else 1


def _describe(address: str | None, namespace: str) -> dict[str, Any]:
    with running_cluster(address, namespace) as cluster:
        described = cluster.status()
        return {
            "bootstrap_servers": cluster.bootstrap_servers,
            "ray_address": cluster.ray_address,
            "data_dir": cluster.data_dir,
            **described,
        }


def _problems(described: dict[str, Any]) -> list[str]:
    """Describe each problem in a line; empty for a healthy cluster."""
    problems = []
    if not described["active"]:
        problems.append("the controller is not active: it waits for its voters")
    if described["leaderless"]:
        problems.append(f"{described['leaderless']} partitions have no leader; see the actors")
    if described["under_min_isr"]:
        problems.append(
            f"{described['under_min_isr']} partitions have fewer replicas in sync than "
            "min.insync.replicas: producers with acks=all wait"
        )
    if described["under_replicated"]:
        problems.append(
            f"{described['under_replicated']} partitions have replicas that are out of sync"
        )
    behind = [name for name, lag in _voter_lags(described).items() if lag > VOTER_LAG]
    if behind:
        problems.append(
            f"{len(behind)} of {len(described['voters'])} copies of the metadata are behind: the "
            f"brokers with the metadata directories {', '.join(behind)} do not answer"
        )
    for actor in described["actors"]:
        if actor.get("problem"):
            problems.append(f"{actor['actor']}: {actor['problem']}")
        problems += [f"{actor['actor']}: {damage}" for damage in actor.get("damaged", ())]
        if not actor.get("problem") and not actor.get("online", True):
            problems.append(f"{actor['actor']}: its data directory is offline; see its log")
    fenced = [node["address"] for node in described["nodes"] if node["fenced"]]
    if fenced:
        problems.append(f"fenced, as their session has timed out: {', '.join(fenced)}")
    return problems


def _voter_lags(described: dict[str, Any]) -> dict[str, int]:
    """Metadata records that each voter is behind, by directory id, for voters that are known."""
    end = described["metadata_offset"]
    return {name: max(0, end - offset) for name, offset in described["voters"].items()}


def _print_status(described: dict[str, Any]) -> None:
    typer.echo(f"cluster     {described['cluster_id']}")
    typer.echo(f"bootstrap   {described['bootstrap_servers']}")
    typer.echo(f"controller  epoch {described['epoch']}, pid {described['pid']}")
    lags = _voter_lags(described)
    lag = max(lags.values(), default=0)
    lagging = f", the slowest {count_text(lag, 'record')} behind" if lag else ""
    typer.echo(
        f"metadata    {count_text(described['metadata_offset'], 'record')} on "
        f"{count_text(len(lags), 'voter')}{lagging}"
    )
    typer.echo(f"data        {described['data_dir']}")
    typer.echo(
        f"topics      {described['topics']} with "
        f"{count_text(described['partitions'], 'partition')}: "
        f"{described['leaderless']} leaderless, {described['under_replicated']} under-replicated,"
    )
    typer.echo(
        f"            {described['under_min_isr']} under min.insync.replicas, "
        f"{described['reassigned']} being reassigned"
    )
    machines = {
        node["node_id"]: node["machine"] + " (drained)" * node["draining"]
        for node in described["nodes"]
    }
    leaders = {node["node_id"]: node["leaders"] for node in described["nodes"]}
    print_table(
        (
            "actor",
            "node",
            "roles",
            "machine",
            "address",
            "pid",
            "partitions",
            "leads",
            "size",
            "connections",
            "metrics",
        ),
        [
            (
                actor["actor"],
                actor.get("node_id"),
                ",".join(actor.get("roles", ())),
                machines.get(actor.get("node_id", -1)),
                actor.get("address"),
                actor.get("pid"),
                actor.get("partitions"),
                leaders.get(actor.get("node_id", -1)),
                size_text(actor["size_bytes"]) if "size_bytes" in actor else None,
                actor.get("connections"),
                actor.get("metrics"),
            )
            for actor in described["actors"]
        ],
        optional=("metrics", "connections", "machine", "roles", "pid", "leads"),
    )
    for name, reason in described["left_out"].items():
        typer.echo(f"Ray node {name} gets no broker: {reason}")
    for problem in described["problems"]:
        typer.echo(f"problem: {problem}")
    if described["healthy"]:
        typer.echo("healthy")
