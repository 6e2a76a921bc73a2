"""`bradbury log dump`: what is in the files of a log, read without a broker.

    00000000000000368769.log        its record batches; with --records their records
    00000000000000368769.index      offset and position of each entry
    00000000000000368769.timeindex  timestamp and offset of each entry

Every batch is checked as the broker checks it. At the first damage the dump says where and why, and
ends with exit code 1. Nothing is changed: it may be run on the files of a live broker.
"""

from __future__ import annotations

import base64
import mmap
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .failure import CommandFailed
from .output import print_json_line

if TYPE_CHECKING:
    from ..protocol.record_batch import RecordBatchHeader

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SHOWN_BYTES = 120

log = typer.Typer(help="Look into the files of a log.", no_args_is_help=True)


@log.callback()
def group() -> None:
    pass  # keeps `dump` a command of its own although it is the only one


@log.command()
def dump(
    file: Annotated[Path, typer.Argument(help="A .log, .index or .timeindex file.")],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="The records of every batch, too.")
    ] = False,
    max_batches: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="End after so many batches or entries.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Show the batches and records of a .log file, or the entries of an index."""
    if not file.is_file():
        raise CommandFailed(f"{file}: there is no such file; say one of a partition's directory")
    if file.suffix == ".log":
        _dump_log(file, max_batches, with_records=records, as_json=as_json)
    elif file.suffix in (".index", ".timeindex"):
        _dump_index(file, max_batches, as_json=as_json)
    else:
        raise CommandFailed(f"{file}: what ends in .log, .index or .timeindex can be dumped")


# --- batches -------------------------------------------------------------------------------------


def _dump_log(path: Path, most: int | None, *, with_records: bool, as_json: bool) -> None:
    from ..protocol.errors import KafkaError
    from ..protocol.record_batch import check_batch
    from ..protocol.records import iterate_records

    count, record_count, position = 0, 0, 0
    for position, batch in batches_of(path):
        try:
            header = check_batch(batch)
            rows = [_record(row) for row in iterate_records(batch, check_crc=False)]
        except KafkaError as error:
            raise _damage(path, position, str(error)) from None
        count += 1
        record_count += header.record_count
        described = _batch(position, header)
        if as_json:
            print_json_line({**described, "records": rows} if with_records else described)
        else:
            _say(_batch_line(described))
            for row in rows if with_records else ():
                _say(_record_line(row))
        if count == most:
            break
    if not as_json:
        typer.echo(
            f"{count} batches, {record_count} records, {path.stat().st_size} bytes", err=True
        )


def batches_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """(position, bytes) of each batch, by its length alone.

    Raises:
        CommandFailed: a length that cannot be; the file ends within a batch.
    """
    from ..protocol.record_batch import HEADER_SIZE, read_size

    size = path.stat().st_size
    if not size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
        position = 0
        while position < size:
            if size - position < HEADER_SIZE:
                raise _damage(path, position, f"{size - position} bytes are less than a header")
            _, batch_size = read_size(memoryview(data)[position : position + HEADER_SIZE])
            if batch_size < HEADER_SIZE:
                raise _damage(path, position, f"a batch of {batch_size} bytes")
            if position + batch_size > size:
                missing = position + batch_size - size
                raise _damage(path, position, f"the batch's last {missing} bytes are missing")
            yield position, data[position : position + batch_size]
            position += batch_size


def _damage(path: Path, position: int, reason: str) -> CommandFailed:
    return CommandFailed(
        f"{path}: damage at byte {position}: {reason}; "
        "a broker cuts its log off here when it recovers after a crash"
    )


def _batch(position: int, header: RecordBatchHeader) -> dict[str, Any]:
    return {
        "position": position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.base_offset + header.last_offset_delta,
        "record_count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "codec": CODECS[header.codec] if header.codec < len(CODECS) else header.codec,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
    }


def _batch_line(batch: dict[str, Any]) -> str:
    line = (
        f"@{batch['position']:<10} offsets {batch['base_offset']}-{batch['last_offset']}  "
        f"records {batch['record_count']}  bytes {batch['size']}  epoch {batch['leader_epoch']}  "
        f"codec {batch['codec']}  time {_time(batch['max_timestamp'])}"
    )
    if batch["producer_id"] >= 0:
        line += (
            f"  producer {batch['producer_id']}/{batch['producer_epoch']} "
            f"sequence {batch['base_sequence']}"
        )
    for mark in ("transactional", "control"):
        if batch[mark]:
            line += f"  {mark}"
    return line


def _record(record: Any) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [{"key": name, "value": _text(value)} for name, value in record.headers],
    }


def _record_line(record: dict[str, Any]) -> str:
    line = f"  {record['offset']:<10} {_time(record['timestamp'])}  "
    if record["key"] is not None:
        line += f"{_cut(record['key'])}: "
    line += "(null)" if record["value"] is None else _cut(record["value"])
    for header in record["headers"]:
        line += f"  [{header['key']}={_cut(header['value'] or '')}]"
    return line


def _text(content: bytes | None) -> str | None:
    """As text, or in base64 with a mark where it is none."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(content).decode()


def _cut(text: str) -> str:
    shown = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return shown if len(shown) <= SHOWN_BYTES else f"{shown[: SHOWN_BYTES - 3]}..."


def _time(timestamp: int) -> str:
    """Milliseconds since 1970 as ISO 8601, or as they are where no calendar has them."""
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return "-" if timestamp < 0 else moment.isoformat(timespec="milliseconds")


# --- indexes -------------------------------------------------------------------------------------


def _dump_index(path: Path, most: int | None, *, as_json: bool) -> None:
    kind: Literal["offset", "time"] = "offset" if path.suffix == ".index" else "time"
    for count, entry in enumerate(index_entries(path, kind)):
        if count == most:
            break
        if as_json:
            print_json_line(entry)
        elif kind == "offset":
            _say(f"offset {entry['offset']}  position {entry['position']}")
        else:
            _say(f"timestamp {_time(entry['timestamp'])}  offset {entry['offset']}")


def index_entries(path: Path, kind: Literal["offset", "time"]) -> Iterator[dict[str, int]]:
    """The entries of an index; what a broker allocated ahead of use is left out.

    Raises:
        CommandFailed: no base offset in the name, a part of an entry, or entries out of order.
    """
    from ..storage import offset_index, time_index

    if not path.stem.isdecimal():
        raise CommandFailed(
            f"{path}: the name of an index is its base offset, as in 000368769.index"
        )
    base_offset = int(path.stem)
    layout = offset_index.ENTRY if kind == "offset" else time_index.ENTRY
    content = path.read_bytes()
    before: tuple[int, ...] = ()
    for position in range(0, len(content), layout.size):
        if position + layout.size > len(content):
            raise _index_damage(path, position, "a part of an entry")
        entry = layout.unpack_from(content, position)
        if not any(entry) and before:
            return  # a preallocated tail
        if before and not all(now >= then for now, then in zip(entry, before, strict=True)):
            raise _index_damage(path, position, f"{entry} after {before}")
        before = entry
        if kind == "offset":
            yield {"offset": base_offset + entry[0], "position": entry[1]}
        else:
            yield {"timestamp": entry[0], "offset": base_offset + entry[1]}


def _index_damage(path: Path, position: int, reason: str) -> CommandFailed:
    return CommandFailed(
        f"{path}: damage at byte {position}: {reason}; "
        "delete the index while the broker is stopped, and it is made anew from the log"
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
