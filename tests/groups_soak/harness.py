"""Groups of every client on one topic, while members join, leave and are killed, and coordinators too.

    outcome = Soak(cluster.bootstrap_servers, folder, coordinators=...).run(60)
    faults = check(read_history(folder))

A producer goes on all the while. Then the faults stop, every seat is taken, and all groups must have
committed the last record within SETTLE_SECONDS; what happened is in the folder, for the checker.
Faults come from a seeded generator: the same seed is the same sequence, though not the same instants.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

import bradbury
from bradbury import TopicPartition
from bradbury.protocol.errors import ConnectionFailed, KafkaError

from .history import Lines, who_has_read, write_log, write_plan
from .offsets_topic import read_log
from .processes import JAVA, Occupant, Seat, end_all

TOPIC = "groups-soak"
FIRST_OFFSET = 0
"""Committed before anybody joins, so that no member has to ask where a partition begins: librdkafka
(2.16) may go back there half a second after it got an answer that a rebalance has outdated.
"""
PARTITIONS = 6
RECORDS_PER_SECOND = 100
FAULT_SECONDS = (3.0, 7.0)
COORDINATOR_SECONDS = 15.0
SETTLE_SECONDS = 120.0

SEATS = (
    Seat("mixed", "kafka-python"),
    Seat("mixed", "confluent"),
    Seat("mixed", "aiokafka"),
    Seat("mixed", JAVA),
    Seat("mixed", "bradbury"),
    Seat("mixed", "confluent", instance="static"),
    Seat("cooperative", "confluent", "cooperative-sticky"),
    Seat("cooperative", "bradbury", "cooperative-sticky"),
)


@dataclass
class Outcome:
    """What a run did. problems: groups that did not settle, members that ended by themselves."""

    faults: Counter[str] = field(default_factory=Counter)
    produced: int = 0
    settle_seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class SteadyProducer:
    """Unique numbers to all partitions, until told to stop; each acknowledged one is written down."""

    def __init__(self, servers: str, lines: Lines) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 300_000,
            }
        )
        self._lines = lines
        self._stop = threading.Event()
        self.acknowledged = 0
        self.ends: Counter[int] = Counter()
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name="producer")
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(10 / RECORDS_PER_SECOND):
            for _ in range(10):
                self._producer.produce(
                    TOPIC,
                    str(number).encode(),
                    partition=number % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
            self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        partition, offset = message.partition(), message.offset()
        self._lines.write(partition=partition, offset=offset, value=int(message.value()))
        self.acknowledged += 1
        self.ends[partition] = max(self.ends[partition], offset + 1)

    def stop(self) -> None:
        """Idempotent."""
        self._stop.set()
        self._thread.join()

    def finish(self) -> None:
        """Stop, and wait for the last acknowledgement."""
        self.stop()
        left = self._producer.flush(120)
        assert not left, f"{left} records were never acknowledged"
        assert not self.failures, self.failures[:3]


class Soak:
    """One run.

    Args:
        servers: of the cluster.
        folder: for the history.
        coordinators: gives the process ids of the coordinators that are up now.
        seats: the groups, and who is in them.
        seed: of the sequence of faults.
        pace: 2.0 makes them come twice as fast.
        on_progress: told how many seconds are over, and what was done.
    """

    def __init__(
        self,
        servers: str,
        folder: Path,
        *,
        coordinators: Callable[[], list[int]],
        seats: tuple[Seat, ...] = SEATS,
        seed: int = 0,
        pace: float = 1.0,
        on_progress: Callable[[float, str], None] = lambda seconds, text: None,
    ) -> None:
        self._servers = servers
        self._folder = folder
        self._coordinators = coordinators
        self._random = random.Random(seed)
        self._pace = pace
        self._on_progress = on_progress
        self._nemesis = Lines(folder / "nemesis.jsonl")
        self._nemesis.event("begin", seed=seed, seats=[one.name for one in seats])
        self.occupants = [Occupant(seat, number) for number, seat in enumerate(seats)]
        self.outcome = Outcome()

    def run(self, seconds: float) -> Outcome:
        """Faults for `seconds`, then peace; all processes are gone when it returns."""
        with bradbury.Admin(self._servers) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
            for group in sorted({one.seat.group for one in self.occupants}):
                admin.alter_group_offsets(group, dict.fromkeys(_places(), FIRST_OFFSET))
            produced = Lines(self._folder / "produced.jsonl")
            producer = SteadyProducer(self._servers, produced)
            try:
                for one in self.occupants:
                    self._start(one)
                self._make_trouble(seconds)
                for one in self.occupants:
                    if one.leaving or not one.is_running:
                        one.end()
                        self._start(one)
                self._until_all_have_read()
                producer.finish()
                self.outcome.produced = producer.acknowledged
                self._settle(admin, producer.ends)
            finally:
                end_all(self.occupants)
                producer.stop()
                self._write_plan()
        log = read_log(self._servers, {one.seat.group for one in self.occupants}, TOPIC)
        write_log(self._folder, log)
        self._nemesis.event("end")
        return self.outcome

    def _write_plan(self) -> None:
        names = {name: one.seat.group for one in self.occupants for name in one.names}
        write_plan(self._folder, PARTITIONS, names)

    def _start(self, one: Occupant) -> None:
        name = one.start(self._servers, TOPIC, self._folder)
        self._nemesis.event("join", process=name, pid=one.process and one.process.pid)

    # --- faults ----------------------------------------------------------------------------------

    def _make_trouble(self, seconds: float) -> None:
        began = time.monotonic()
        coordinator_at = began + min(COORDINATOR_SECONDS, seconds / 3)
        fault_at = began + FAULT_SECONDS[0]
        rolling: list[int] = []
        while (now := time.monotonic()) < began + seconds:
            self._look_after_members()
            if now >= coordinator_at:
                rolling = rolling or self._coordinators()
                if rolling:
                    self._kill_coordinator(rolling.pop())
                # One after the other, then again from the first.
                coordinator_at = now + COORDINATOR_SECONDS / self._pace
            if now >= fault_at:
                self._trouble_a_member()
                fault_at = now + self._random.uniform(*FAULT_SECONDS) / self._pace
            self._on_progress(now - began, self._summary())
            time.sleep(0.2)

    def _summary(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self.outcome.faults.items()))

    def _look_after_members(self) -> None:
        """A member that ended though nobody asked it to is a problem, and is replaced."""
        for one in self.occupants:
            if one.process is not None and not one.is_running and not one.leaving:
                code = one.process.returncode
                if code != -signal.SIGKILL:
                    self.outcome.problems.append(f"{one.names[-1]} ended with {code}")
                    self._nemesis.event("ended", process=one.names[-1], code=code)
                    self._start(one)

    def _trouble_a_member(self) -> None:
        running = [one for one in self.occupants if one.is_running and not one.leaving]
        away = [one for one in self.occupants if not one.is_running]
        seated = Counter(one.seat.group for one in running)
        able = [one for one in running if seated[one.seat.group] > 1]
        if away and (self._random.random() < 0.5 or not able):
            self.outcome.faults["joins"] += 1
            self._start(self._random.choice(away))
            return
        if not able:
            return
        victim = self._random.choice(able)
        if self._random.random() < 0.5:
            self.outcome.faults["leaves"] += 1
            self._nemesis.event("leave", process=victim.names[-1])
            victim.leave()
        else:
            self.outcome.faults["kills of members"] += 1
            self._nemesis.event("kill", process=victim.names[-1])
            victim.kill()

    def _kill_coordinator(self, pid: int) -> None:
        self.outcome.faults["kills of coordinators"] += 1
        self._nemesis.event("kill-coordinator", pid=pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it was restarted since we asked

    # --- peace -----------------------------------------------------------------------------------

    def _until_all_have_read(self) -> None:
        """Wait: on a busy machine a client may start so late that the run shows nothing about it."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            if all(who_has_read(self._folder, one.names) for one in self.occupants):
                return
            self._look_after_members()
            time.sleep(0.5)

    def _settle(self, admin: bradbury.Admin, ends: Counter[int]) -> None:
        """Until every group has committed all there is."""
        began = time.monotonic()
        groups = sorted({one.seat.group for one in self.occupants})
        behind: dict[str, str] = {}
        while time.monotonic() < began + SETTLE_SECONDS:
            behind = {}
            for group in groups:
                try:
                    found = admin.group_offsets(group)
                    (state,) = {one.state for one in admin.describe_groups([group])}
                except (KafkaError, ConnectionFailed) as error:
                    behind[group] = str(error)
                    continue
                short = {
                    number: end
                    for number, end in sorted(ends.items())
                    if (TOPIC, number) not in found or found[TOPIC, number].offset < end
                }
                if short or state != "Stable":
                    behind[group] = f"{state}, not yet at the ends {short}"
            self.outcome.settle_seconds = time.monotonic() - began
            if not behind:
                return
            self._on_progress(-1, "settling")
            time.sleep(0.3)
        for group, text in behind.items():
            self.outcome.problems.append(
                f"group {group!r} did not settle within {SETTLE_SECONDS:.0f} s: {text}"
            )


def _places() -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
