"""Do worker actors of a mirror copy each record once, whoever of them dies, and however many?"""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import ray

import bradbury
from bradbury.pipelines.mirrors.actor_session import ActorMirrorSession, actors_for
from bradbury.pipelines.mirrors.mirror_session import MirrorSession, run_session
from bradbury.pipelines.mirrors.mirror_settings import MirrorProgress
from bradbury.protocol.errors import ProducerFenced
from bradbury.tests.support.killed_program import kill_at

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PARTITIONS = 6


@pytest.fixture(scope="module")
def source() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local() as running:
        yield running


@pytest.fixture
def name(source: bradbury.LocalCluster, request: pytest.FixtureRequest) -> str:
    """Of a topic of the source, and the alias."""
    topic = re.sub(r"\W+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    with source.admin() as admin:
        admin.create_topic(topic, PARTITIONS)
    return topic


def send(source: bradbury.LocalCluster, topic: str, numbers: range) -> None:
    with bradbury.Producer(source.bootstrap_servers, batch_size=1_000) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def values(cluster: bradbury.Cluster, topic: str) -> dict[int, list[int]]:
    """By partition in the order of the log."""
    found: dict[int, list[int]] = {}
    with cluster.admin() as admin:
        count = len(admin.describe_topics([topic])[0].partitions)
        ends = admin.list_offsets([(topic, partition) for partition in range(count)])
    with bradbury.Consumer(
        bootstrap=cluster.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign(list(ends))
        while any(consumer.position(key) < ends[key].offset for key in ends):
            table = consumer.poll(timeout_ms=500)
            for partition, value in zip(
                table["partition"].to_pylist(), table["value"].to_pylist(), strict=True
            ):
                found.setdefault(partition, []).append(int(value))
    return found


def differences(found: dict[int, list[int]], count: int) -> dict[int, str]:
    """In which partitions, and how. A test that fails by this is rare: its output has to say it."""
    wrong: dict[int, str] = {}
    for partition, numbers in expected(count).items():
        there = found.get(partition, [])
        if there == numbers:
            continue
        twice = {
            number: [row for row, one in enumerate(there) if one == number]
            for number, times in Counter(there).items()
            if times > 1
        }
        missing = sorted(set(numbers) - set(there))
        back = [i for i, (one, two) in enumerate(pairwise(there)) if two < one]
        wrong[partition] = (
            f"{len(there)} of {len(numbers)}; twice, and where: {twice}; missing: "
            f"{missing[:60]}; goes back behind: {back[:20]}"
        )
    return wrong


def expected(count: int) -> dict[int, list[int]]:
    return {partition: list(range(partition, count, PARTITIONS)) for partition in range(PARTITIONS)}


class InThread:
    """A continuous mirror, until `stop`."""

    def __init__(self, source: bradbury.LocalCluster, topic: str, **options: Any) -> None:
        self.failure: Exception | None = None
        self.records = 0
        self._stop = threading.Event()
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(source, topic, options))
        self._thread.start()

    def _run(self, source: bradbury.LocalCluster, topic: str, options: dict[str, Any]) -> None:
        try:
            bradbury.mirror(
                topic,
                source.bootstrap_servers,
                alias=topic,
                continuous=True,
                stop=self._stop,
                on_progress=self._on_progress,
                **options,
            )
        except Exception as error:
            self.failure = error
        with self._moved:
            self._moved.notify_all()

    def _on_progress(self, progress: MirrorProgress) -> None:
        with self._moved:
            self.records = progress.records
            self._moved.notify_all()

    def wait_for(self, records: int) -> None:
        with self._moved:
            assert self._moved.wait_for(
                lambda: self.failure is not None or self.records >= records, 120
            )
        assert self.failure is None

    def wait_for_its_end(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        self.wait_for_its_end()


def test_workers_share_the_partitions_and_another_number_goes_on(
    cluster: bradbury.Cluster, source: bradbury.LocalCluster, name: str
) -> None:
    send(source, name, range(600))
    options: dict[str, Any] = {"alias": name, "bootstrap_servers": cluster.bootstrap_servers}
    with source.admin() as admin:
        admin.alter_group_offsets(name, {(name, 0): 40})
    first = bradbury.mirror(name, source.bootstrap_servers, actors=3, groups=name, **options)
    assert (first.records, first.behind) == (600, 0)
    assert first.commits >= 3
    with cluster.admin() as admin:
        assert admin.group_offsets(name)[f"{name}.{name}", 0].offset == 40
    send(source, name, range(600, 900))
    assert bradbury.mirror(name, source.bootstrap_servers, actors=2, **options).records == 300
    send(source, name, range(900, 1_000))
    assert bradbury.mirror(name, source.bootstrap_servers, actors=0, **options).records == 100
    assert values(cluster, f"{name}.{name}") == expected(1_000)


@pytest.mark.long  # two sets of actors; one is in make test
def test_of_two_mirrors_the_later_one_goes_on_whatever_their_numbers(
    cluster: bradbury.Cluster, source: bradbury.LocalCluster, name: str
) -> None:
    target = cluster.bootstrap_servers
    send(source, name, range(300))
    first = InThread(source, name, bootstrap_servers=target, actors=3)
    first.wait_for(300)
    second = InThread(source, name, bootstrap_servers=target, actors=2)
    try:
        sent = 300
        while not second.records:  # until then the first one copies them
            assert second.failure is None
            send(source, name, range(sent, sent + 60))
            sent += 60
        first.wait_for_its_end()
        assert isinstance(first.failure, ProducerFenced)
        done = bradbury.mirror(
            name, source.bootstrap_servers, alias=name, bootstrap_servers=target, actors=0
        )
        assert done.behind == 0
    finally:
        first.stop()
        second.stop()
    assert values(cluster, f"{name}.{name}") == expected(sent)


@pytest.mark.long  # killed again and again
def test_workers_that_are_killed_again_and_again(
    cluster: bradbury.Cluster, source: bradbury.LocalCluster, name: str, monkeypatch: Any
) -> None:
    sessions: list[ActorMirrorSession] = []

    def watched(session: MirrorSession, *arguments: Any, **options: Any) -> MirrorProgress:
        assert isinstance(session, ActorMirrorSession)
        sessions.append(session)
        return run_session(session, *arguments, **options)

    monkeypatch.setattr("bradbury.pipelines.mirrors.mirror.run_session", watched)
    options = {"bootstrap_servers": cluster.bootstrap_servers, "actors": 3, "commit_records": 50}
    running = InThread(source, name, **options)
    try:
        sent = 0
        for kill in range(4):
            send(source, name, range(sent, sent + 600))
            sent += 600
            running.wait_for(running.records + 1)
            ray.kill(sessions[0]._workers[kill % 3], no_restart=False)
        done = threading.Event()
        while not done.wait(0.2):
            assert running.failure is None
            if sum(map(len, values(cluster, f"{name}.{name}").values())) >= sent:
                done.set()
    finally:
        running.stop()
    assert running.failure is None
    found, again = (values(cluster, f"{name}.{name}") for _ in range(2))
    wrong = differences(found, sent)
    assert not wrong, (
        wrong,
        "read again, it is the same" if found == again else "read again: other",
    )


HEAD = """
import sys

import bradbury

topic, source, target, actors = sys.argv[1:]
bradbury.mirror(
    topic,
    source,
    alias=topic,
    bootstrap_servers=target,
    actors=int(actors),
    commit_records=40,
    continuous=True,
    on_progress=lambda progress: print(progress.records, flush=True),
)
"""


@pytest.mark.long  # killed again and again
def test_the_process_that_has_begun_it_is_killed_and_another_number_of_actors_goes_on(
    cluster: bradbury.Cluster, source: bradbury.LocalCluster, name: str
) -> None:
    target, sent = cluster.bootstrap_servers, 0
    for actors in (3, 2, 4):
        send(source, name, range(sent, sent + 1_200))
        sent += 1_200
        arguments = [name, source.bootstrap_servers, target, str(actors)]
        assert kill_at(HEAD, arguments, [1]) == 1  # its actors are at work
    done = bradbury.mirror(
        name, source.bootstrap_servers, alias=name, bootstrap_servers=target, actors=2
    )
    assert done.behind == 0
    wrong = differences(values(cluster, f"{name}.{name}"), sent)
    assert not wrong


@pytest.mark.deep
@pytest.mark.parametrize("exactly_once", [True, False])
def test_new_partitions_are_shared_too(
    cluster: bradbury.Cluster, source: bradbury.LocalCluster, name: str, exactly_once: bool
) -> None:
    """Positions are read again for them; what was not said yet, without transactions, is known."""
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "exactly_once": exactly_once,
    }
    running = InThread(source, name, actors="auto", **options)
    try:
        send(source, name, range(60))
        running.wait_for(60)
        with source.admin() as admin:
            admin.create_partitions(name, 20)
        with bradbury.Producer(source.bootstrap_servers) as producer:
            for partition in range(6, 20):
                producer.send(name, b"%d" % partition, partition=partition)
        running.wait_for(74)
    finally:
        running.stop()
    assert running.failure is None
    done = bradbury.mirror(name, source.bootstrap_servers, alias=name, **options)
    assert (done.records, done.behind) == (0, 0)
    added = {partition: [partition] for partition in range(6, 20)}
    assert values(cluster, f"{name}.{name}") == {**expected(60), **added}


def test_how_many_there_are() -> None:
    assert [actors_for(count) for count in (0, 1, 8, 9, 100, 10_000)] == [1, 1, 1, 2, 13, 64]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"actors": -1}, "actors is -1"),
        ({"actors": "many"}, "actors is 'many'"),
        ({"actors": 0, "actor_options": {"num_cpus": 1}}, "need actors"),
    ],
)
def test_arguments_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bradbury.mirror("x", "127.0.0.1:1", alias="a", bootstrap_servers="127.0.0.1:1", **options)
