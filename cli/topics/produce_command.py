"""The command `bradbury produce`: sends lines from stdin or files as records.

A line without its newline is a record. With --key-separator the part before the first separator is
the key. Lines are sent in chunks of what has arrived, so typed lines are sent at once and a file in
batches of --batch lines.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import CommandFailed, UsageError
from ..terminal.options import Acks, AsJson, Bootstrap, Compression, Topic
from ..terminal.output import count_text, note, print_json
from .topic_commands import require_partition

if TYPE_CHECKING:
    import pyarrow as pa

READ_BYTES = 1024 * 1024
MAX_CHUNK_BYTES = 4 * READ_BYTES
MAX_OPEN_CHUNKS = 64
STDIN = Path("-")
REMARK_SECONDS = 5.0
"""Seconds of waiting for a delivery until a remark says so."""


def produce(
    topic: Topic,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Files of lines; '-' or none: stdin.")
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-k",
            metavar="TEXT",
            help=r"Text between key and value, e.g. ':' or '\t'; by default lines have no keys.",
            show_default=False,
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            min=0,
            metavar="N",
            help="Partition to send all records to.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="Maximum lines per batch.")
    ] = 50_000,
    compression: Compression = "none",
    acks: Acks = "all",
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Send lines from stdin or files to a topic."""
    from ...clients.producer.producer import Producer

    separator = None if key_separator is None else parse_separator(key_separator)
    for path in files:
        if path.is_dir():
            raise UsageError(f"{path} is a directory; name the files in it")
        if (
            path != STDIN and not path.exists()
        ):  # not is_file(), as pipes are allowed: `produce t <(seq 3)`
            raise UsageError(f"{path}: there is no such file")
    servers = bootstrap_servers(bootstrap)
    require_partition(servers, topic, partition)
    count, size, began = 0, 0, time.monotonic()
    open_chunks: deque[Future[Any]] = deque()
    with (
        Producer(
            servers,
            acks="all" if acks in ("all", "-1") else int(acks),
            compression_type=compression,
        ) as producer,
        _failures_reported_once(),
        _progress_bar(files) as advance,
    ):
        for chunk in _chunks(files, batch):
            open_chunks.append(
                producer.send_batch(topic, table_of(chunk, separator, count), partition=partition)
            )
            if len(open_chunks) > MAX_OPEN_CHUNKS:
                _await(open_chunks.popleft(), topic)
            count += len(chunk)
            sent = sum(map(len, chunk)) + len(chunk)
            size += sent
            advance(sent)
        for future in open_chunks:
            _await(future, topic)
    seconds = time.monotonic() - began
    _report(topic, count, size, seconds, as_json=as_json)


def _await(delivery: Future[Any], topic: str) -> None:
    """Wait for a delivery, with a remark if it takes long. Raises the delivery's error."""
    try:
        delivery.result(REMARK_SECONDS)
    except TimeoutError:
        if delivery.done():
            raise
        note(
            f"waiting for topic {topic!r}: it has no leader, or too few replicas in sync; "
            "`bradbury status` shows what is wrong"
        )
        delivery.result()


@contextmanager
def _failures_reported_once() -> Iterator[None]:
    """Keep the producer from logging failed batches: the command ends with the first error."""
    from ...clients.producer.batches import batch_outcomes

    log = batch_outcomes.logger
    former = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(former)


def parse_separator(text: str) -> bytes:
    r"""Encode the separator to bytes; `\t`, `\n`, `\0` and `\\` are escape sequences."""
    for written, meant in (("\\t", "\t"), ("\\n", "\n"), ("\\0", "\0"), ("\\\\", "\\")):
        if text == written:
            text = meant
    if not text:
        raise UsageError("--key-separator is empty; use for example --key-separator :")
    return text.encode()


def table_of(lines: list[bytes], separator: bytes | None, first_line: int = 0) -> pa.Table:
    """Make the columns `value`, and with a separator `key`, of a chunk of lines.

    first_line: number of lines before the chunk, for the error.

    Raises:
        CommandFailed: a line without the separator.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pa.array(lines, pa.binary())
    if separator is None:
        return pa.table({"value": values})
    at = pc.find_substring(values, separator)
    if (missing := pc.index(at, -1).as_py()) >= 0:
        raise CommandFailed(
            f"line {first_line + missing + 1} has no {separator.decode()!r} between key and value; "
            "omit --key-separator, or use another one"
        )
    pairs = [line.split(separator, 1) for line in lines]
    return pa.table(
        {
            "key": pa.array([pair[0] for pair in pairs], pa.binary()),
            "value": pa.array([pair[1] for pair in pairs], pa.binary()),
        }
    )


def split_lines(blocks: Iterator[bytes], batch: int) -> Iterator[list[bytes]]:
    """Yield lists of at most `batch` lines, without newlines, as soon as a block completes them.

    Text after the last newline is a line, too.
    """
    rest: list[bytes] = []
    for block in blocks:
        first, newline, after = block.partition(b"\n")
        rest.append(first)
        if not newline:
            continue
        lines = after.split(b"\n")
        lines.insert(0, b"".join(rest))
        rest = [lines.pop()]
        for start in range(0, len(lines), batch):
            yield lines[start : start + batch]
    if last := b"".join(rest):
        yield [last]


def _chunks(files: list[Path], batch: int) -> Iterator[list[bytes]]:
    for path in files or [STDIN]:
        if path == STDIN:
            yield from split_lines(_blocks(sys.stdin.fileno()), batch)
        else:
            with path.open("rb", buffering=0) as file:
                yield from split_lines(_blocks(file.fileno()), batch)


def _blocks(descriptor: int) -> Iterator[bytes]:
    """Yield the bytes that have arrived, at most MAX_CHUNK_BYTES; wait only if there are none."""
    parts: list[bytes] = []
    size = 0
    waiting = select.poll()  # not select(), which takes no descriptor above 1023
    waiting.register(descriptor, select.POLLIN)
    while data := os.read(descriptor, READ_BYTES):
        parts.append(data)
        size += len(data)
        if size < MAX_CHUNK_BYTES and waiting.poll(0):
            continue
        yield b"".join(parts)
        parts, size = [], 0
    if parts:
        yield b"".join(parts)


@contextmanager
def _progress_bar(files: list[Path]) -> Iterator[Callable[[int], None]]:
    """Show a progress bar over the bytes of files, on a terminal."""
    if not files or STDIN in files or not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    total = sum(path.stat().st_size for path in files)
    columns = (TextColumn("sending"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda size: progress.advance(task, size)


def _report(topic: str, count: int, size: int, seconds: float, *, as_json: bool) -> None:
    rate = count / seconds if seconds > 0 else 0.0
    if as_json:
        print_json(
            {
                "topic": topic,
                "records": count,
                "bytes": size,
                "seconds": round(seconds, 3),
                "records_per_second": round(rate),
            }
        )
    else:
        said = count_text(count, "record")
        speed = f" ({rate:,.0f}/s)" if rate >= 1 else ""  # else the lines were typed by hand
        note(f"{said} to {topic!r} in {seconds:.2f} s{speed}")
