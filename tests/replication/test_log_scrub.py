"""Which segments the scrub reads, in which hours: its rounds, without disks and threads."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from bradbury.cluster.broker_config import BrokerConfig
from bradbury.protocol.config_key import HOUR_MS
from bradbury.replication.logs.log_scrub import LogScrub
from bradbury.replication.procedure import ProcedureSteps

DAY_MS = 24 * HOUR_MS
CONFIG = BrokerConfig(bradbury_log_scrub_hours="1-3", bradbury_log_scrub_interval_ms=DAY_MS)


class Healer:
    """Notes what is examined, which takes an hour each."""

    is_stopping = False

    def __init__(self) -> None:
        self.now_ms = 0
        self.examined: list[str] = []

    def examine(self, _: Any, segment: Any, *, is_throttled: bool) -> ProcedureSteps:
        assert is_throttled
        self.examined.append(segment.files.path)
        segment.is_proven = True
        self.now_ms += HOUR_MS
        yield from ()

    def at(self, day: int, hour: int) -> None:
        self.now_ms = day * DAY_MS + hour * HOUR_MS


def scrub_of(healer: Healer, *paths: str) -> LogScrub:
    """Of one log with these segments and an active one."""
    segments = [
        SimpleNamespace(is_proven=False, files=SimpleNamespace(path=path))
        for path in (*paths, "active")
    ]
    segments[-1].is_proven = True

    class Segments(list[Any]):
        active = segments[-1]

    log = SimpleNamespace(
        segments=Segments(segments),
        health=SimpleNamespace(is_online=True),
        damage=SimpleNamespace(ranges=()),
    )
    stands_in: Any = healer
    return LogScrub(
        stands_in,
        lambda: [SimpleNamespace(log=log)],  # type: ignore[list-item]
        CONFIG,
        SimpleNamespace(),  # type: ignore[arg-type]
        monotonic_ms=lambda: healer.now_ms,
        wall_ms=lambda: healer.now_ms,
    )


def run(scrub: LogScrub) -> None:
    assert list(scrub.scrub()) == []


def test_it_reads_in_its_hours_and_goes_on_the_next_day_where_it_was() -> None:
    healer = Healer()
    scrub = scrub_of(healer, "a", "b", "c")
    healer.at(0, 0)
    run(scrub)
    assert healer.examined == []
    healer.at(0, 1)
    run(scrub)
    assert healer.examined == ["a", "b"]
    healer.at(0, 12)
    run(scrub)
    assert healer.examined == ["a", "b"]
    healer.at(1, 2)  # a day after it began all is due again, behind what was never read
    run(scrub)
    assert healer.examined == ["a", "b", "c"]
    healer.at(2, 1)
    run(scrub)
    assert healer.examined[3:] == ["a", "b"]
    healer.at(3, 1)
    run(scrub)
    assert healer.examined[5:] == ["c", "active"]
    healer.at(3, 2)  # that round is over, and the next one is due a day later
    run(scrub)
    assert healer.examined[7:] == []
    healer.at(4, 2)
    run(scrub)
    assert healer.examined[7:] == ["a"]


def test_without_hours_it_reads_at_any() -> None:
    healer = Healer()
    scrub = scrub_of(healer, "a", "b", "c")
    scrub.config = replace(CONFIG, bradbury_log_scrub_hours="")
    healer.at(0, 12)
    run(scrub)
    assert healer.examined == ["a", "b", "c"]
