"""How does the status of a group look on a terminal?"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bradbury.clients.consumer_group.status import GroupStatus, MemberStatus, PartitionStatus
from bradbury.protocol.topic_partition import TopicPartition

TOPICS = ("departures", "flights")


def _member(number: int) -> MemberStatus:
    return MemberStatus(
        instance_id=f"delays-by-airport-{number}",
        state="restarting",
        workers=12,
        waiting=3,
        running=11,
        to_be_taken=1,
        records=1_234_567,
        records_per_second=98_765.4,
        failed=17,
        restarts=5,
        partitions=tuple(
            PartitionStatus(TopicPartition(topic, partition), position=10, committed=4, end=10)
            for topic in TOPICS
            for partition in range(number, 12, 2)
        ),
    )


def _shown(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(GroupStatus("delays-by-airport", (_member(0), _member(1))))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_every_figure_and_name_is_whole_at_any_width(width: int) -> None:
    shown = _shown(width)
    assert "…" not in shown
    assert all(len(line) <= width for line in shown.splitlines())
    for each in ("delays-by-airport-0", "delays-by-airport-1"):
        assert each in shown
    for each in ("restarting", "1,234,567", "98,765", "72", "12", "11", "17", "5"):
        assert shown.count(each) >= 2, each


def test_a_narrow_terminal_shows_a_paragraph_per_member_and_a_wide_one_a_table() -> None:
    assert "┃" not in _shown(80)
    assert "┃ member" in _shown(160)
    assert "departures 0 2 4 6 8 10, flights 0 2 4 6 8 10" in _shown(80)


def test_a_member_without_partitions_says_so() -> None:
    console = Console(file=io.StringIO(), width=40, color_system=None)
    console.print(GroupStatus("g", (MemberStatus(instance_id="g-0", state="running"),)))
    file = console.file
    assert isinstance(file, io.StringIO)
    assert "no partitions" in file.getvalue()
