"""The command `bradbury log dump`: prints the files of a log, read without a broker.

    00000000000000368769.log        its record batches; with --records their records
    00000000000000368769.index      offset and position of each entry
    00000000000000368769.timeindex  timestamp and offset of each entry
    00000000000000368769.txnindex   the transactions that were aborted in the segment

A message of magic 0 or 1, as Kafka wrote before 0.11, is a batch, too: of one record, or of those
compressed in it. Every batch is checked as the broker checks it. At the first damage the dump
prints place and reason, and ends with exit code 1. Nothing is changed: it may be run on the files
of a live broker. Keys of SCRAM credentials in the metadata log are hidden.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..terminal.failure import CommandFailed, UsageError
from ..terminal.moments import show_time
from ..terminal.output import count_text, note, print_json_line
from .log_files import Damage, content_of, locate_batches, walk_index, walk_transactions

if TYPE_CHECKING:
    from ...protocol.records.record_batch import RecordBatchHeader

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SHOWN_BYTES = 120


def dump(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Path of a .log, .index, .timeindex or .txnindex file."
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show the records of every batch, too.")
    ] = False,
    max_batches: Annotated[
        int | None,
        typer.Option(
            "--max", "-n", min=1, metavar="N", help="Maximum number of batches or entries."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """Show the batches and records of a .log file, or the entries of an index."""
    if file.is_dir():
        raise UsageError(
            f"{file} is a directory; name a .log or index file in it, or use `bradbury log verify`"
        )
    if not file.is_file():
        raise UsageError(f"{file}: there is no such file; use one of a partition's directory")
    if file.suffix == ".log":
        _dump_log(file, max_batches, with_records=records, as_json=as_json)
    elif file.suffix in (".index", ".timeindex"):
        _dump_index(file, max_batches, as_json=as_json)
    elif file.suffix == ".txnindex":
        _dump_transactions(file, max_batches, as_json=as_json)
    else:
        raise UsageError(f"{file}: use a file that ends in .log, .index, .timeindex or .txnindex")


# --- batches -------------------------------------------------------------------------------------


def _dump_log(path: Path, most: int | None, *, with_records: bool, as_json: bool) -> None:
    from ...protocol.errors import KafkaError
    from ...protocol.records.old_batches import is_old, read_old_batch
    from ...protocol.records.record_batch import check_batch
    from ...protocol.records.records import iterate_records

    count, record_count = 0, 0
    with content_of(path) as data:
        try:
            for position, size in locate_batches(data):
                batch = data[position : position + size]
                try:
                    if is_old(batch):
                        header, found = read_old_batch(batch)
                    else:
                        header = check_batch(batch)
                        found = list(iterate_records(batch, check_crc=False))
                    rows = [_record(row) for row in found]
                    marker = _marker(batch) if header.is_control else {}
                except KafkaError as error:
                    raise Damage(position, str(error)) from None
                count += 1
                record_count += header.record_count
                described = _batch(position, header) | marker
                if as_json:
                    print_json_line({**described, "records": rows} if with_records else described)
                else:
                    _say(_batch_line(described))
                    for row in rows if with_records else ():
                        _say(_record_line(row))
                if count == most:
                    break
        except Damage as damage:
            raise _damage(path, damage) from None
    if not as_json:
        records = count_text(record_count, "record")
        batches = f"{count:,} batch" if count == 1 else f"{count:,} batches"
        note(f"{batches}, {records}, {path.stat().st_size:,} bytes")


def _damage(path: Path, damage: Damage) -> CommandFailed:
    from ...storage.disk.file_system import OsFileSystem
    from ...storage.segments.lost_segments import is_lost

    if is_lost(OsFileSystem(), str(path)):
        return CommandFailed(
            f"{path} is a mark: the records of this segment were lost, and a start has put it in "
            "their place (docs/recovery.md)"
        )
    return CommandFailed(
        f"{path}: damage at byte {damage.position}: {damage}; what is behind it is not shown. A "
        "broker keeps that in a closed segment, and in the last one up to what was flushed "
        "(docs/recovery.md)"
    )


def _batch(position: int, header: RecordBatchHeader) -> dict[str, Any]:
    return {
        "position": position,
        "size": header.size,
        "magic": header.magic,
        "base_offset": header.base_offset,
        "last_offset": header.base_offset + header.last_offset_delta,
        "record_count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "codec": CODECS[header.codec] if header.codec < len(CODECS) else header.codec,
        "timestamp_type": _timestamp_type(header),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
    }


def _marker(batch: Any) -> dict[str, Any]:
    """Describe the transaction marker of a control batch; {} if it has none. Raises KafkaError."""
    from ...protocol.records.end_transaction_marker import read_marker

    marker = read_marker(batch)
    if marker is None:
        return {}
    return {
        "marker": "commit" if marker.is_commit else "abort",
        "coordinator_epoch": marker.coordinator_epoch,
    }


def _timestamp_type(header: RecordBatchHeader) -> str:
    if not header.magic:
        return "NoTimestampType"
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _batch_line(batch: dict[str, Any]) -> str:
    is_young = batch["magic"] > 1
    format_ = f"epoch {batch['leader_epoch']}" if is_young else f"magic {batch['magic']}"
    line = (
        f"@{batch['position']:<10} offsets {batch['base_offset']}-{batch['last_offset']}  "
        f"records {batch['record_count']}  bytes {batch['size']}  {format_}  "
        f"codec {batch['codec']}  time {show_time(batch['max_timestamp'])}"
    )
    if batch["producer_id"] >= 0:
        line += (
            f"  producer {batch['producer_id']}/{batch['producer_epoch']} "
            f"sequence {batch['base_sequence']}"
        )
    for mark in ("transactional", "control"):
        if batch[mark]:
            line += f"  {mark}"
    if "marker" in batch:
        line += f" {batch['marker']}, coordinator epoch {batch['coordinator_epoch']}"
    return line


def _record(record: Any) -> dict[str, Any]:
    from ...cluster.metadata.user_records import without_keys

    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(without_keys(record.value)),
        "headers": [{"key": name, "value": _text(value)} for name, value in record.headers],
    }


def _record_line(record: dict[str, Any]) -> str:
    line = f"  {record['offset']:<10} {show_time(record['timestamp'])}  "
    if record["key"] is not None:
        line += f"{_cut(record['key'])}: "
    line += "(null)" if record["value"] is None else _cut(record["value"])
    for header in record["headers"]:
        line += f"  [{header['key']}={_cut(header['value'] or '')}]"
    return line


def _text(content: bytes | None) -> str | None:
    """Decode `content` as UTF-8, or as marked base64 if it is not text."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(content).decode()


