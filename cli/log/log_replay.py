"""The command `bradbury log replay`: copies the records of a topic into another topic.

Keys, values, headers, timestamps and the order within a partition stay. Batches are copied as they
are, still compressed, where possible. It ends where the source ended at its start, or at --to.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import CommandFailed, UsageError
from ..terminal.moments import SPECIAL_TIMESTAMPS, parse_iso
from ..terminal.options import AsJson, Bootstrap, Codec, Topic, complete_topic
from ..terminal.output import count_text, note, print_json, size_text
from ..terminal.progress import progress_bar
from ..topics.topic_commands import require_topic

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin
    from ...protocol.topic_partition import TopicPartition

PLACE_HELP = "Offset, time (ISO 8601, or @ and milliseconds), earliest or latest."


def replay(
    source: Topic,
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="Topic to copy to.", autocompletion=complete_topic),
    ],
    begin: Annotated[str, typer.Option("--from", metavar="PLACE", help=PLACE_HELP)] = "earliest",
    end: Annotated[
        str,
        typer.Option("--to", metavar="PLACE", help=PLACE_HELP + " The record there is not copied."),
    ] = "latest",
    partition: Annotated[
        list[str],
        typer.Option(
            "--partition",
            "-p",
            metavar="N[:M]",
            help="Copy only partition N, to partition N or M of the target; repeatable.",
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    by_key: Annotated[
        bool,
        typer.Option("--by-key", help="Choose the target partition of each record by its key."),
    ] = False,
    to_bootstrap: Annotated[
        str | None,
        typer.Option(
            "--to-bootstrap",
            metavar="HOST:PORT,...",
            help="Brokers of the target's cluster, if it is another one.",
            show_default=False,
        ),
    ] = None,
    compression: Annotated[
        Codec,
        typer.Option(
            metavar="CODEC", help="Codec of re-encoded batches: none, gzip, snappy, lz4 or zstd."
        ),
    ] = "none",
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Copy a topic, or a part of it, into another one."""
    from ...clients.admin.admin import Admin
    from ...clients.admin.replay import replay as copy
    from ...clients.producer.producer import Producer

    servers = bootstrap_servers(bootstrap)
    target_servers = servers if to_bootstrap is None else bootstrap_servers(to_bootstrap)
    if source == target and to_bootstrap is None:
        raise UsageError(f"{source!r} cannot be replayed into itself: use another TARGET")
    count, target_count = require_topic(servers, source), require_topic(target_servers, target)
    mapping = parse_mapping(partition, count)
    if by_key and any(":" in one for one in partition):
        raise UsageError("--by-key decides the target partition; use --partition N without :M")
    if not by_key:
        _check_targets(target, mapping, target_count)
    with Admin(servers) as admin:
        ranges = find_ranges(admin, source, list(mapping), begin, end)
    total = sum(last - first for first, last in ranges.values())
    began = time.monotonic()
    with (
        Producer(target_servers, compression_type=compression) as producer,
        progress_bar("replaying", total, "records") as advance,
    ):
        report = copy(
            ranges,
            target,
            producer,
            bootstrap=servers,
            partitions=None if by_key else mapping,
            on_progress=advance,
        )
    seconds = time.monotonic() - began
    if as_json:
        print_json(
            {
                "source": source,
                "target": target,
                "records": report.records,
                "bytes": report.bytes,
                "batches_as_they_are": report.batches,
                "batches_encoded_again": report.recoded,
                "seconds": round(seconds, 3),
            }
        )
    else:
        note(
            f"{count_text(report.records, 'record')} ({size_text(report.bytes)}) from {source!r} "
            f"to {target!r} in {seconds:.2f} s; batches: {report.batches:,} as they are, "
            f"{report.recoded:,} re-encoded"
        )


def parse_mapping(options: list[str], partition_count: int) -> dict[int, int]:
    """Parse options such as "0" and "1:5" to {0: 0, 1: 5}; without options {n: n} for all.

    Raises:
        CommandFailed: not a number, not a partition of the source, or one is given twice.
    """
    if not options:
        return {number: number for number in range(partition_count)}
    mapping: dict[int, int] = {}
    for option in options:
        first, colon, second = option.partition(":")
        if not first.isdecimal() or (colon and not second.isdecimal()):
            raise UsageError(f"--partition {option!r}: use 3, or 3:5 for partition 3 into 5")
        number = int(first)
        if number in mapping:
            raise UsageError(f"--partition {number} is given twice")
        if number >= partition_count:
            raise CommandFailed(
                f"the source has partitions 0 to {partition_count - 1}, not {number}"
            )
        mapping[number] = int(second) if colon else number
    return mapping


def find_ranges(
    admin: Admin, topic: str, partitions: list[int], begin: str, end: str
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offsets [start, end) of each partition, within its log.

    Raises:
        CommandFailed: `begin` or `end` is not an offset or time.
    """
    from ...protocol.topic_partition import TopicPartition

    keys = [TopicPartition(topic, number) for number in partitions]
    earliest = admin.list_offsets(keys, "earliest")
    latest = admin.list_offsets(keys, "latest", isolation_level="read_committed")

    def places(text: str, option: str) -> dict[TopicPartition, int]:
        if text.isdecimal():
            return dict.fromkeys(keys, int(text))
        found = admin.list_offsets(keys, _time_of(text, option))
        # A time after every record: the end of the log.
        return {
            key: at.offset if at.offset >= 0 else latest[key].offset for key, at in found.items()
        }

    starts, ends = places(begin, "--from"), places(end, "--to")
    ranges = {}
    for key in keys:
        start = max(starts[key], earliest[key].offset)
        ranges[key] = (start, max(start, min(ends[key], latest[key].offset)))
    return ranges


def _time_of(text: str, option: str) -> int:
    if text in ("earliest", "latest"):
        return SPECIAL_TIMESTAMPS[text]
    if text.startswith("@") and text[1:].isdecimal():
        return int(text[1:])
    try:
        return parse_iso(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: use an offset, earliest, latest, @ and milliseconds since 1970, "
            "or ISO 8601 as in 2026-03-01T12:30:00Z"
        ) from None


def _check_targets(target: str, mapping: dict[int, int], target_count: int) -> None:
    highest = max(mapping.values())
    if highest >= target_count:
        raise CommandFailed(
            f"topic {target!r} has partitions 0 to {target_count - 1}, not {highest}; "
            "use --partition N:M, --by-key, or add partitions"
        )
