"""One consumer, many workers: who gets what, in which order, and what if one dies?"""

import os
import signal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import bradbury
from bradbury.clients.consumer_group.processing.function import WorkerDied
from bradbury.tests.support.storage.numbered import duplicates, fill, numbers_in

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def with_pid(table: pa.Table) -> tuple[int, list[int]]:
    return os.getpid(), numbers_in(table)


@pytest.mark.long  # examples/consumer_group.py and the others here have them
def test_more_workers_than_partitions_all_get_work(topic: str, tmp_path: Path) -> None:
    def meet(table: pa.Table) -> tuple[int, list[int]]:
        (tmp_path / str(os.getpid())).touch()
        while len(list(tmp_path.iterdir())) < 6:
            os.sched_yield()
        return with_pid(table)

    fill(topic, 4000)
    with bradbury.ConsumerGroup(
        topic, topic, workers=6, batch_records=20, auto_offset_reset="earliest"
    ) as group:
        results = list(group.map(meet, stop_at_end=True))
        assert group.status().members[0].workers == 6
    assert sorted(n for _, numbers in results for n in numbers) == list(range(4000))
    assert len({pid for pid, _ in results}) == 6


@pytest.mark.long  # one more death of a worker
def test_workers_come_and_go_without_a_rebalance(topic: str) -> None:
    fill(topic, 500)
    with bradbury.ConsumerGroup(
        topic, topic, workers=1, batch_records=10, auto_offset_reset="earliest"
    ) as group:
        results = group.map(with_pid)
        pids, found = set(), []

        def take_until(count: int, workers: int) -> None:
            while len(found) < count or group.status().members[0].workers != workers:
                try:
                    pid, numbers = results.next(0.2)[0]
                except TimeoutError:
                    continue
                pids.add(pid)
                found.extend(numbers)

        take_until(500, 1)
        generation = group.status().members[0].generation
        group.resize(workers=3)
        total = 500
        while len(pids) < 3:  # two may be done with everything before the third is there
            fill(topic, 500, start=total)
            total += 500
            take_until(total, 3)
        group.resize(workers=1)
        fill(topic, 500, start=total)
        total += 500
        take_until(total, 1)
        assert group.status().members[0].generation == generation
    assert sorted(found) == list(range(total))


@pytest.mark.long  # one more death of a worker
def test_a_dead_workers_batches_are_given_to_another(topic: str) -> None:
    fill(topic, 3000)
    with bradbury.ConsumerGroup(
        topic, topic, workers=2, batch_records=20, auto_offset_reset="earliest"
    ) as group:
        results = group.map(with_pid, stop_at_end=True)
        pid, found = next(results)
        generation = group.status().members[0].generation
        os.kill(pid, signal.SIGKILL)
        for _, numbers in results:
            found += numbers
        member = group.status().members[0]
    assert sorted(found) == list(range(3000))  # and none twice: the member lived
    assert member.generation == generation
    assert member.lost_workers >= 1


@pytest.mark.long  # a process is killed; make test has others of the kind
def test_records_of_a_key_stay_in_order_whichever_worker_dies(topic: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    mark = tmp_path / "died"

    def note(table: pa.Table) -> None:
        if 700 in numbers_in(table) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        lines = "".join(
            f"{key.decode()} {value.decode()}\n"
            for key, value in zip(
                table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True
            )
        )
        with log.open("a") as file:
            file.write(lines)  # one write, so that lines of two workers are not mixed

    fill(topic, 3000, keys=25)
    with bradbury.ConsumerGroup(
        topic, topic, workers=4, order="key", batch_records=40, auto_offset_reset="earliest"
    ) as group:
        run = group.for_each(note, stop_at_end=True)
        group.resize(workers=5)
        run.wait(120)
    assert mark.exists()
    seen: dict[str, list[int]] = {}
    for line in log.read_text().splitlines():
        key, number = line.split()
        seen.setdefault(key, []).append(int(number))
    assert len(seen) == 25
    assert sorted({n for numbers in seen.values() for n in numbers}) == list(range(3000))
    # A batch that the worker had finished comes again where that was lost with the worker: then
    # before anything that follows it.
    again = 0
    for numbers in seen.values():
        repeated = len(numbers) - len(set(numbers))
        place = next((i for i, pair in enumerate(pairwise(numbers), 1) if pair[1] <= pair[0]), 0)
        assert numbers[place : place + repeated] == numbers[place - repeated : place]
        first_time = numbers[:place] + numbers[place + repeated :]
        assert first_time == sorted(set(numbers))
        again += repeated
    assert again <= 2 * 40


@pytest.mark.long  # one more death of a worker
def test_a_batch_that_kills_every_worker_fails_in_the_end(topic: str) -> None:
    def deadly(table: pa.Table) -> list[int]:
        if 50 in numbers_in(table):
            os.kill(os.getpid(), signal.SIGKILL)
        return numbers_in(table)

    fill(topic, 100)
    with bradbury.ConsumerGroup(
        topic, topic, workers=2, batch_records=10, max_attempts=2, auto_offset_reset="earliest"
    ) as group:
        results = group.map(deadly, stop_at_end=True)
        found: list[int] = []
        failed: list[int] = []
        while True:
            try:
                found += next(results)
            except bradbury.BatchFailed as failure:
                assert isinstance(failure.__cause__, WorkerDied)
                failed += numbers_in(failure.table)
            except StopIteration:
                break
    assert 50 in failed
    assert len(failed) <= 10
    assert sorted({*found, *failed}) == list(range(100))


def test_at_most_once_gives_nothing_again_that_a_worker_had(topic: str, tmp_path: Path) -> None:
    def note(table: pa.Table) -> None:
        with (tmp_path / f"{os.getpid()}").open("a") as file:
            file.writelines(f"{number}\n" for number in numbers_in(table))
            file.flush()
            if 300 in numbers_in(table):
                os.kill(os.getpid(), signal.SIGKILL)

    fill(topic, 1000)
    with bradbury.ConsumerGroup(
        topic,
        topic,
        workers=2,
        guarantee="at_most_once",
        batch_records=20,
        auto_offset_reset="earliest",
    ) as group:
        run = group.for_each(note, stop_at_end=True)
        failures = 0
        while True:
            try:
                run.wait(60)
                break
            except bradbury.BatchFailed:
                failures += 1
    done = [int(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert duplicates(done) == []
    assert failures >= 1
    assert len(done) >= 1000 - 2 * 20


@pytest.mark.long  # one more death of a worker
def test_workers_end_with_their_member(topic: str) -> None:
    fill(topic, 200)
    with bradbury.ConsumerGroup(
        topic, topic, workers=1, batch_records=10, auto_offset_reset="earliest"
    ) as group:
        results = group.map(with_pid, stop_at_end=True)
        worker, found = next(results)
        os.kill(group.status().members[0].pid, signal.SIGKILL)
        pids = set()
        for pid, numbers in results:
            pids.add(pid)
            found += numbers
    assert sorted(set(found)) == list(range(200))
    assert pids - {worker}
    while Path(f"/proc/{worker}").exists():
        pass