def _cut(text: str) -> str:
    shown = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return shown if len(shown) <= SHOWN_BYTES else f"{shown[: SHOWN_BYTES - 3]}..."


# --- indexes -------------------------------------------------------------------------------------


def _dump_index(path: Path, most: int | None, *, as_json: bool) -> None:
    is_offset_index = path.suffix == ".index"
    try:
        for count, (_, key, target) in enumerate(walk_index(path)):
            if count == most:
                break
            if as_json:
                names = ("offset", "position") if is_offset_index else ("timestamp", "offset")
                print_json_line(dict(zip(names, (key, target), strict=True)))
            elif is_offset_index:
                _say(f"offset {key}  position {target}")
            else:
                _say(f"timestamp {show_time(key)}  offset {target}")
    except Damage as damage:
        raise _index_damage(path, damage) from None


def _dump_transactions(path: Path, most: int | None, *, as_json: bool) -> None:
    try:
        for count, transaction in enumerate(walk_transactions(path)):
            if count == most:
                break
            if as_json:
                print_json_line(transaction._asdict())
            else:
                _say(
                    f"producer {transaction.producer_id}  first offset {transaction.first_offset}  "
                    f"marker {transaction.last_offset}  "
                    f"last stable offset {transaction.last_stable_offset}"
                )
    except Damage as damage:
        raise _index_damage(path, damage) from None


def _index_damage(path: Path, damage: Damage) -> CommandFailed:
    return CommandFailed(
        f"{path}: damage at byte {damage.position}: {damage}; "
        "delete the index while the broker is stopped; the broker rebuilds it from the log"
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
