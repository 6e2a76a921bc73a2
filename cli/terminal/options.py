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
        help="The brokers; by default BRADBURY_BOOTSTRAP, or the cluster that is up here.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Compression = Annotated[
    Codec, typer.Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
]
Acks = Annotated[
    Literal["all", "-1", "1", "0"],
    typer.Option(
        metavar="all|1|0", help="How many replicas have a record when it is acknowledged."
    ),
]
MadeReplicas = Annotated[
    int, typer.Option(metavar="N", help="Of topics that are made.", show_default="the brokers'")
]
"""--replication-factor of a command that copies topics."""
AllowDataLoss = Annotated[
    bool,
    typer.Option(
        "--allow-data-loss",
        help="Go on where retention has taken records before they were copied, and with a topic "
        "that was made again.",
    ),
]
SourceConfig = Annotated[
    Path | None,
    typer.Option(
        "--source-config",
        metavar="FILE",
        help="Security settings of the cluster to read; see --client-config of bradbury.",
        show_default=False,
    ),
]

IcebergCatalog = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME",
        help="Of Iceberg: one of ~/.pyiceberg.yaml.",
        show_default="PyIceberg's default",
    ),
]
IcebergProperties = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-property",
        metavar="NAME=VALUE",
        help="Of the catalog: type=sql, type=rest, uri=..., warehouse=... Several times.",
    ),
]


def parse_pairs(pairs: Iterable[str], option: str) -> dict[str, str]:
    """["a=1", "b=2"] -> {"a": "1", "b": "2"}. Raises UsageError for what is not a pair."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {pair!r} is not a pair; use {option} name=value")
        parsed[name.strip()] = value.strip()
    return parsed


def parse_names(words: str | None) -> list[str] | None:
    """Names with commas between them; None: nothing was said."""
    return None if words is None else [name.strip() for name in words.split(",")]


def complete_topic(incomplete: str) -> list[str]:
    """Topic names for shell completion; none where no cluster answers at once."""
    from ...clients.admin.admin import Admin
    from .bootstrap_address import bootstrap_servers

    try:
        with Admin(bootstrap_servers(None), timeout_ms=1_000) as admin:
            return [name for name in admin.list_topics() if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 -- a completion that fails is an empty one
        return []


Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Its name.", autocompletion=complete_topic)
]
