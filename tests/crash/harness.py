"""One run: clients that write down what they see, while a nemesis troubles the brokers.

    outcome = CrashRun(cluster, folder, NEMESES["B1"]).run(60)
    # the cluster goes down
    faults = check(read_history(folder))

Writers of three clients (idempotent, acks=all, several requests in flight), readers that assign
themselves everything, a group of three clients, and somebody who asks for its committed offsets.
After `seconds` of faults the cluster is left alone until all replicas are in sync; then the writers
stop, fresh readers read everything from the beginning, and the group finishes.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

import bradbury
from bradbury.protocol.errors import ConnectionFailed, KafkaError
from bradbury.tests.crash import reader as reader_module, writer as writer_module
from bradbury.tests.groups_soak.history import read_lines, write_log, write_plan
from bradbury.tests.groups_soak.offsets_topic import read_log
from bradbury.tests.groups_soak.processes import ROOT, Occupant, Seat, end_all
from bradbury.tests.support.ray.ray_nodes import wait_for

from .cluster import CrashCluster
from .history import Lines, write_json
from .scene import Nemesis, Scene

TOPIC = "crash"
PARTITIONS = 8
REPLICATION_FACTOR = 3
MIN_INSYNC = 2
GROUP = "crash-group"
GROUP_FOLDER = "group"
"""The folder, in a run's, of the history for the checker of groups."""
WRITERS = ("confluent", "confluent", "aiokafka", "kafka-python")
READERS = ("confluent", "aiokafka")
MEMBERS = ("confluent", "aiokafka", "kafka-python")
FINAL_READERS = ("confluent", "kafka-python")
RATE = 100
"""Records a second, of each writer."""

HEAL_SECONDS = 120.0
PATIENCE_SECONDS = 60.0
FINAL_TRIES = 2
CALM_SECONDS = 2.0
LATE_SECONDS = 60.0
FLUSH_SECONDS = 150.0


@dataclass
class Outcome:
    """problems: what kept the run from coming to its end as it should."""

    faults: int = 0
    heal_seconds: float = 0.0
    recoveries: list[float] = field(default_factory=list)
    """Seconds until every actor served again, of faults that say so."""
    elections: int = 0
    problems: list[str] = field(default_factory=list)


class Watcher:
    """Leaders and ISR sizes as Metadata tells them to anybody, ten times a second.

    Writes a line whenever they have changed: {"leaders": [...], "in_sync": [...]}.
    """

    def __init__(self, servers: str, lines: Lines) -> None:
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self._lines = lines
        self._stop = threading.Event()
        self.leaders = [-1] * PARTITIONS
        self.in_sync = [0] * PARTITIONS
        self.elections = 0
        self._last_leaders = [-1] * PARTITIONS
        self._thread = threading.Thread(target=self._run, name="watcher")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            try:
                topic = self._admin.list_topics(TOPIC, timeout=1).topics[TOPIC]
            except KafkaException:
                continue
            if len(topic.partitions) != PARTITIONS:
                continue
            found = [topic.partitions[number] for number in range(PARTITIONS)]
            leaders, in_sync = [one.leader for one in found], [len(one.isrs) for one in found]
            if (leaders, in_sync) != (self.leaders, self.in_sync):
                self._lines.write(
                    event="state", time=time.monotonic_ns(), leaders=leaders, in_sync=in_sync
                )
            for number, leader in enumerate(leaders):
                if leader >= 0:
                    before = self._last_leaders[number]
                    self.elections += before not in (-1, leader)
                    self._last_leaders[number] = leader
            self.leaders, self.in_sync = leaders, in_sync

    def is_whole(self) -> bool:
        return min(self.leaders) >= 0 and min(self.in_sync) == REPLICATION_FACTOR

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class OffsetProbe:
    """Asks for the group's committed offsets, again and again, as anybody can."""

    def __init__(self, servers: str, lines: Lines) -> None:
        self._servers = servers
        self._lines = lines
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="offsets")
        self._thread.start()

    def _run(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": GROUP, "log_level": 0})
        wanted = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        while not self._stop.wait(0.5):
            begin = time.monotonic_ns()
            try:
                found = consumer.committed(wanted, timeout=5)
            except KafkaException as error:
                self._lines.write(event="failed", time=time.monotonic_ns(), error=str(error))
                continue
            offsets = {one.partition: one.offset for one in found if one.error is None}
            self._lines.write(
                event="fetched",
                time=time.monotonic_ns(),
                begin=begin,
                group=GROUP,
                offsets=offsets,
            )
        consumer.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class ClientProcess:
    """A writer or reader, as a process of its own."""

    def __init__(self, folder: Path, module: Any, kind: str, name: str, *words: str) -> None:
        self.name = name
        self.kind = kind
        self._is_asked = False
        command = [sys.executable, "-m", module.__name__, kind, "--topic", TOPIC, "--name", name]
        command += ["--history", str(folder / f"{name}.jsonl"), *words]
        with (folder / f"{name}.err").open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT / ".path"),
                    "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache"),
                },
                start_new_session=True,
            )

    def ask_to_end(self) -> None:
        """Once: a second signal would meet it on its way out, where nothing minds it any more."""
        if not self._is_asked and self.process.poll() is None:
            self._is_asked = True
            self.process.terminate()

    def end(self, seconds: float) -> str | None:
        """Ask it to end, and wait; what was wrong with it, if anything."""
        ended_before = self.process.poll()
        if ended_before is not None:
            return None if ended_before == 0 else f"{self.name} ended with {ended_before}"
        self.ask_to_end()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"{self.name} did not end within {seconds:.0f} s"
        return None if code == 0 else f"{self.name} ended with {code}"


