"""Lines in, lines out: what kafka-python sees of what was produced, and the other way round."""

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import bradbury
from bradbury import LocalCluster
from bradbury.cli.topics.produce_command import split_lines
from bradbury.tests.support.child_process import ChildProcess
from bradbury.tests.support.command_line import Command, command_under_way


@pytest.fixture(autouse=True)
def servers(
    bradbury_cluster: LocalCluster,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    environment["BRADBURY_BOOTSTRAP"] = bradbury_cluster.bootstrap_servers
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)
    return bradbury_cluster.bootstrap_servers


@pytest.fixture
def topic(bradbury_cluster: LocalCluster, bradbury_topic: str) -> str:
    with bradbury_cluster.admin() as admin:
        admin.create_topic(bradbury_topic, partitions=2)
    return bradbury_topic


def read_all(servers: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """(partition, key, value) as another client reads them."""
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    try:
        partitions = [TopicPartition(topic, number) for number in (0, 1)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found = []
        while any(consumer.position(one) < ends[one] for one in partitions):
            for records in consumer.poll(timeout_ms=500).values():
                found += [(record.partition, record.key, record.value) for record in records]
        return found
    finally:
        consumer.close()


def test_every_line_of_stdin_is_a_record_also_the_last_without_a_newline(
    process: Command, servers: str, topic: str
) -> None:
    outcome = process("produce", topic, stdin=b"one\n\nthree \r\nf\xc3\xbcnf\xff")
    assert outcome.code == 0, outcome.err
    assert "4 records" in outcome.err
    values = [value for _, _, value in read_all(servers, topic)]
    assert sorted(values) == sorted([b"one", b"", b"three \r", b"f\xc3\xbcnf\xff"])


def test_no_input_is_no_record(process: Command, servers: str, topic: str) -> None:
    assert process("produce", topic).code == 0
    assert read_all(servers, topic) == []


def test_a_file_of_many_lines_comes_back_line_for_line(
    command: Command, tmp_path: Path, topic: str
) -> None:
    lines = [f"line {number}" for number in range(200_000)]
    for name, part in (("a", lines[:150_000]), ("b", lines[150_000:])):
        (tmp_path / name).write_text("\n".join(part) + "\n")
    sent = command(
        "produce", topic, str(tmp_path / "a"), str(tmp_path / "b"), "--batch", "7000", "--json"
    )
    assert sent.code == 0, sent
    report = json.loads(sent.out)
    assert (report["records"], report["topic"]) == (200_000, topic)
    outcome = command("consume", topic, "--from-beginning", "--until-end")
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.out.splitlines()) == sorted(lines)


@pytest.mark.parametrize(("written", "meant"), [(":", b":"), ("\\t", b"\t"), ("=>", b"=>")])
def test_the_key_is_the_text_before_the_first_separator(
    process: Command, servers: str, topic: str, written: str, meant: bytes
) -> None:
    lines = [b"a" + meant + b"1", b"b" + meant + b"2" + meant + b"3", meant + b"no key text"]
    assert process("produce", topic, "-k", written, stdin=b"\n".join(lines)).code == 0
    found = {(key, value) for _, key, value in read_all(servers, topic)}
    assert found == {(b"a", b"1"), (b"b", b"2" + meant + b"3"), (b"", b"no key text")}


def test_keys_go_where_every_kafka_client_puts_them(
    process: Command, servers: str, topic: str
) -> None:
    keys = [f"key-{number}".encode() for number in range(50)]
    assert (
        process("produce", topic, "-k", ":", stdin=b"\n".join(k + b":cli" for k in keys)).code == 0
    )
    producer = KafkaProducer(bootstrap_servers=servers)
    for key in keys:
        producer.send(topic, key=key, value=b"python").get(10)
    producer.close()
    places: dict[bytes | None, set[int]] = {}
    for partition, key, _ in read_all(servers, topic):
        places.setdefault(key, set()).add(partition)
    assert all(len(partitions) == 1 for partitions in places.values())
    assert {partition for found in places.values() for partition in found} == {0, 1}


def test_one_partition_can_be_asked_for(process: Command, servers: str, topic: str) -> None:
    assert process("produce", topic, "-p", "1", stdin=b"x\ny\n").code == 0
    assert [partition for partition, _, _ in read_all(servers, topic)] == [1, 1]


def test_a_pipe_is_read_like_a_file(
    process: Command, servers: str, topic: str, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x\ny\n",), daemon=True)
    writer.start()
    assert process("produce", topic, str(pipe)).code == 0
    writer.join(60)
    assert len(read_all(servers, topic)) == 2


def test_bad_input_of_produce_is_one_line(command: Command, process: Command, topic: str) -> None:
    assert "line 2 has no ':'" in process("produce", topic, "-k", ":", stdin=b"a:1\nb2\n").error
    assert "partitions 0 to 1, not 7" in command("produce", topic, "-p", "7").error
    assert "topics create unknown" in command("produce", "unknown").error
    assert "there is no such file" in command("produce", topic, "absent.txt").usage
    assert "--acks" in command("produce", topic, "--acks", "2").usage
    assert "compression" in command("produce", topic, "--compression", "rar").usage.lower()
    assert "--key-separator" in command("produce", topic, "-k", "").usage


def test_consume_reads_what_another_client_wrote(
    command: Command, servers: str, topic: str
) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    producer.send(
        topic,
        key=b"k",
        value="wért".encode(),
        partition=1,
        timestamp_ms=1000,
        headers=[("h", b"x")],
    ).get(10)
    producer.send(topic, value=b"\xff", partition=1, timestamp_ms=2000).get(10)
    producer.send(topic, key=b"gone", value=None, partition=1, timestamp_ms=3000).get(10)
    producer.close()
    read = ("consume", topic, "--from-beginning", "--until-end", "--format")
    first, second, third = map(json.loads, command(*read, "json").out.splitlines())
    assert first == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": 1000,
        "key": "k",
        "value": "wért",
        "headers": [{"key": "h", "value": "x"}],
    }
    assert (second["key"], second["value_base64"]) == (None, "/w==")
    assert (third["key"], third["value"]) == ("gone", None)
    shown = command(*read, "%t %p %o %T %k=%h%%\\t|").out.splitlines()
    assert shown[0] == f'{topic} 1 0 1000 k=[{{"key": "h", "value": "x"}}]%\t|'
    assert shown[2] == f"{topic} 1 2 3000 gone=[]%\t|"


def test_max_partition_and_offset_choose_the_records(
    command: Command, process: Command, topic: str
) -> None:
    process("produce", topic, "-p", "0", stdin=b"\n".join(b"%d" % n for n in range(100)))
    process("produce", topic, "-p", "1", stdin=b"other\n")
    read = ("consume", topic, "-p", "0")
    assert command(*read, "--from-beginning", "--max", "3").out.split() == ["0", "1", "2"]
    assert command(*read, "--offset", "97", "--until-end").out.split() == ["97", "98", "99"]
    assert command(*read, "--offset", "-2", "--until-end").out.split() == ["98", "99"]
    assert command(*read, "--offset", "-1000", "--max", "1").out.split() == ["0"]
    late = command(*read, "--offset", "5000", "--timeout", "0")
    assert (late.code, late.out) == (0, "")
    assert late.err == f"offset 5000 is beyond the end of {topic}-0; reading begins at 100\n"
    command("topics", "delete-records", topic, "-p", "0", "--before", "98", "--yes")
    early = command(*read, "--offset", "3", "--until-end")
    assert early.out.split() == ["98", "99"]
    assert "is before the first record" in early.err
    assert command("consume", topic, "--until-end").out == ""
    assert command("consume", topic, "--timeout", "0").out == ""


def test_a_group_goes_on_where_it_stopped(command: Command, process: Command, topic: str) -> None:
    process("produce", topic, stdin=b"1\n2\n3\n")
    member = ("consume", topic, "--from-beginning", "--until-end", "--group", topic)
    assert sorted(command(*member).out.split()) == ["1", "2", "3"]
    process("produce", topic, stdin=b"4\n")
    assert command(*member).out.split() == ["4"]


def test_bad_input_of_consume_is_one_line(command: Command, topic: str) -> None:
    assert "topics create unknown" in command("consume", "unknown").error
    assert "partitions 0 to 1, not 7" in command("consume", topic, "-p", "7").error
    assert "--offset needs --partition" in command("consume", topic, "--offset", "3").usage
    assert "--group" in command("consume", topic, "-p", "0", "-g", "g").usage
    assert "--group is empty" in command("consume", topic, "--group", "").usage
    assert "%x" in command("consume", topic, "--format", "%x").usage
    assert "--format" in command("consume", topic, "--format", "yaml").usage
    assert "--format json" in command("consume", topic, "--json").usage


def test_a_reader_that_has_seen_enough_ends_consume_quietly(
    process: Command, environment: dict[str, str], topic: str
) -> None:
    process("produce", topic, stdin=b"\n".join(b"%d" % n for n in range(100_000)))
    done = subprocess.run(
        f"{sys.executable} -m bradbury.cli consume {topic} --from-beginning | head -1",
        shell=True,
        executable="/bin/bash",
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.count(b"\n"), done.stderr) == (1, b"")


def test_ctrl_c_ends_consume_without_a_traceback(
    environment: dict[str, str], process: Command, topic: str
) -> None:
    process("produce", topic, stdin=b"first\n")
    with ChildProcess(
        [sys.executable, "-m", "bradbury.cli", "consume", topic, "--from-beginning"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == b"first\n"  # so it is up and waits for more
        os.kill(running.pid, signal.SIGINT)
        code = running.wait(60)
        assert (code, running.stderr.read()) == (130, b"")


def test_typed_lines_leave_before_the_input_ends(
    environment: dict[str, str], command: Command, topic: str
) -> None:
    with ChildProcess(
        [sys.executable, "-m", "bradbury.cli", "produce", topic],
        env=environment,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdin is not None
        running.stdin.write(b"typed\n")
        running.stdin.flush()
        assert command("consume", topic, "--from-beginning", "--max", "1").out == "typed\n"
        assert running.poll() is None
        running.stdin.close()
        assert running.wait(30) == 0


@given(
    text=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n"]), max_size=30).map(b"".join),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    batch=st.integers(1, 5),
)
def test_lines_are_the_same_for_any_block_boundaries(
    text: bytes, cuts: list[int], batch: int
) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    blocks = [text[start:end] for start, end in itertools.pairwise(edges)]
    chunks = list(split_lines(iter(blocks), batch))
    expected = text.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert [line for chunk in chunks for line in chunk] == expected
    assert all(0 < len(chunk) <= batch for chunk in chunks)


def test_a_process_with_many_open_files_produces_too(
    command: Command, tmp_path: Path, topic: str
) -> None:
    """select() takes no descriptor above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    (tmp_path / "lines").write_text("one\ntwo\n")
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert command("produce", topic, str(tmp_path / "lines")).code == 0
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_wait_for_a_leader_is_remarked(environment: dict[str, str]) -> None:
    (Path(environment["HOME"]) / "line").write_text("x\n")
    with bradbury.local(nodes=3) as cluster:
        with cluster.admin() as admin:
            leader = admin.create_topic("gates", 1, 1).partitions[0].leader
        cluster.stop_node([node.node_id for node in cluster.nodes].index(leader))
        line = ["produce", "gates", "line", "--bootstrap", cluster.bootstrap_servers]
        with command_under_way(line, environment) as (running, said):
            assert said.readline() == (
                "waiting for topic 'gates': it has no leader, or too few replicas in sync; "
                "`bradbury status` shows what is wrong\n"
            )
            running.terminate()


@pytest.mark.parametrize("line", [("produce",), ("consume", "-n", "1"), ("topics", "describe")])
def test_a_name_that_no_topic_may_have_makes_no_sense(command: Command, line) -> None:
    refused = command(*line, "bad topic!").usage
    assert refused == command("topics", "create", "bad topic!").usage
