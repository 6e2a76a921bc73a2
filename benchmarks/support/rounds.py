"""Rounds in which two brokers are measured in turn; ratios, and their tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .contestants import Contestant, alone
from .measures import Goal, Turns

CLIENT_IS_FULL = 0.9
WARM_UP_ROUNDS = 2


@dataclass(slots=True)
class Figures:
    """Pairs (Bradbury, Kafka), one for each round, by name of the measure; and the client's CPU."""

    pairs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    client_cpu: dict[str, list[float]] = field(default_factory=dict)

    def add(self, found: dict[str, dict[str, float]]) -> None:
        for name, value in found["Bradbury"].items():
            self.pairs.setdefault(name, []).append((value, found["Kafka"][name]))

    def ratio(self, name: str) -> float:
        return statistics.median(ours / theirs for ours, theirs in self.pairs[name])


Measure = Callable[[Contestant, str, Figures], dict[str, float]]


def touch_memory(gigabytes: float) -> None:
    """Write to this many GB of memory, and free them.

    A virtual machine that has returned free pages to its host pays for the first write to each
    page,
    also in the page cache: that is a cost of the host, not of a broker, and the same for both.
    """
    np.ones(int(gigabytes * 1e9), np.uint8)


def compare(
    brokers: list[Contestant],
    chosen: dict[str, Measure],
    rounds: int,
    figures: Figures,
    *,
    touch_gigabytes: float = 0.0,
) -> None:
    """Run the rounds, with both brokers in turn; the first rounds of each measure only warm up.

    touch_gigabytes: GB of memory written to before each measurement.
    """
    turns = Turns()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(chosen) * (rounds + WARM_UP_ROUNDS) * 2)
        for name, measure in chosen.items():
            for number in range(rounds + WARM_UP_ROUNDS):
                found: dict[str, dict[str, float]] = {}
                ignored = Figures()
                for broker in brokers if number % 2 else reversed(brokers):
                    progress.update(task, description=f"{name}: {broker.name}", advance=1)
                    counts = number >= WARM_UP_ROUNDS
                    with alone(broker, brokers):
                        topic = turns.next(broker, f"{name.replace(' ', '-')}-{number}")
                        touch_memory(touch_gigabytes)
                        found[broker.name] = measure(broker, topic, figures if counts else ignored)
                if number >= WARM_UP_ROUNDS:
                    figures.add(found)


def show(figures: Figures, goals: Mapping[str, Goal], console: Console) -> None:
    table = Table("measure", "Bradbury", "Kafka", "ratio", "goal", "", title="median of the rounds")
    for name, pairs in figures.pairs.items():
        ratio, goal = figures.ratio(name), goals.get(name)
        ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        verdict = "" if goal is None else "met" if goal.is_met(ratio) else "missed"
        wanted = "" if goal is None else str(goal)
        table.add_row(name, f"{ours:,.2f}", f"{theirs:,.2f}", f"{ratio:.2f}", wanted, verdict)
    console.print(table)
    full = [
        f"{name} ({statistics.median(cpu):.0%})"
        for name, cpu in figures.client_cpu.items()
        if statistics.median(cpu) >= CLIENT_IS_FULL
    ]
    if full:
        console.print("The client used a whole core or more, and is part of the limit: ", *full)


def json_of(figures: Figures, goals: Mapping[str, Goal]) -> dict[str, object]:
    return {
        name: {
            "bradbury": [ours for ours, _ in pairs],
            "kafka": [theirs for _, theirs in pairs],
            "ratio": figures.ratio(name),
            "goal": None if name not in goals else str(goals[name]),
            "met": None if name not in goals else goals[name].is_met(figures.ratio(name)),
        }
        for name, pairs in figures.pairs.items()
    } | {"client CPU, cores": figures.client_cpu}