class CrashRun:
    """One. The cluster is up and empty.

    Args:
        cluster: what is troubled.
        folder: for the history.
        nemesis: how.
        seed: of the faults' sequence.
        rate: records a second, of each writer.
        acks: of the writers, "all" (idempotent) or "1".
        min_insync: min.insync.replicas of the topic.
        most_seconds: the longest that a single fault may take.
        least_faults: where `seconds` were too short for so many, trouble goes on until they were made.
        patience: seconds until fresh readers, and then the group, must have everything.
        on_progress: told how many seconds of faults are over (-1: not in them), and what goes on.
    """

    def __init__(
        self,
        cluster: CrashCluster,
        folder: Path,
        nemesis: Nemesis,
        *,
        seed: int = 0,
        rate: int = RATE,
        acks: str = "all",
        min_insync: int = MIN_INSYNC,
        most_seconds: float = 30,
        least_faults: int = 0,
        patience: float = PATIENCE_SECONDS,
        on_progress: Any = lambda seconds, text: None,
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._nemesis = nemesis
        self._seed = seed
        self._rate = rate
        self._acks = acks
        self._min_insync = min_insync
        self._most_seconds = most_seconds
        self._least_faults = least_faults
        self._patience = patience
        self._on_progress = on_progress
        self._writers: list[ClientProcess] = []
        self._readers: list[ClientProcess] = []
        self._final: list[ClientProcess] = []
        seats = [Seat(GROUP, kind) for kind in MEMBERS]
        self._members = [Occupant(seat, number) for number, seat in enumerate(seats)]
        self.outcome = Outcome()

    def run(self, seconds: float) -> Outcome:
        """Faults for `seconds`, then peace; all clients are gone when it returns."""
        (self._folder / GROUP_FOLDER).mkdir()
        with self._cluster.admin() as admin:
            configs = {"min.insync.replicas": str(self._min_insync)}
            admin.create_topic(
                TOPIC, PARTITIONS, replication_factor=REPLICATION_FACTOR, configs=configs
            )
            watcher = Watcher(self._cluster.servers, Lines(self._folder / "watch.jsonl"))
            probe = OffsetProbe(self._cluster.servers, Lines(self._folder / "offsets.jsonl"))
            try:
                self._start_clients()
                self._warm_up()
                self._make_trouble(watcher, seconds)
                self._heal(watcher)
                self._finish_writing()
                ends = self._ends()
                self._read_all(ends)
                end = self._settle_group(admin, ends)
                end["in_sync"] = dict(enumerate(watcher.in_sync))
                write_json(self._folder / "end.json", end)
            finally:
                probe.stop()
                watcher.stop()
                end_all(self._members)
                for one in (*self._writers, *self._readers, *self._final):
                    if one.process.poll() is None:
                        one.end(5)
                self._write_plan()
        self.outcome.elections = watcher.elections
        self._write_group_files()
        return self.outcome

    # --- clients ---------------------------------------------------------------------------------

    def _start_clients(self) -> None:
        where = ("--servers", self._cluster.servers, "--partitions", str(PARTITIONS))
        for number, kind in enumerate(WRITERS, 1):
            words = (*where, "--number", str(number), "--rate", str(self._rate))
            one = ClientProcess(
                self._folder,
                writer_module,
                kind,
                f"writer-{number}-{kind}",
                *words,
                "--acks",
                self._acks,
            )
            self._writers.append(one)
        for number, kind in enumerate(READERS, 1):
            name = f"reader-{number}-{kind}"
            self._readers.append(ClientProcess(self._folder, reader_module, kind, name, *where))
        for member in self._members:
            member.start(self._cluster.servers, TOPIC, self._folder / GROUP_FOLDER)

    def _files(self) -> dict[str, Path]:
        names = [one.name for one in (*self._writers, *self._readers)]
        names += self._member_files()
        return {name: self._folder / f"{name}.jsonl" for name in names}

    def _member_files(self) -> list[str]:
        return [f"{GROUP_FOLDER}/{name}" for member in self._members for name in member.names]

    def _warm_up(self) -> None:
        """Until every client does what it is there for."""
        self._on_progress(-1, "clients start")
        wanted = {"acked", "records"}

        def all_work() -> bool:
            return all(
                path.is_file() and any(line["event"] in wanted for line in read_lines(path))
                for path in self._files().values()
            )

        wait_for(all_work, 60, "not all clients work")

    def _write_plan(self) -> None:
        final = [one.name for one in self._final]
        readers: dict[str, str | None] = {
            **{one.name: None for one in (*self._readers, *self._final)},
            **dict.fromkeys(self._member_files(), GROUP),
        }
        plan = {
            "partitions": PARTITIONS,
            "idempotent": self._acks == "all",
            "writers": {one.name: one.kind for one in self._writers},
            "readers": {name: group for name, group in readers.items() if self._has(name)},
            "final": final,
        }
        write_json(self._folder / "plan.json", plan)

    def _has(self, name: str) -> bool:
        return (self._folder / f"{name}.jsonl").is_file()

    def _write_group_files(self) -> None:
        """What the checker of groups wants beside what the members have written."""
        folder = self._folder / GROUP_FOLDER
        write_log(folder, read_log(self._cluster.servers, {GROUP}, TOPIC))
        names = {name: GROUP for member in self._members for name in member.names}
        write_plan(folder, PARTITIONS, names)
        produced = Lines(folder / "produced.jsonl")
        for partition, offset, value in self._acknowledged():
            produced.write(partition=partition, offset=offset, value=value)
        produced.close()

    def _acknowledged(self) -> Iterator[tuple[int, int, int]]:
        """(partition, offset, value); without those whose offset the client was not told, as of a
        batch that was there already.
        """
        for one in self._writers:
            for line in read_lines(self._folder / f"{one.name}.jsonl"):
                if line["event"] == "acked":
                    for partition, offset, value in line["records"]:
                        if offset is not None:
                            yield partition, offset, value

    # --- faults ----------------------------------------------------------------------------------

    def _make_trouble(self, watcher: Watcher, seconds: float) -> None:
        lines = Lines(self._folder / "faults.jsonl")
        scene = Scene(
            self._cluster,
            lines,
            self._seed,
            lambda: watcher.leaders,
            self._most_seconds,
            in_sync=lambda: watcher.in_sync,
            topic=TOPIC,
        )
        scene.note("begin", nemesis=self._nemesis.name, seed=self._seed)
        begin = time.monotonic()
        while (over := time.monotonic() - begin) < seconds or (
            scene.count < self._least_faults and over < seconds + LATE_SECONDS
        ):
            self._look_after_clients()
            self._nemesis.act(scene)
            self._on_progress(time.monotonic() - begin, f"{scene.count} faults")
            pause = scene.random.uniform(*self._nemesis.pause)
            left = begin + seconds - time.monotonic()
            time.sleep(pause if left <= 0 else min(pause, left))
        scene.note("end")
        self.outcome.faults = scene.count
        self.outcome.recoveries = scene.recoveries

    def _look_after_clients(self) -> None:
        for one in (*self._writers, *self._readers):
            if one.process.poll() is not None:
                problem = f"{one.name} ended by itself, with {one.process.returncode}"
                if problem not in self.outcome.problems:
                    self.outcome.problems.append(problem)

    def _heal(self, watcher: Watcher) -> None:
        self._on_progress(-1, "healing")
        begin = time.monotonic()
        try:
            self._cluster.wait_until_whole(HEAL_SECONDS)
            wait_for(watcher.is_whole, HEAL_SECONDS, "not all replicas come in sync")
        except AssertionError as error:
            self.outcome.problems.append(f"{error}: {watcher.leaders}, {watcher.in_sync}")
        self.outcome.heal_seconds = time.monotonic() - begin
        time.sleep(CALM_SECONDS)

    # --- the end ---------------------------------------------------------------------------------

    def _finish_writing(self) -> None:
        self._on_progress(-1, "writers finish")
        for one in self._writers:
            one.ask_to_end()
        self.outcome.problems += [
            problem for one in self._writers if (problem := one.end(FLUSH_SECONDS))
        ]

    def _ends(self) -> dict[int, int]:
        """The end of each partition: acknowledged, or reported to a consumer, whichever is later."""
        ends: Counter[int] = Counter()
        for partition, offset, _ in self._acknowledged():
            ends[partition] = max(ends[partition], offset + 1)
        consumer = Consumer({"bootstrap.servers": self._cluster.servers, "group.id": "ends"})
        for number in range(PARTITIONS):
            with suppress(KafkaException):
                _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=10)
                ends[number] = max(ends[number], end)
        consumer.close()
        return dict(ends)

    def _read_all(self, ends: dict[int, int]) -> None:
        """Read with new clients of two kinds; one that does not reach the end is replaced once."""
        self._on_progress(-1, "reading everything")
        words = ["--servers", self._cluster.servers, "--partitions", str(PARTITIONS)]
        words += ["--until", json.dumps(ends)]
        missing = list(FINAL_READERS)
        for number in range(FINAL_TRIES):
            running = [
                ClientProcess(self._folder, reader_module, kind, f"final-{number}-{kind}", *words)
                for kind in missing
            ]
            self._final += running
            deadline = time.monotonic() + self._patience
            missing = []
            for one in running:
                try:
                    code = one.process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    code = None
                if code != 0:
                    one.end(5)
                    missing.append(one.kind)
            if not missing:
                return
        self.outcome.problems.append(f"{missing} did not read up to {ends}")

    def _settle_group(self, admin: bradbury.Admin, ends: dict[int, int]) -> dict[str, Any]:
        """Wait until it has committed all there is; what it is like then."""
        self._on_progress(-1, "the group finishes")
        deadline = time.monotonic() + self._patience
        lag, state = sum(ends.values()), "unknown"
        while time.monotonic() < deadline:
            with suppress(KafkaError, ConnectionFailed):
                found = admin.group_offsets(GROUP)
                (state,) = {one.state for one in admin.describe_groups([GROUP])}
                lag = sum(
                    max(0, end - (found[TOPIC, number].offset if (TOPIC, number) in found else 0))
                    for number, end in ends.items()
                )
                if not lag and state == "Stable":
                    break
            time.sleep(0.3)
        return {
            "replication_factor": REPLICATION_FACTOR,
            "lags": {GROUP: lag},
            "states": {GROUP: state},
        }
