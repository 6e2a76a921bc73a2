"""One run of a chain of transactions: records go through three topics while a nemesis troubles all.

    sources -> one -> copiers -> two -> copiers -> three, and read_committed readers of all three

Sources and copiers are processes of librdkafka and of Java. After `seconds` of faults the cluster is
left alone; the sources stop, the copiers finish, and everything is read from the beginning.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bradbury.tests.crash.checker import Fault, report
from bradbury.tests.groups_soak.history import read_lines
from bradbury.tests.support.ray.ray_nodes import wait_for

from .chain_checker import check_chain, longest_open
from .chain_history import ChainHistory, Lines, read_chain_history, write_json
from .chain_links import FIRST_OFFSET, was_reset
from .chain_nemesis import ChainNemesis, ChainScene
from .chain_processes import JAVA, OWN, ChainProcess, ChainProcesses, ChainSeat, Where

TOPICS = ("chain-one", "chain-two", "chain-three")
PARTITIONS = 4
HEAL_SECONDS = 120.0
PATIENCE_SECONDS = 150.0
"""Longer than a client may hang, see chain_links."""
END_SECONDS = 60.0
LIBRDKAFKA = "confluent"
MOVING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


def chain_seats(*, java: bool, isolation: str, careless: bool) -> list[ChainSeat]:
    """Three sources, two copiers of each hop, a reader. isolation: of readers, for a proof."""
    one, two, three = TOPICS
    other = JAVA if java else LIBRDKAFKA
    return [
        ChainSeat("source-1", "source", LIBRDKAFKA, (one,)),
        ChainSeat("source-2", "source", other, (one,)),
        ChainSeat("first-1", "copier", LIBRDKAFKA, (one, two), "first", careless=careless),
        ChainSeat("first-2", "copier", other, (one, two), "first"),
        ChainSeat("source-3", "source", OWN, (one,)),
        ChainSeat("second-1", "copier", LIBRDKAFKA, (two, three), "second"),
        ChainSeat("second-2", "copier", OWN, (two, three), "second"),
        ChainSeat("reader-1", "reader", LIBRDKAFKA, TOPICS, isolation=isolation),
    ]


@dataclass
class ChainFigures:
    """longest_open: seconds for which a last stable offset stayed below what was there.

    successions: processes that ended by themselves (fenced, mostly) and were followed by others.
    """

    nemesis: str
    seconds: float
    faults: int = 0
    transactions: int = 0
    records: int = 0
    aborted_records: int = 0
    violations: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    longest_open: float = 0.0
    successions: int = 0
    heal_seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not (self.violations or self.problems)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "good": self.is_good}


class StableProbe:
    """Asks for last stable offsets and then for high watermarks, again and again."""

    def __init__(self, servers: str, lines: Lines) -> None:
        self._settings = {"bootstrap.servers": servers, "log_level": 0}
        self._admin = AdminClient(self._settings)
        self._lines = lines
        self._stop = threading.Event()
        self.stable: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="stable offsets")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.3):
            begin = time.monotonic_ns()
            if len(self.ends) < len(TOPICS) * PARTITIONS:
                # librdkafka (2.16) asks with the leader epoch that it has cached, and keeps that when
                # it is told FENCED_LEADER_EPOCH.
                self._admin = AdminClient(self._settings)
            stable = self._ask(IsolationLevel.READ_COMMITTED)
            ends = self._ask(IsolationLevel.READ_UNCOMMITTED)
            self.stable, self.ends = stable, ends
            self._lines.write(
                event="asked",
                begin=begin,
                time=time.monotonic_ns(),
                stable=stable,
                ends={place: end for place, end in ends.items() if place in stable},
            )

    def _ask(self, isolation: IsolationLevel) -> dict[str, int]:
        places = [TopicPartition(topic, n) for topic in TOPICS for n in range(PARTITIONS)]
        asked = self._admin.list_offsets(
            dict.fromkeys(places, OffsetSpec.latest()), isolation_level=isolation, request_timeout=5
        )
        found = {}
        for place, future in asked.items():
            with suppress(KafkaException):
                if (offset := future.result().offset) >= 0:  # else there is no leader
                    found[f"{place.topic}/{place.partition}"] = offset
        return found

    def is_settled(self) -> bool:
        return len(self.ends) == len(TOPICS) * PARTITIONS and self.stable == self.ends

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class ChainRun:
    """One. The cluster is up and empty: of ours (CrashCluster), or what has its methods.

    Args:
        java: one source and one copier are Java's.
        isolation, careless: of the reader, of a copier; for the proof that violations are found.
        least_faults: trouble goes on until so many were made.
    """

    def __init__(
        self,
        cluster: Any,
        folder: Path,
        nemesis: ChainNemesis,
        *,
        seed: int = 0,
        java: bool = True,
        isolation: str = "read_committed",
        careless: bool = False,
        replication_factor: int = 3,
        least_faults: int = 0,
        on_progress: Callable[[float, str], None] = lambda seconds, text: None,
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._nemesis = nemesis
        self._seed = seed
        self._replication_factor = replication_factor
        self._least_faults = least_faults
        self._on_progress = on_progress
        where = Where(cluster.servers, PARTITIONS, folder)
        seats = chain_seats(java=java, isolation=isolation, careless=careless)
        self._processes = ChainProcesses(where, seats)
        self.problems: list[str] = []
        self.faults = 0
        self.heal_seconds = 0.0

    def run(self, seconds: float) -> None:
        """Faults for `seconds`, then peace; all processes are gone when it returns."""
        with self._cluster.admin() as admin:
            configs = {"min.insync.replicas": "2"} if self._replication_factor > 2 else {}
            for topic in TOPICS:
                admin.create_topic(
                    topic, PARTITIONS, replication_factor=self._replication_factor, configs=configs
                )
        self._commit_first_offsets()
        probe = StableProbe(self._cluster.servers, Lines(self._folder / "stable.jsonl"))
        try:
            self._processes.start_all()
            self._warm_up()
            self._make_trouble(seconds)
            self._heal()
            self.problems += self._processes.end(END_SECONDS, "source")
            self._finish(probe)
        finally:
            self._processes.kill_all()
            probe.stop()
            self._write_plan()

    def _commit_first_offsets(self) -> None:
        """So that no copier has to ask where a partition begins; see chain_links.FIRST_OFFSET."""
        for group, topic in sorted({(seat.group, seat.topics[0]) for seat in self._copiers()}):
            consumer = Consumer(
                {
                    "bootstrap.servers": self._cluster.servers,
                    "group.id": group,
                    "log_level": 0,
                }
            )
            places = [TopicPartition(topic, n, FIRST_OFFSET) for n in range(PARTITIONS)]
            while True:
                try:
                    consumer.commit(offsets=places, asynchronous=False)
                    break
                except KafkaException as failure:  # its partition is being moved to another node
                    if failure.args[0].code() not in MOVING:
                        raise
                    time.sleep(0.1)
            consumer.close()

    def _copiers(self) -> list[ChainSeat]:
        return [seat for seat in self._processes.seats if seat.kind == "copier"]

    def _warm_up(self) -> None:
        self._on_progress(-1, "clients start")

        def all_work() -> bool:
            self._processes.look_after()
            at_work = [one.is_working for one in self._processes.of_kind("source", "reader")]
            copied = {one.seat.group for one in self._processes.of_kind("copier") if one.is_working}
            return all(at_work) and copied == {"first", "second"}

        wait_for(all_work, 90, "not all clients work")

    def _make_trouble(self, seconds: float) -> None:
        lines = Lines(self._folder / "faults.jsonl")
        scene = ChainScene(
            self._processes,
            self._cluster,
            lines,
            self._seed,
            self._leaders,
            20.0,
            in_sync=list,
            topic=TOPICS[0],
        )
        begin = time.monotonic()
        while (over := time.monotonic() - begin) < seconds or scene.count < self._least_faults:
            self._on_progress(over, f"{scene.count} faults")
            self._processes.look_after()
            self._nemesis.act(scene)
            time.sleep(scene.random.uniform(*self._nemesis.pause))
        self.faults = scene.count

    def _leaders(self) -> list[int]:
        admin = AdminClient({"bootstrap.servers": self._cluster.servers, "log_level": 0})
        with suppress(KafkaException):
            found = admin.list_topics(TOPICS[0], timeout=5).topics[TOPICS[0]].partitions
            return [one.leader for one in found.values()]
        return []

    def _heal(self) -> None:
        """Whole again; and who was a zombie ends, as it is told that it is fenced."""
        self._on_progress(-1, "healing")
        begin = time.monotonic()
        try:
            self._cluster.wait_until_whole(HEAL_SECONDS)
        except AssertionError as error:
            self.problems.append(str(error))
        deadline = time.monotonic() + END_SECONDS
        for zombie in self._processes.zombies:
            if zombie.seat.kind == "source":
                self._bury(zombie, deadline)
            elif zombie.is_running:
                zombie.kill()  # in a group it may have nothing to do, and so is not fenced
        self.heal_seconds = time.monotonic() - begin
        self._processes.look_after()

    def _bury(self, zombie: ChainProcess, deadline: float) -> None:
        try:
            zombie.process.wait(max(0.1, deadline - time.monotonic()))
        except Exception:
            self.problems.append(f"{zombie.name} goes on, though another one has its id")
            zombie.kill()

    # --- the end ---------------------------------------------------------------------------------

    def _finish(self, probe: StableProbe) -> None:
        """Read everything until the chain is at its end, and then until the reader is, too."""
        self._on_progress(-1, "the chain finishes")
        counts = self._read_all(probe)
        wait_until = time.monotonic() + END_SECONDS
        while time.monotonic() < wait_until and self._reader_counts() != counts:
            time.sleep(0.5)
        self.problems += self._processes.end(END_SECONDS, "copier", "reader")
        self.problems += resets(self._folder)
        write_json(self._folder / "end.json", self._committed())

    def _read_all(self, probe: StableProbe) -> Counter[str]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.servers,
                "group.id": "final",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        places = [(topic, n) for topic in TOPICS for n in range(PARTITIONS)]
        consumer.assign([TopicPartition(*place, FIRST_OFFSET) for place in places])
        lines = Lines(self._folder / "final.jsonl")
        counts: Counter[str] = Counter()
        deadline = time.monotonic() + PATIENCE_SECONDS
        quiet = 0
        while time.monotonic() < deadline and quiet < 3:
            self._processes.look_after()
            records: dict[str, list[tuple[int, str]]] = {}
            for one in consumer.consume(2_000, 0.5):
                if one.error() is not None:
                    self.problems += was_reset("final", one)
                else:
                    place = f"{one.topic()}/{one.partition()}"
                    records.setdefault(place, []).append((one.offset(), one.value().decode()))
                    counts[place] += 1
            if records:
                lines.write(event="records", time=time.monotonic_ns(), records=records)
                quiet = 0
            elif probe.is_settled() and all(
                counts[f"{topic}/{n}"] == counts[f"{TOPICS[0]}/{n}"] for topic, n in places
            ):
                quiet += 1
        consumer.close()
        lines.close()
        return counts

    def _reader_counts(self) -> Counter[str]:
        [reader] = self._processes.of_kind("reader")
        counts: Counter[str] = Counter()
        for place, records in _records_of(reader.history).items():
            counts[place] = len(records)
        return counts

    def _committed(self) -> dict[str, int]:
        found = {}
        for seat in self._copiers():
            topic = seat.topics[0]
            consumer = Consumer(
                {
                    "bootstrap.servers": self._cluster.servers,
                    "group.id": seat.group,
                    "log_level": 0,
                }
            )
            places = [TopicPartition(topic, n) for n in range(PARTITIONS)]
            for place in consumer.committed(places, 60):
                found[f"{topic}/{place.partition}"] = max(0, place.offset)
            consumer.close()
        return found

    def _write_plan(self) -> None:
        sources = [one for one in self._processes.all if one.seat.kind == "source"]
        plan = {
            "topics": TOPICS,
            "partitions": PARTITIONS,
            "sources": {one.name: one.seat.transactional_id for one in sources},
            "readers": [one.name for one in self._processes.all if one.seat.kind == "reader"],
        }
        write_json(self._folder / "plan.json", plan)

    def figures(self, seconds: float, history: ChainHistory, faults: list[Fault]) -> ChainFigures:
        committed = [
            transaction
            for source in history.sources
            for transaction in source.transactions.values()
            if transaction.outcome == "committed"
        ]
        ends = next((one.ends for one in reversed(history.asked) if one.ends), {})
        records = sum(map(len, history.final.records.values()))
        return ChainFigures(
            nemesis=self._nemesis.name,
            seconds=seconds,
            faults=self.faults,
            transactions=len(committed),
            records=records,
            aborted_records=max(0, sum(ends.values()) - records),
            violations=len(faults),
            kinds=dict(Counter(one.kind for one in faults)),
            longest_open=round(longest_open(history), 1),
            successions=self._processes.successions,
            heal_seconds=round(self.heal_seconds, 1),
            problems=self.problems,
        )


def resets(folder: Path) -> list[str]:
    """What copiers and readers were told that nothing of this cluster may tell them."""
    return [
        f"{path.stem}: {line['error']}"
        for path in sorted(folder.glob("*.jsonl"))
        for line in read_lines(path)
        if line.get("event") == "reset"
    ]


def _records_of(path: Path) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for line in read_lines(path):
        if line["event"] == "records":
            for place, records in line["records"].items():
                found.setdefault(place, []).extend(records)
    return found


def run_chain(
    cluster: Any, folder: Path, nemesis: ChainNemesis, seconds: float, **options: Any
) -> tuple[ChainFigures, list[str]]:
    """A run and what is wrong with it: figures, and lines for people."""
    run = ChainRun(cluster, folder, nemesis, **options)
    run.run(seconds)
    history = read_chain_history(folder)
    faults = check_chain(history)
    figures = run.figures(seconds, history, faults)
    lines = [*report(faults), *figures.problems]
    write_json(folder / "figures.json", figures.to_json())
    if lines:
        (folder / "found.txt").write_text("\n".join(lines) + "\n")
    return figures, lines
