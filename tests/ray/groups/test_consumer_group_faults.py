"""Does a group of consumer actors process every record, whatever dies?"""

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray

import bradbury
from bradbury.tests.support.groups.group_shares import assigned, wait_until_shared
from bradbury.tests.support.storage.numbered import duplicates, fill, numbers_in

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def kill(group: bradbury.ConsumerGroup, number: int) -> int:
    """End the process of one member, by its own id."""
    pid = group.status().members[number].pid
    os.kill(pid, signal.SIGKILL)
    return pid


def test_a_killed_member_takes_its_partitions_back_without_a_rebalance(topic: str) -> None:
    fill(topic, 2000)
    with bradbury.ConsumerGroup(
        topic, topic, actors=2, batch_records=50, auto_offset_reset="earliest"
    ) as group:
        results = group.map(numbers_in, stop_at_end=True)
        found = list(next(results))
        wait_until_shared(group)
        before = group.status().members
        pid = kill(group, 0)
        for result in results:
            found += result
        after = group.status().members
        while not after[0].restarts:  # Ray tells of the death when it has noticed
            after = group.status().members
    assert sorted(set(found)) == list(range(2000))
    assert after[0].pid != pid
    assert after[0].restarts == 1
    assert [member.generation for member in after] == [member.generation for member in before]
    assert [one.topic_partition for one in after[0].partitions] == [
        one.topic_partition for one in before[0].partitions
    ]


@pytest.mark.long  # a killed member is tried above
def test_a_function_that_kills_its_member_is_called_again_with_the_same_records(
    topic: str, tmp_path: Path
) -> None:
    mark = tmp_path / "died"

    def dies_once(table: pa.Table) -> list[int]:
        if 77 in numbers_in(table) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return numbers_in(table)

    fill(topic, 200)
    with bradbury.ConsumerGroup(
        topic, topic, batch_records=20, auto_offset_reset="earliest"
    ) as group:
        found = [n for result in group.map(dies_once, stop_at_end=True) for n in result]
    assert mark.exists()
    assert sorted(set(found)) == list(range(200))


@pytest.mark.long  # tests/clients/consumer_group decides it; here it is seen with processes
def test_a_member_that_is_too_late_is_replaced_by_the_others_and_comes_back(topic: str) -> None:
    fill(topic, 1000)
    with bradbury.ConsumerGroup(
        topic,
        topic,
        actors=2,
        batch_records=50,
        restart_grace_ms=0,  # at once: long before any restart
        auto_offset_reset="earliest",
    ) as group:
        results = group.map(numbers_in, stop_at_end=True)
        found = list(next(results))
        wait_until_shared(group)
        generation = group.status().members[1].generation
        kill(group, 0)
        for result in results:
            found += result
        while group.status().members[1].generation == generation:
            pass  # every status is a round trip to the member
        assert assigned(group)
        assert sorted(len(member.partitions) for member in group.status().members) != [0, 0]
    assert sorted(set(found)) == list(range(1000))


@pytest.mark.long  # tests/clients/consumer_group decides it; here it is seen with processes
def test_an_actor_that_ray_gives_up_is_created_again_under_its_name(topic: str) -> None:
    fill(topic, 1000)
    with bradbury.ConsumerGroup(
        topic,
        topic,
        batch_records=50,
        actor_options={"max_restarts": 0},
        auto_offset_reset="earliest",
    ) as group:
        results = group.map(numbers_in, stop_at_end=True)
        found = list(next(results))
        kill(group, 0)
        for result in results:
            found += result
        assert group.status().members[0].restarts == 1
    assert sorted(set(found)) == list(range(1000))


