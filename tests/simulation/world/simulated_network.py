"""Virtual time, processes that die and hang, and a network between their machines.

One heap of (time in ms, sequence, event). An event belongs to a life of a process: if that has died
it is dropped, if it hangs it waits and comes in a burst afterwards. Nothing here looks at a clock,
and all chance comes from one random.Random, so a seed gives the same run each time.

A call is a request and one answer, either of which may be lost, doubled or late; the asking side
then gets LOST, which says nothing about what the other side has done. Where the network is
`ordered`, what one life of a process sends to one life of another arrives in order, as on a
connection or between two actors.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from bradbury.protocol.errors import KafkaError

Event = Callable[[], None]
Answer = Callable[[Any], None]


class Lost:
    """No answer came in time."""


LOST: Final = Lost()


class VirtualClock:
    """The heap. `now_ms` moves only in `run`."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.steps = 0
        self.digest = 0
        """A digest of all events so far: of two runs of one seed it must be the same."""
        self._heap: list[tuple[int, int, Event]] = []
        self._sequence = 0

    def after(self, delay_ms: int, event: Event) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._sequence, event))

    def note(self, value: int) -> None:
        """Something that must be the same in each run of the seed."""
        self.digest = (self.digest * 1_000_003 + value) & 0xFFFFFFFFFFFFFFFF

    def run(self, until_ms: int, *, is_done: Callable[[], bool] | None = None) -> None:
        """All events up to a time; or fewer, as soon as `is_done` (asked every 64 events)."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            self.now_ms, sequence, event = heapq.heappop(heap)
            self.steps += 1
            self.note(self.now_ms ^ (sequence << 20))
            event()
            if is_done is not None and self.steps % 64 == 0 and is_done():
                return
        self.now_ms = until_ms


class Process:
    """What can die, hang and be started again on a machine. Life 0 has not begun."""

    def __init__(self, clock: VirtualClock, machine: int, name: str) -> None:
        self.clock, self.machine, self.name = clock, machine, name
        self.life = 0
        self.born_ms = 0
        """When this life has begun."""
        self.is_up = False
        self.is_paused = False
        self.paused = 0
        """How often it hung."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """On which its events run, for those that await."""
        self._backlog: list[tuple[int, Event]] = []

    def begin_life(self) -> None:
        assert not self.is_up
        self.life += 1
        self.born_ms = self.clock.now_ms
        self.is_up, self.is_paused = True, False
        self._backlog.clear()

    def end_life(self) -> None:
        self.is_up = self.is_paused = False
        self._backlog.clear()

    def pause(self) -> None:
        self.is_paused = self.is_up
        self.paused += 1

    def resume(self) -> None:
        if not self.is_paused:
            return
        self.is_paused = False
        backlog, self._backlog = self._backlog, []
        for life, event in backlog:
            self.run(life, event)

    def run(self, life: int, event: Event) -> None:
        """Now, if this is still that life."""
        if life != self.life or not self.is_up:
            return
        if self.is_paused:
            self._backlog.append((life, event))
        elif self.loop is None:
            event()
        else:
            before = asyncio._get_running_loop()
            asyncio._set_running_loop(self.loop)
            try:
                event()
            finally:
                asyncio._set_running_loop(before)

    def after(self, delay_ms: int, event: Event) -> None:
        life = self.life
        self.clock.after(delay_ms, lambda: self.run(life, event))


@dataclass(slots=True)
class Weather:
    """How bad the network is. Delays are in ms, the others are probabilities."""

    loss: float = 0.0
    repeat: float = 0.0
    delay_ms: int = 2
    late: float = 0.0
    late_ms: int = 300
    ordered: bool = True


@dataclass(slots=True)
class Network:
    """The network between machines; on one machine nothing is lost, doubled or late."""

    clock: VirtualClock
    random: Random
    weather: Weather
    cuts: set[tuple[int, int]] = field(default_factory=set)
    """(from, to): nothing gets through in this direction."""
    drop_answer: Callable[[Process, Process, str], bool] = lambda source, target, what: False
    """Whether the answer to just this call is to be lost: for faults at chosen moments."""
    _last: dict[tuple[str, int, str, int], int] = field(default_factory=dict)

    def heal(self) -> None:
        self.cuts.clear()
        self.weather = Weather()
        self.drop_answer = lambda source, target, what: False

    def cut(self, some: set[int], others: set[int], *, one_way: bool) -> None:
        for a in sorted(some):
            for b in sorted(others):
                self.cuts.add((a, b))
                if not one_way:
                    self.cuts.add((b, a))

    def mend(self, some: set[int], others: set[int]) -> None:
        self.cuts -= {(a, b) for a in some for b in others} | {(b, a) for a in some for b in others}

    def send(
        self, source: Process, target: Process, event: Event, *, is_connection: bool = False
    ) -> None:
        """One message; `event` runs in the life that the target has when it arrives.

        is_connection: it comes once, after those that were sent before it.
        """
        if source.machine == target.machine:
            self.clock.after(1, lambda: target.run(target.life, event))
            return
        random, weather = self.random, self.weather
        if (source.machine, target.machine) in self.cuts:
            return
        if weather.loss and random.random() < weather.loss:
            return
        copies = 1
        if weather.repeat and not is_connection and random.random() < weather.repeat:
            copies = 2
        for _ in range(copies):
            delay = 1 + int(random.random() * weather.delay_ms)
            if weather.late and random.random() < weather.late:
                delay += int(random.random() * weather.late_ms)
            if weather.ordered or is_connection:
                key = (source.name, source.life, target.name, target.life)
                at = max(self.clock.now_ms + delay, self._last.get(key, 0))
                self._last[key] = at
                delay = at - self.clock.now_ms
            self.clock.after(delay, lambda: target.run(target.life, event))

    def call(
        self,
        source: Process,
        target: Process,
        handle: Callable[[Answer], None],
        on_answer: Answer,
        *,
        timeout_ms: int,
        what: str = "",
        is_connection: bool = False,
    ) -> None:
        """Run `handle` at the target and `on_answer` here, with what it answered or LOST, once."""
        answered = [False]
        life = source.life

        def arrive(result: Any) -> None:
            if not answered[0]:
                answered[0] = True
                on_answer(result)

        def answer(result: Any) -> None:
            if not self.drop_answer(source, target, what) and source.life == life:
                self.send(
                    target,
                    source,
                    lambda: arrive(result) if source.life == life else None,
                    is_connection=is_connection,
                )

        if not target.is_up and (target.machine, source.machine) not in self.cuts:
            source.after(3, lambda: arrive(LOST))  # connection refused
            return
        self.send(source, target, lambda: handle(answer), is_connection=is_connection)
        source.after(timeout_ms, lambda: arrive(LOST))


def is_error(result: object) -> bool:
    """Whether a call was refused, or nothing is known of it."""
    return result is LOST or isinstance(result, KafkaError)
