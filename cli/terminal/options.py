"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from .failure import UsageError

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT,...",
        help="Brokers; by default BRADBURY_BOOTSTRAP, or the cluster that is up here.",
        show_default=False,
    ),
]


def check_namespace(namespace: str) -> str:
    """Return `namespace`. Raises typer.BadParameter if it has other characters than names have."""
    if not namespace or not all(letter.isalnum() or letter in "-_." for letter in namespace):
        raise typer.BadParameter(f"{namespace!r}: use letters, digits, '-', '_' and '.'")
    return namespace


def _check_given(namespace: str | None) -> str | None:
    return None if namespace is None else check_namespace(namespace)


ClusterName = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        callback=_check_given,
        help="Name of the cluster that is up here, if no brokers are given; by default "
        "BRADBURY_NAMESPACE, or bradbury.",
        show_default=False,
    ),
]
"""--namespace of a command that has --bootstrap; see app."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Compression = Annotated[
    Codec, typer.Option(metavar="CODEC", help="Compression: none, gzip, snappy, lz4 or zstd.")
]
Acks = Annotated[
    Literal["all", "-1", "1", "0"],
    typer.Option(
        metavar="all|1|0", help="Replicas that must have a record before it is acknowledged."
    ),
]
MadeReplicas = Annotated[
    int,
    typer.Option(
        metavar="N", help="Replication factor of new topics.", show_default="the brokers'"
    ),
]
"""--replication-factor of a command that copies topics."""
AllowDataLoss = Annotated[
    bool,
    typer.Option(
        "--allow-data-loss",
        help="Continue if retention has deleted records before they were copied, or a topic was "
        "deleted and created again.",
    ),
]
SourceConfig = Annotated[
    Path | None,
    typer.Option(
        "--source-config",
        metavar="FILE",
        help="File of security settings for the source cluster, as in `bradbury --client-config`.",
        show_default=False,
    ),
]

IcebergCatalog = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Iceberg catalog, from ~/.pyiceberg.yaml.",
        show_default="PyIceberg's default",
    ),
]
IcebergProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-property",
        metavar="NAME=VALUE",
        help="Property of the Iceberg catalog: type=sql, uri=..., warehouse=...; repeatable.",
    ),
]


def parse_pairs(pairs: Iterable[str], option: str) -> dict[str, str]:
    """Parse texts "name=value" to a dict. Raises UsageError: one is not a pair."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {pair!r} is not a pair; use {option} name=value")
        parsed[name.strip()] = value.strip()
    return parsed


def parse_names(words: str | None) -> list[str] | None:
    """Parse names that are separated by commas; None stays None."""
    return None if words is None else [name.strip() for name in words.split(",")]


def complete_topic(incomplete: str) -> list[str]:
    """Topic names for shell completion; empty if no cluster answers at once."""
    from ...clients.admin.admin import Admin
    from .bootstrap_address import bootstrap_servers

    try:
        with Admin(bootstrap_servers(None), timeout_ms=1_000) as admin:
            return [name for name in admin.list_topics() if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 -- a completion that fails is an empty one
        return []


Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Topic name.", autocompletion=complete_topic)
]