@pytest.mark.long  # test_consumer_group_workers.py kills workers of such a group
def test_at_most_once_processes_nothing_twice_when_members_are_killed(
    topic: str, tmp_path: Path
) -> None:
    def note(table: pa.Table) -> None:
        path = tmp_path / f"{os.getpid()}"
        with path.open("a") as file:
            file.writelines(f"{number}\n" for number in numbers_in(table))

    fill(topic, 3000)
    with bradbury.ConsumerGroup(
        topic,
        topic,
        actors=2,
        guarantee="at_most_once",
        batch_records=25,
        auto_offset_reset="earliest",
    ) as group:
        run = group.for_each(note, stop_at_end=True)
        while not list(tmp_path.iterdir()):
            group.status()
        kill(group, 0)
        kill(group, 1)
        run.wait(120)
    done = [int(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert duplicates(done) == []
    assert len(done) > 2500  # at most what two members had in flight is missing


@pytest.mark.long  # a process is killed; make test has others of the kind
def test_the_coordinators_death_costs_neither_records_nor_a_rebalance(topic: str) -> None:
    names = [one["name"] for one in ray.util.list_named_actors(all_namespaces=True)]
    [name] = [one for one in names if one.startswith("groups/")]
    coordinator = ray.get_actor(name, namespace="bradbury")
    with bradbury.ConsumerGroup(
        topic, topic, actors=2, batch_records=20, auto_offset_reset="earliest"
    ) as group:
        results = group.map(numbers_in)
        wait_until_shared(group)  # before there are records: joining may cost a batch its commit
        fill(topic, 2000)
        found = list(next(results))
        generation = group.status().members[0].generation
        os.kill(ray.get(coordinator.__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
        while len(found) < 2000:
            found += next(results)
        assert [member.generation for member in group.status().members] == [generation] * 2
    assert sorted(found) == list(range(2000))  # and nobody was asked to do anything twice


@pytest.mark.long  # tests/clients/consumer_group decides it; here it is seen with processes
def test_resizing_while_it_runs_moves_partitions_and_loses_nothing(topic: str) -> None:
    fill(topic, 2000)
    with bradbury.ConsumerGroup(
        topic,
        topic,
        actors=1,
        batch_records=20,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=200,
    ) as group:
        results = group.map(numbers_in)
        found = list(next(results))
        group.resize(3)
        while len(set(found)) < 1000:
            found += next(results)
        while len([m for m in group.status().members if m.partitions]) < 3:
            try:
                found += results.next(0.2)[0]
            except TimeoutError:
                continue
        group.resize(2)
        fill(topic, 1000, start=2000)
        while len(set(found)) < 3000:
            found += next(results)
        assert sorted(assigned(group)) == [2, 2]
    assert sorted(set(found)) == list(range(3000))


@pytest.mark.long  # tests/clients/consumer_group decides it; here it is seen with processes
def test_what_is_being_processed_in_a_rebalance_is_finished_before_it_goes(
    topic: str, tmp_path: Path
) -> None:
    """Graceful moves make no duplicates: a rebalance waits for what was started."""
    gate = tmp_path / "open"

    def waits(table: pa.Table) -> list[int]:
        while not gate.exists():
            os.sched_yield()
        return numbers_in(table)

    fill(topic, 400)
    with bradbury.ConsumerGroup(
        topic, topic, batch_records=100, revoke_timeout_ms=60_000, auto_offset_reset="earliest"
    ) as group:
        results = group.map(waits)
        while not any(member.running for member in group.status().members):
            pass
        group.resize(2)
        gate.touch()
        found: list[int] = []
        while len(found) < 400:
            found += next(results)
        assigned(group)
        with pytest.raises(TimeoutError):
            results.next(1.0)  # nothing comes twice
    assert sorted(found) == list(range(400))


@pytest.mark.long  # one more death
def test_the_next_group_takes_the_places_of_one_that_died(topic: str) -> None:
    """As when the process that made the group is killed: its actors end, and nobody leaves."""
    options: dict[str, Any] = {
        "actors": 2,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 600_000,  # nobody waits for that
    }
    fill(topic, 200)
    first = bradbury.ConsumerGroup(topic, topic, **options)
    found = list(next(first.map(numbers_in)))
    assigned(first)
    pids = [member.pid for member in first.status().members]
    del first
    gc.collect()
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        pass
    with bradbury.ConsumerGroup(topic, topic, **options) as second:
        for result in second.map(numbers_in, stop_at_end=True):
            found += result
    assert sorted(set(found)) == list(range(200))


@pytest.mark.long  # one more combination
def test_two_groups_of_one_name_differ_by_their_prefix_or_are_fenced(topic: str) -> None:
    fill(topic, 100)
    options: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
        "revoke_timeout_ms": 500,  # nobody asks for the next result while they share
    }
    with bradbury.ConsumerGroup(topic, topic, **options) as first:
        results = first.map(numbers_in)
        found = list(next(results))
        with bradbury.ConsumerGroup(topic, topic, instance_prefix="other", **options) as second:
            others = second.map(numbers_in)
            while [len(g.status().members[0].partitions) for g in (first, second)] != [2, 2]:
                pass
            fill(topic, 100, start=100)
            while len(set(found)) < 200:
                for one in (results, others):
                    try:
                        found += one.next(0.2)[0]
                    except TimeoutError:
                        continue
        with bradbury.ConsumerGroup(topic, topic, **options) as third:
            third.map(numbers_in)
            with pytest.raises(bradbury.protocol.errors.FencedInstanceId):
                while True:
                    next(results)
