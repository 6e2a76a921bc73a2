"""The command `bradbury bench`: throughput and latency of a cluster with Bradbury's clients.

Without a topic, produce and latency create one and delete it afterwards. The options
are those of Kafka's producer and consumer performance tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import CommandFailed, UsageError
from ..terminal.options import Acks, AsJson, Bootstrap, Compression, Topic, complete_topic
from ..terminal.progress import progress_bar
from ..topics.topic_commands import require_topic
from .bench_figures import report
from .bench_runs import consume_run, latency_run, produce_run

if TYPE_CHECKING:
    from ...clients.producer.producer import Producer

bench = App(help="Measure throughput and latency.", no_args_is_help=True)

MaybeTopic = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC",
        help="Topic to use; by default a new one, deleted afterwards.",
        autocompletion=complete_topic,
        show_default=False,
    ),
]
Records = Annotated[
    int, typer.Option("--records", "-n", min=1, metavar="N", help="Number of records.")
]
Size = Annotated[
    int, typer.Option("--size", "-s", min=1, metavar="BYTES", help="Bytes of a value.")
]
Linger = Annotated[
    int, typer.Option(min=0, metavar="MS", help="Milliseconds that a batch waits for more records.")
]
BatchSize = Annotated[int, typer.Option(min=1, metavar="BYTES", help="Maximum bytes of a batch.")]
Partitions = Annotated[
    int,
    typer.Option(
        "--partitions", "-p", min=1, metavar="N", help="Number of partitions of a new topic."
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Draw times and rates to this file (.png, .svg).",
        show_default=False,
    ),
]


@bench.command()
def produce(
    topic: MaybeTopic = None,
    records: Records = 1_000_000,
    size: Size = 100,
    throughput: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="N", help="Maximum records per second.", show_default=False),
    ] = None,
    columns: Annotated[
        bool, typer.Option("--columns", help="Send Arrow tables of 10,000 records at a time.")
    ] = False,
    acks: Acks = "all",
    linger_ms: Linger = 5,
    batch_size: BatchSize = 1_000_000,
    compression: Compression = "none",
    partitions: Partitions = 1,
    plot: Plot = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Send records, and measure the time until each is acknowledged."""
    from ...protocol.columns.columns import warm_up

    warm_up()  # or a second of compiling would be measured
    servers = bootstrap_servers(bootstrap)
    with (
        _topic(servers, topic, partitions) as name,
        _producer(servers, acks, linger_ms, batch_size, compression) as producer,
        progress_bar("sending", records, "records") as advance,
    ):
        measured = produce_run(
            producer,
            name,
            records=records,
            size=size,
            throughput=throughput,
            columns=columns,
            advance=advance,
        )
    report(measured, as_json=as_json, plot=plot)


@bench.command()
def consume(
    topic: Topic,
    records: Annotated[
        int | None,
        typer.Option(
            "--records", "-n", min=1, metavar="N", help="Number of records to read; by default all."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this group.",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, metavar="SECONDS", help="Seconds without a record to end after."),
    ] = 10.0,
    fetch_max_bytes: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="Maximum bytes of a fetch response.")
    ] = 50 * 1024 * 1024,
    plot: Plot = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Read a topic from its beginning, and measure the time of every poll."""
    from ...clients.consumer.consumer import Consumer
    from ...protocol.columns.columns import warm_up

    warm_up()

    servers = bootstrap_servers(bootstrap)
    total = _record_count(servers, topic)
    wanted = total if records is None else records
    if wanted > total:
        raise CommandFailed(f"topic {topic!r} has {total:,} records, not {wanted:,}; use --records")
    if not total:
        raise CommandFailed(f"topic {topic!r} is empty; `bradbury bench produce {topic}` fills it")
    with (
        Consumer(
            topic,
            bootstrap=servers,
            group=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_bytes=fetch_max_bytes,
        ) as consumer,
        progress_bar("reading", wanted, "records") as advance,
    ):
        measured = consume_run(consumer, topic, records=wanted, timeout=timeout, advance=advance)
    report(measured, as_json=as_json, plot=plot)


@bench.command()
def latency(
    topic: MaybeTopic = None,
    records: Records = 5_000,
    size: Size = 100,
    throughput: Annotated[
        float, typer.Option(min=0.1, metavar="N", help="Records per second.")
    ] = 1_000.0,
    acks: Acks = "all",
    linger_ms: Linger = 0,
    plot: Plot = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Measure records at a steady rate: time to acknowledgement, and time to a consumer."""
    from ...clients.consumer.consumer import Consumer

    if size < 12:
        raise UsageError(f"--size {size}: use 12 or more, as the value has the record's number")
    servers = bootstrap_servers(bootstrap)
    with (
        _topic(servers, topic, 1) as name,
        _producer(servers, acks, linger_ms, 16_384, "none") as producer,
        Consumer(bootstrap=servers) as consumer,
        progress_bar("sending", records, "records") as advance,
    ):
        consumer.assign([(name, 0)])
        consumer.seek_to_end()
        consumer.position((name, 0))
        producer.partitions_for(name)
        measured = latency_run(
            producer,
            consumer,
            name,
            records=records,
            size=size,
            throughput=throughput,
            advance=advance,
        )
    report(measured, as_json=as_json, plot=plot)


@contextmanager
def _topic(servers: str, name: str | None, partitions: int) -> Iterator[str]:
    """Yield the topic that was named, or a new one that is deleted at the end."""
    from ...clients.admin.admin import Admin

    if name is not None:
        require_topic(servers, name)
        yield name
        return
    with Admin(servers) as admin:
        own = f"bench-{os.urandom(4).hex()}"
        admin.create_topic(own, partitions)
        try:
            yield own
        finally:
            admin.delete_topic(own)


def _producer(
    servers: str, acks: str, linger_ms: int, batch_size: int, compression: str
) -> Producer:
    from ...clients.producer.producer import Producer

    return Producer(
        servers,
        acks="all" if acks in ("all", "-1") else int(acks),
        linger_ms=linger_ms,
        batch_size=batch_size,
        compression_type=compression,
    )


def _record_count(servers: str, topic: str) -> int:
    from ...clients.admin.admin import Admin

    count = require_topic(servers, topic)
    keys = [(topic, number) for number in range(count)]
    with Admin(servers) as admin:
        starts, ends = admin.list_offsets(keys, "earliest"), admin.list_offsets(keys, "latest")
    return sum(ends[key].offset - starts[key].offset for key in ends)
