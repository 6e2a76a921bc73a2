"""How long does a poll wait? Until there is a record, unless it is told otherwise."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator

import pytest

import bradbury
from bradbury.protocol.errors import OffsetOutOfRange
from bradbury.tests.support.groups.group_members import fill

NewTopic = Callable[..., str]


@pytest.fixture(scope="module")
def slow_to_join() -> Iterator[str]:
    """Brokers that hold up the first members of a group, as real ones do."""
    with bradbury.local(config={"group.initial.rebalance.delay.ms": 3_000}) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("t", 2)
        fill(cluster.bootstrap_servers, "t", 10)
        yield cluster.bootstrap_servers


def test_the_first_poll_of_a_new_group_has_records(slow_to_join: str) -> None:
    with bradbury.Consumer(
        "t", bootstrap=slow_to_join, group="first", auto_offset_reset="earliest"
    ) as consumer:
        assert consumer.poll().num_rows == 10
        assert consumer.poll(0).num_rows == 0
        fill(slow_to_join, "t", 5, partition=1)
        assert consumer.poll().num_rows > 0


def test_the_first_record_of_a_new_group_comes_by_iteration(slow_to_join: str) -> None:
    with bradbury.Consumer(
        "t", bootstrap=slow_to_join, group="iterated", auto_offset_reset="earliest"
    ) as consumer:
        assert next(consumer.records()).offset == 0
        assert next(iter(consumer)).offset == 1


def test_a_time_bounds_the_join_too(slow_to_join: str) -> None:
    with bradbury.Consumer(
        "t", bootstrap=slow_to_join, group="bounded", auto_offset_reset="earliest"
    ) as consumer:
        assert consumer.poll(50).num_rows == 0
        assert [*consumer.records(50)] == []


def test_assigned_partitions_are_waited_for(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with bradbury.Consumer(bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 1)])
        found: list[int] = []
        waiting = threading.Thread(target=lambda: found.append(consumer.poll().num_rows))
        waiting.start()
        fill(bootstrap, topic, 3, partition=0)  # not read
        fill(bootstrap, topic, 4, partition=1)
        waiting.join(60)
    assert found == [4]


def test_wakeup_ends_a_poll_that_waits(bootstrap: str, new_topic: NewTopic) -> None:
    with bradbury.Consumer(new_topic(), bootstrap=bootstrap) as one:
        ended = threading.Event()

        def poll() -> None:
            with pytest.raises(bradbury.Wakeup):
                one.poll()
            ended.set()

        waiting = threading.Thread(target=poll)
        waiting.start()
        one.wakeup()
        assert ended.wait(60)
        waiting.join(60)


def test_ctrl_c_ends_a_poll_that_waits(bootstrap: str, new_topic: NewTopic) -> None:
    program = """
        import os, signal, sys, threading, time, bradbury

        def interrupt(consumer):
            while not consumer._steps.condition._waiters:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        with bradbury.Consumer(sys.argv[2], bootstrap=sys.argv[1], group="interrupted") as consumer:
            threading.Thread(target=interrupt, args=(consumer,), daemon=True).start()
            try:
                consumer.poll()
            except KeyboardInterrupt:
                print("interrupted")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), bootstrap, new_topic()],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


def test_nothing_to_read_is_an_error_and_no_wait_forever(bootstrap: str) -> None:
    with bradbury.Consumer(bootstrap=bootstrap, group="reads-nothing") as consumer:
        with pytest.raises(ValueError, match="poll would wait forever"):
            consumer.poll()
        with pytest.raises(ValueError, match="poll would wait forever"):
            next(iter(consumer))
        assert consumer.poll(0).num_rows == 0


def test_an_error_ends_a_poll_that_waits(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with bradbury.Consumer(bootstrap=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 5)
        with pytest.raises(OffsetOutOfRange, match="seek"):
            consumer.poll()
