"""Does a partition ever have two readers, and is a record ever omitted, while members come and go?

Members are threads. Each tells a ledger what it is assigned and what is taken from it, at the moment
when its listener is told; the ledger refuses a partition that somebody still has. That the ledger
finds such a fault is a test of its own.
"""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

import bradbury
from bradbury.tests.support.wire.fault_proxy import FaultProxy

pytestmark = pytest.mark.slow

PARTITIONS = 12
TURNS = 25
SECONDS = 60.0
OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 8, 9, 11, 12, 14


class Ledger:
    """The present owner of each partition. faults: what must never happen, as text."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._owners: dict[int, str] = {}
        self._next: dict[int, int] = {}
        self._lock = threading.Lock()
        self.seen: list[tuple[int, int]] = []

    def assigned(self, name: str, partitions: Sequence[bradbury.TopicPartition]) -> None:
        with self._lock:
            for _, partition in partitions:
                if partition in self._owners:
                    owner = self._owners[partition]
                    self.faults.append(f"{partition} is given to {name}, and {owner} has it")
                self._owners[partition] = name

    def taken(self, name: str, partitions: Sequence[bradbury.TopicPartition]) -> None:
        with self._lock:
            for _, partition in partitions:
                if self._owners.get(partition) == name:
                    del self._owners[partition]
                else:
                    self.faults.append(f"{partition} is taken from {name}, who has it not")

    def read(self, name: str, rows: list[tuple[int, int]]) -> None:
        with self._lock:
            for partition, offset in rows:
                if self._owners.get(partition) != name:
                    self.faults.append(f"{name} reads {partition}, which it has not")
                if offset > self._next.setdefault(partition, 0):
                    self.faults.append(f"{partition}: {self._next[partition]} is omitted")
                self._next[partition] = max(self._next[partition], offset + 1)
            self.seen += rows


class Listener(bradbury.RebalanceListener):
    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name, self._ledger = name, ledger
        self.lost = 0

    def on_partitions_assigned(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self._ledger.assigned(self._name, partitions)

    def on_partitions_revoked(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self._ledger.taken(self._name, partitions)

    def on_partitions_lost(self, partitions: Sequence[bradbury.TopicPartition]) -> None:
        self.lost += 1
        self._ledger.taken(self._name, partitions)


class Member:
    """A consumer on a thread of its own, from `with` until its end."""

    def __init__(self, name: str, ledger: Ledger, topic: str, **options: object) -> None:
        self.failure: BaseException | None = None
        self.listener = Listener(name, ledger)
        self._name, self._ledger, self._topic, self._options = name, ledger, topic, options
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with bradbury.Consumer(
                self._topic,
                listener=self.listener,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=50,
                max_poll_records=7,
                retry_backoff_ms=10,
                **self._options,  # type: ignore[arg-type]  # named by the test
            ) as consumer:
                while not self._stop.is_set():
                    table = consumer.poll(50)
                    columns = (table["partition"].to_pylist(), table["offset"].to_pylist())
                    self._ledger.read(self._name, list(zip(*columns, strict=True)))
        except BaseException as error:
            self.failure = error


@pytest.fixture(scope="module", params=[2, 1], ids=["quiet", "lost answers"])
def nodes(request: pytest.FixtureRequest) -> int:
    """Two nodes, or one behind a proxy that loses answers."""
    count: int = request.param
    return count


@pytest.fixture(scope="module")
def servers(nodes: int) -> Iterator[str]:
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1_000,
        "offsets.topic.num.partitions": 3,
    }
    with bradbury.local(nodes=nodes, config=config) as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param("range", marks=pytest.mark.long),
        pytest.param("sticky", marks=pytest.mark.long),
        "cooperative-sticky",
    ],
)
def test_no_partition_has_two_readers_and_no_record_is_left_out(
    servers: str, nodes: int, strategy: str
) -> None:
    faults = nodes == 1
    seed = time.time_ns()
    print(f"seed {seed}")
    draw = random.Random(seed)
    ledger, topic, sent = Ledger(), f"churn-{seed}", 0
    with ExitStack() as stack:
        admin = stack.enter_context(bradbury.Admin(servers))
        producer = stack.enter_context(bradbury.Producer(servers))
        proxy = stack.enter_context(FaultProxy(servers))
        admin.create_topic(topic, PARTITIONS)
        members: list[Member] = []
        stack.callback(lambda: [member.stop() for member in members])
        everybody: list[Member] = []
        for turn in range(TURNS):
            for partition in range(PARTITIONS):
                producer.send_batch(topic, [b"v"] * 5, partition=partition)
            sent += 5
            producer.flush(10)
            if len(members) < 2 or (len(members) < 5 and draw.random() < 0.5):
                members.append(
                    Member(
                        f"m{turn}",
                        ledger,
                        topic,
                        bootstrap=proxy.address if faults else servers,
                        group=topic,
                        partition_assignment_strategy=strategy,
                        # Of a join whose answer is lost a member is left that nobody is.
                        session_timeout_ms=3_000 if faults else 10_000,
                    )
                )
                everybody.append(members[-1])
            else:
                members.pop(draw.randrange(len(members))).stop()
            if faults:
                kinds = [OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, SYNC_GROUP]
                proxy.lose_answer(draw.choice(kinds))
            threading.Event().wait(draw.random() * 0.3)
        deadline = time.monotonic() + SECONDS
        while len(set(ledger.seen)) < sent * PARTITIONS:
            assert time.monotonic() < deadline, "records are omitted"
            assert [member.failure for member in members if member.failure] == []
            threading.Event().wait(0.05)
        for member in members:
            member.stop()
        members.clear()
    assert ledger.faults == []
    assert len(set(ledger.seen)) == sent * PARTITIONS
    if not faults:
        assert [member.listener.lost for member in everybody if member.listener.lost] == []
        assert len(ledger.seen) == sent * PARTITIONS  # committed before they go: nothing twice


def test_the_ledger_finds_a_second_reader_and_a_gap() -> None:
    ledger, one = Ledger(), [bradbury.TopicPartition("t", 1)]
    ledger.assigned("a", one)
    ledger.read("a", [(1, 0), (1, 1)])
    assert ledger.faults == []
    ledger.assigned("b", one)
    ledger.read("a", [(1, 2)])
    ledger.read("b", [(1, 4)])
    ledger.taken("a", one)
    assert len(ledger.faults) == 4
