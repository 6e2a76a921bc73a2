"""The command `bradbury consume`: prints the records of a topic to stdout, as they arrive.

Without --group every partition is read, or that of --partition; with it the partitions are shared
with the other members, and offsets of printed records are committed. It ends after --max records,
at the end that the topic had at its start (--until-end), after --timeout seconds without a record,
with Ctrl-C, or when its output is closed.
"""

from __future__ import annotations

import select
import sys
import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import UsageError
from ..terminal.options import Bootstrap, Topic
from ..terminal.output import note
from .record_format import Formatter, formatter
from .topic_commands import require_partition

if TYPE_CHECKING:
    from ...clients.consumer.consumer import Consumer
    from ...protocol.topic_partition import TopicPartition

POLL_MS = 200


def consume(
    topic: Topic,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Read from the first record; by default only new records."
        ),
    ] = False,
    max_records: Annotated[
        int | None,
        typer.Option("--max", "-n", min=1, metavar="N", help="Maximum number of records."),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="End at the topic's current end.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Seconds without a record to end after."),
    ] = None,
    format_text: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="Format: value, json, or a template: %t topic, %p partition, %o offset, "
            "%T timestamp, %k key, %v value, %h headers.",
        ),
    ] = "value",
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition."),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="N",
            help="With --partition: first offset to read; -10: ten before the end.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="Read as a member of this group."),
    ] = None,
    isolation_level: Annotated[
        Literal["read_uncommitted", "read_committed"],
        typer.Option(
            metavar="LEVEL",
            help="read_committed: leave out records of open and aborted transactions.",
        ),
    ] = "read_uncommitted",
    as_json: Annotated[bool, typer.Option("--json", hidden=True)] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Print the records of a topic."""
    from ...clients.consumer.consumer import Consumer
    from ...protocol.topic_partition import TopicPartition

    if as_json:
        raise UsageError("--json: consume has --format json, with a JSON object for each record")
    write = formatter(format_text)
    if offset is not None and partition is None:
        raise UsageError("--offset needs --partition: every partition has its own offsets")
    if offset is not None and from_beginning:
        raise UsageError("--from-beginning and --offset contradict each other; use one of them")
    if group == "":
        raise UsageError(
            "--group is empty; give the group's id, or omit it to read without a group"
        )
    if group is not None and partition is not None:
        raise UsageError("--group shares all partitions; omit --partition or --group")
    servers = bootstrap_servers(bootstrap)
    count = require_partition(servers, topic, partition)
    reset: Literal["earliest", "latest"] = "earliest" if from_beginning else "latest"
    with Consumer(
        *(() if partition is not None else (topic,)),
        bootstrap=servers,
        group=group,
        auto_offset_reset=reset,
        isolation_level=isolation_level,
    ) as consumer:
        if partition is not None:
            consumer.assign([(topic, partition)])
        if offset is not None and partition is not None:
            _seek(consumer, TopicPartition(topic, partition), offset)
        ends: dict[TopicPartition, int] = {}
        if until_end:
            wanted = range(count) if partition is None else (partition,)
            ends = consumer.end_offsets(*(TopicPartition(topic, number) for number in wanted))
        _print(consumer, write, max_records, timeout, ends)


def _seek(consumer: Consumer, partition: TopicPartition, offset: int) -> None:
    """Seek to `offset`; if it is outside of the log, print a remark and seek to the nearest end.

    offset: negative: relative to the end.
    """
    (first,) = consumer.beginning_offsets(partition).values()
    (end,) = consumer.end_offsets(partition).values()
    wanted = offset if offset >= 0 else max(first, end + offset)
    nearest = min(max(first, wanted), end)
    if nearest != wanted:
        where = "before the first record" if wanted < first else "beyond the end"
        note(f"offset {wanted} is {where} of {partition}; reading begins at {nearest}")
    consumer.seek(partition, nearest)


def _print(
    consumer: Consumer,
    write: Formatter,
    max_records: int | None,
    timeout: float | None,
    ends: dict[TopicPartition, int],
) -> None:
    """Print records until a limit is reached. ends: offsets to stop at; {} without --until-end."""
    output = sys.stdout.buffer
    left = max_records
    last = time.monotonic()
    while left is None or left > 0:
        table = consumer.poll(POLL_MS, max_records=left)
        if table.num_rows:
            last = time.monotonic()
            output.write(write(table))
            output.flush()
            if left is not None:
                left -= table.num_rows
        elif _reader_is_gone():
            raise BrokenPipeError
        elif timeout is not None and time.monotonic() - last >= timeout:
            return
        if ends and _is_past(consumer, ends):
            return


def _reader_is_gone() -> bool:
    """Whether stdout is a pipe without a reader, such as `consume | head` without new records."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # errors and hang-ups are always reported
    return bool(poll.poll(0))


def _is_past(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Whether all assigned partitions have been printed up to `ends`."""
    assigned = consumer.assignment()
    return bool(assigned) and all(
        consumer.position(partition) >= ends[partition] for partition in assigned
    )
