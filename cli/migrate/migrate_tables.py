"""Output of the migration commands: tables and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..terminal.output import count_text, note, print_table

if TYPE_CHECKING:
    from ...pipelines.migrations.cut_over import CutOver
    from ...pipelines.migrations.migration_status import MigrationStatus
    from ...pipelines.migrations.verification import PartitionCheck

DIFFERENT = "different"
MOST_NAMES = 5


def print_status(status: MigrationStatus) -> None:
    """Print topics and groups as two tables, and the next step."""
    if status.topics:
        print_table(
            ("topic", "partitions", "behind", "late", "open transactions"),
            [
                (one.topic, one.partitions, one.behind, one.late, one.open_transactions)
                for one in status.topics
            ],
            optional=("open transactions",),
        )
    if status.groups:
        print_table(
            ("group", "in the source", "partitions", "set here", "unread there", "not moved"),
            [
                (one.group, one.state, one.partitions, one.set, one.unread, one.left)
                for one in status.groups
            ],
            optional=("not moved",),
        )
    if status.left_out:
        more = len(status.left_out) - MOST_NAMES
        names = ", ".join(status.left_out[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        note(f"topics left out: {names}")
    note(
        f"{status.state}: {count_text(status.behind, 'offset')} behind"
        + (f", {count_text(status.late, 'late record')}" if status.late else "")
    )
    note(f"Next: {status.next_step}")


def status_json(status: MigrationStatus) -> dict[str, object]:
    note_of = status.note
    return {
        "source": status.source,
        "target": status.target,
        "state": status.state,
        "number": None if note_of is None else note_of.number,
        "since_ms": None if note_of is None else note_of.at,
        "behind": status.behind,
        "late": status.late,
        "next": status.next_step,
        "topics": [
            {
                "topic": one.topic,
                "partitions": one.partitions,
                "behind": one.behind,
                "late": one.late,
                "open_transactions": one.open_transactions,
            }
            for one in status.topics
        ],
        "groups": [
            {
                "group": one.group,
                "state": one.state,
                "partitions": one.partitions,
                "set": one.set,
                "unread": one.unread,
                "not_moved": one.left,
            }
            for one in status.groups
        ],
        "left_out": list(status.left_out),
    }


def print_checks(checks: Sequence[PartitionCheck]) -> None:
    if not checks:
        note("nothing to compare")
        return
    print_table(
        ("topic", "partition", "compared", "source", "target", "checksum", "remark"),
        [
            (
                one.partition.topic,
                one.partition.partition,
                one.kind,
                one.source_sum.records,
                one.target_sum.records,
                _sum(one),
                one.remark,
            )
            for one in checks
        ],
        optional=("compared",),
    )
    differing = sum(not one.is_same for one in checks)
    records = sum(one.source_sum.records for one in checks)
    where = count_text(len(checks), "partition")
    if differing:
        note(f"{differing:,} of {where} differ")
    else:
        note(f"the same: {count_text(records, 'record')} of {where}")


def _sum(check: PartitionCheck) -> str:
    if check.is_same:
        return check.source_sum.sum[:16]
    return DIFFERENT if check.source_sum.records == check.target_sum.records else "other records"


def check_json(check: PartitionCheck) -> dict[str, object]:
    return {
        "topic": check.partition.topic,
        "partition": check.partition.partition,
        "compared": check.kind,
        "same": check.is_same,
        "source": {
            "start": check.source[0],
            "end": check.source[1],
            "records": check.source_sum.records,
            "checksum": check.source_sum.sum,
        },
        "target": {
            "start": check.target[0],
            "end": check.target[1],
            "records": check.target_sum.records,
            "checksum": check.target_sum.sum,
        },
        "remark": check.remark,
    }


def print_cut_over(done: CutOver) -> None:
    differing = [one for one in done.checks if not one.is_same]
    if differing:
        print_checks(differing)
        return
    print_groups = [
        (
            one.group,
            one.partitions,
            "has members here, nothing was set" if one.has_members else _exactly(one.again),
        )
        for one in done.groups
    ]
    if print_groups:
        print_table(("group", "partitions", "offsets"), print_groups)
    for remark in done.remarks:
        note(remark)
    remarks = sum(bool(one.remark) for one in done.checks)
    if remarks:
        note(f"{count_text(remarks, 'partition')} could be compared in part only: migrate verify")
    what = "copied the late records" if done.is_late else "cut over"
    note(f"{what}: {count_text(done.partitions, 'partition')}; {_records_text(done)}")


def _records_text(done: CutOver) -> str:
    copied = f"{count_text(done.records, 'record')} copied in this step"
    if not done.records:
        copied = "no record was left to copy"
    if not done.checks:
        return f"{copied}; the clusters were not compared"
    compared = sum(one.source_sum.records for one in done.checks)
    if not compared:
        return f"{copied}; all were compared before: the clusters are the same"
    records = count_text(compared, "record")
    return f"{copied}; {records} compared in this step: the clusters are the same"


def _exactly(again: Sequence[object]) -> str:
    if not again:
        return "exact"
    return f"some records again in {', '.join(str(one) for one in again[:MOST_NAMES])}"


def cut_over_json(done: CutOver) -> dict[str, object]:
    return {
        "done": done.is_done,
        "late": done.is_late,
        "records": done.records,
        "partitions": done.partitions,
        "groups": [
            {
                "group": one.group,
                "partitions": one.partitions,
                "again": [str(key) for key in one.again],
                "has_members": one.has_members,
            }
            for one in done.groups
        ],
        "checks": [check_json(one) for one in done.checks],
        "remarks": list(done.remarks),
    }
