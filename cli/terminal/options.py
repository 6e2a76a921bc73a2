"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
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


def parse_pairs(pairs: Iterable[str], option: str) -> dict[str, str]:
    """["a=1", "b=2"] -> {"a": "1", "b": "2"}. Raises UsageError for what is not a pair."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {pair!r} is not a pair; use {option} name=value")
        parsed[name.strip()] = value.strip()
    return parsed


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
