"""What becomes of records whose producer nobody closed?"""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable

import pytest

import bradbury
from bradbury.protocol.messages.produce import ProduceRequest
from bradbury.tests.support.child_process import ChildProcess
from bradbury.tests.support.wire.scripted_broker import SILENCE, ScriptedBroker

NewTopic = Callable[..., str]


def count_in(admin: bradbury.Admin, topic: str) -> int:
    return admin.list_offsets([(topic, 0)])[bradbury.TopicPartition(topic, 0)].offset


def threads_of(client_id: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == f"{client_id}-io"]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_future_outlives_its_producer(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert bradbury.Producer(bootstrap, linger_ms=500).send(topic, b"").result(60).offset == 0
    table = bradbury.Producer(bootstrap).send_batch(topic, [b""] * 10).result(60)
    assert (table.ranges[0].start, table.ranges[0].end) == (1, 11)


def test_a_dropped_producer_delivers_and_then_ends_its_thread(
    bootstrap: str, new_topic: NewTopic, admin: bradbury.Admin
) -> None:
    topic = new_topic()
    producer = bradbury.Producer(bootstrap, linger_ms=10_000, client_id="left-alone")
    seen: list[int] = []
    for _ in range(100):
        producer.send(topic, b"").add_done_callback(lambda done: seen.append(done.result().offset))
    del producer
    gc.collect()
    deadline = time.monotonic() + 60
    while threads_of("left-alone"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert seen == list(range(100))
    assert count_in(admin, topic) == 100


def test_what_a_dropped_producer_cannot_deliver_is_given_up_in_time() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, SILENCE)
        producer = bradbury.Producer(
            broker.address,
            client_id="in-vain",
            linger_ms=0,
            request_timeout_ms=500,
            delivery_timeout_ms=2_000,
            retry_backoff_ms=10,
        )
        future = producer.send("t", b"")
        del producer
        assert "may have been appended" in str(future.exception(60))
        deadline = time.monotonic() + 60
        while threads_of("in-vain"):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_the_end_of_the_program_flushes(
    bootstrap: str, new_topic: NewTopic, admin: bradbury.Admin
) -> None:
    topic = new_topic()
    program = """
        import sys, bradbury
        kept = bradbury.Producer(sys.argv[1], linger_ms=60_000)
        dropped = bradbury.Producer(sys.argv[1], linger_ms=60_000)
        for number in range(1_000):
            kept.send(sys.argv[2], b"%d" % number)
            dropped.send(sys.argv[2], b"%d" % number)
        del dropped
    """
    done = run(program, bootstrap, topic)
    assert (done.returncode, done.stderr) == (0, "")
    assert count_in(admin, topic) == 2_000


def test_the_end_of_the_program_is_not_held_up_forever() -> None:
    program = """
        import sys, bradbury, bradbury.clients.producer.producer_end as end
        end.EXIT_SECONDS = 0.5
        producer = bradbury.Producer(sys.argv[1])
        for _ in range(70):
            producer.send("t", b"")
    """
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, SILENCE)
        done = run(program, broker.address)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "ends with 70 records not acknowledged" in done.stderr


def test_a_closed_producer_holds_up_nothing() -> None:
    program = """
        import sys, bradbury
        producer = bradbury.Producer(sys.argv[1])
        future = producer.send("t", b"")
        producer.close(timeout=0)
        print(future.exception())
    """
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, SILENCE)
        done = run(program, broker.address)
    assert done.stderr.count("\n") == 1  # that one record is not delivered
    assert "closed" in done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_leaves_the_records_to_its_parent(
    bootstrap: str, new_topic: NewTopic, admin: bradbury.Admin
) -> None:
    topic = new_topic()
    program = """
        import os, sys, bradbury
        producer = bradbury.Producer(sys.argv[1], linger_ms=60_000)
        producer.send(sys.argv[2], b"")
        if os.fork():
            os.wait()
    """
    assert run(program, bootstrap, topic).returncode == 0
    assert count_in(admin, topic) == 1


@pytest.mark.long  # a program that is interrupted
def test_ctrl_c_ends_a_program_that_flushes_at_its_end() -> None:
    program = """
        import sys, bradbury
        producer = bradbury.Producer(sys.argv[1], linger_ms=0)
        producer.send("t", b"")
        print("sent", flush=True)
        sys.stdin.read()
    """
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(ProduceRequest, SILENCE)
        with ChildProcess(
            [sys.executable, "-c", textwrap.dedent(program), broker.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"sent\n"
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)
            assert process.returncode != 0
