"""The command `bradbury mirror`: copies topics of another cluster, Kafka or Bradbury, to this one.

Run again, it continues where the last run ended, for any reason. Ctrl-C ends a --continuous mirror
after the current transaction, with exit code 0.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import UsageError
from ..terminal.interrupt import stop_at_interrupt
from ..terminal.options import AllowDataLoss, AsJson, Bootstrap, MadeReplicas, SourceConfig
from ..terminal.output import count_text, note, print_json

if TYPE_CHECKING:
    from ...pipelines.mirrors.mirror_settings import MirrorProgress

SHOW_SECONDS = 1.0
SHOWN_NAMES = 5


def mirror(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC", help="Topic names, or regular expressions that match them."
        ),
    ],
    source: Annotated[
        str,
        typer.Option("--from", metavar="HOST:PORT,...", help="Brokers of the source cluster."),
    ],
    alias: Annotated[
        str,
        typer.Option(metavar="NAME", help="Short name of the source cluster; keep it the same."),
    ],
    policy: Annotated[
        Literal["prefix", "identity"],
        typer.Option(
            metavar="prefix|identity",
            help="Names of topics here: prefix: NAME.topic; identity: unchanged.",
        ),
    ] = "prefix",
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Topics to leave out; repeatable.",
            show_default=r"mm2.*\.internal, .*\.replica, __.*",
        ),
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Consumer groups whose committed offsets are copied, too; repeatable.",
            show_default="none",
        ),
    ] = None,
    sync_groups_interval: Annotated[
        float,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Seconds between syncs of group offsets; also at the end.",
        ),
    ] = 60.0,
    sync_configs_interval: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Seconds between syncs of topic configs; also at the start. 0: never.",
        ),
    ] = 600.0,
    latest: Annotated[
        bool,
        typer.Option("--latest", help="Start topics that were never mirrored at their end."),
    ] = False,
    replication_factor: MadeReplicas = -1,
    at_least_once: Annotated[
        bool,
        typer.Option(
            "--at-least-once",
            help="Copy without transactions: faster, but a killed mirror may copy records twice.",
        ),
    ] = False,
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous", help="Keep copying new records, partitions and topics, until Ctrl-C."
        ),
    ] = False,
    actors: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Number of Ray actors; auto: by the number of partitions; 0: run in this process.",
        ),
    ] = "0",
    allow_data_loss: AllowDataLoss = False,
    source_config: SourceConfig = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Copy topics of another cluster into this one, each record exactly once."""
    from ...clients.security.client_config_file import read_client_options
    from ...pipelines.mirrors.mirror import mirror as mirror_topics
    from ...pipelines.mirrors.mirrored_topics import EXCLUDE

    began = time.monotonic()
    try:
        with stop_at_interrupt(active=continuous) as stop:
            done = mirror_topics(
                topics,
                source,
                alias=alias,
                bootstrap_servers=bootstrap_servers(bootstrap),
                exclude=exclude or EXCLUDE,
                policy=policy,
                groups=groups or (),
                sync_groups_interval_s=sync_groups_interval,
                sync_configs_interval_s=sync_configs_interval,
                start_offset="latest" if latest else "earliest",
                replication_factor=replication_factor,
                fail_on_data_loss=not allow_data_loss,
                exactly_once=not at_least_once,
                continuous=continuous,
                stop=stop,
                source_security=None
                if source_config is None
                else read_client_options(source_config),
                on_progress=_Progress(),
                actors=_actors(actors),
            )
    except ValueError as error:
        raise UsageError(str(error)) from None
    if as_json:
        print_json(
            {
                "topics": done.topics,
                "records": done.records,
                "bytes": done.bytes,
                "commits": done.commits,
                "behind": done.behind,
                "left_out": list(done.left_out),
            }
        )
    else:
        seconds = f"{time.monotonic() - began:.1f} s"
        if done.topics:
            copied = f"{count_text(done.records, 'record')} of {count_text(done.topics, 'topic')}"
            note(f"copied {copied} in {seconds}")
        else:
            note(f"nothing was copied in {seconds}: no topic to copy was found yet")
        if done.left_out:
            note(_left_out(done.left_out))


def _actors(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if text.isdecimal():
        return int(text)
    raise UsageError(f'--actors {text!r}: use a number, or "auto"')


def _left_out(topics: tuple[str, ...]) -> str:
    if not topics:
        return "no topic is left out any more"
    more = f" and {len(topics) - SHOWN_NAMES} more" if len(topics) > SHOWN_NAMES else ""
    return (
        f"left out, since a mirror fills {'it' if len(topics) == 1 else 'them'} from here: "
        f"{', '.join(topics[:SHOWN_NAMES])}{more}"
    )


class _Progress:
    """Progress lines: at most one a second, as a continuous mirror commits more often."""

    def __init__(self) -> None:
        self._shown_at = -SHOW_SECONDS
        self._left_out: tuple[str, ...] = ()

    def __call__(self, progress: MirrorProgress) -> None:
        if progress.left_out != self._left_out:
            self._left_out = progress.left_out
            note(_left_out(progress.left_out))
            if not progress.records:
                return
        if time.monotonic() - self._shown_at < SHOW_SECONDS:
            return
        self._shown_at = time.monotonic()
        note(
            f"copied: {count_text(progress.records, 'record')} so far, "
            f"{progress.bytes / 1e6:.1f} MB, {count_text(progress.behind, 'offset')} behind"
        )
