"""Can tables be read in 80 columns, and by programs from a pipe?"""

import re
import threading
from collections.abc import Iterator

import pytest

import bradbury
from bradbury.cli.terminal.output import FOLDED, print_table
from bradbury.tests.support.command_line import Command

COLUMNS = 80
TOPIC = "orders.payments.eu-west-1.transactions-settled-v2"
GROUP = "settlement-reporting-service-eu-west-1"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A cluster with names as they are in the world, and a group with two members."""
    with bradbury.local() as cluster:
        bootstrap = cluster.bootstrap_servers
        with cluster.admin() as admin:
            admin.create_topic(TOPIC, 3, configs={"leader.replication.throttled.replicas": "0:1"})
        with bradbury.Producer(bootstrap) as producer:
            producer.send_batch(TOPIC, [(b"%d" % n, b"value") for n in range(30_000)]).result()
        ended = threading.Event()
        joined = [threading.Event(), threading.Event()]
        members = [
            threading.Thread(target=_be_a_member, args=(bootstrap, number, joined[number], ended))
            for number in range(2)
        ]
        for member in members:
            member.start()
        try:
            assert all(one.wait(60) for one in joined)
            yield bootstrap
        finally:
            ended.set()
            for member in members:
                member.join(60)


def _be_a_member(
    bootstrap: str, number: int, joined: threading.Event, ended: threading.Event
) -> None:
    with bradbury.Consumer(
        TOPIC,
        bootstrap=bootstrap,
        group=GROUP,
        client_id=f"settlement-reporting-{number}",
        auto_offset_reset="earliest",
    ) as consumer:
        while not ended.is_set():
            consumer.poll(100)
            if consumer.assignment() and len(consumer.assignment()) < 3:
                joined.set()


TABLES = [
    ("topics", "list"),
    ("topics", "list", "--internal"),
    ("topics", "describe", TOPIC),
    ("topics", "configs", TOPIC),
    ("topics", "configs", TOPIC, "--all"),
    ("offsets", "get", TOPIC),
    ("groups", "list"),
    ("groups", "describe", GROUP),
    ("groups", "describe", GROUP, "--watch", "--count", "1"),
    ("groups", "members", GROUP),
    ("groups", "reset-offsets", GROUP, "--topic", TOPIC, "--to-earliest"),
    ("dirs",),
    ("dirs", "--partitions"),
    ("replicas", "elect"),
    ("bench", "produce", "--records", "1000"),
    ("bench", "latency", "--records", "100", "--throughput", "1000"),
    ("bench", "consume", TOPIC, "--records", "100"),
    ("log", "verify", "DATA"),
    ("log", "index-check", "DATA"),
]


@pytest.mark.slow
@pytest.mark.parametrize("words", TABLES, ids=" ".join)
def test_every_table_fits_into_80_columns(
    command: Command, servers: str, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", servers)
    with bradbury.Admin(servers) as admin:
        (directory,) = admin.describe_log_dirs()
    filled = [directory.path if word == "DATA" else word for word in words]
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    outcome = command(*filled)
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    # A heading above a table is one line of text, which a terminal may break anywhere.
    wide = [line for line in lines if len(line) > COLUMNS and not line.startswith(TOPIC)]
    assert wide == []
    for line in outcome.out.splitlines():
        _check_that_no_name_is_in_ribbons(line)


def _check_that_no_name_is_in_ribbons(line: str) -> None:
    for part in re.findall(r"\S+", line):
        if len(part) > 4 and part in TOPIC and part != TOPIC:
            assert TOPIC.endswith(part) or len(part) >= FOLDED, line


@pytest.mark.slow
def test_in_a_pipe_a_row_is_a_line_however_long(command: Command, servers: str) -> None:
    outcome = command("groups", "describe", GROUP, "-b", servers)
    rows = [line.split() for line in outcome.out.splitlines() if line.startswith(TOPIC)]
    assert [(row[0], row[1]) for row in rows] == [(TOPIC, "0"), (TOPIC, "1"), (TOPIC, "2")]
    assert all(row[-1] == "/127.0.0.1" for row in rows)
    assert outcome.err == ""


ROWS = [("a-name-of-more-than-24-letters", 1, "x" * 40), ("short", 22, "-")]


def shown(capsys: pytest.CaptureFixture[str], width: int, **settings) -> list[str]:
    print_table(("name", "count", "text"), ROWS, **settings)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= width for line in lines)
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize("width", [76, 80, 200])
def test_what_fits_is_not_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width + 10))
    lines = shown(capsys, width + 10)
    assert lines[2] == f"a-name-of-more-than-24-letters      1  {'x' * 40}"
    assert lines[3] == "short                              22  -"


def test_long_cells_are_folded_but_not_into_ribbons(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = shown(capsys, 60)
    assert lines[0].split() == ["name", "count", "text"]
    assert min(len(part) for part in lines[2].split() if part != "1") >= FOLDED


def test_what_others_show_is_left_out_first_and_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table(("name", "count", "text"), ROWS, optional=("text",))
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0].split() == ["name", "count"]
    assert captured.err == "no room for text in 40 columns; --json has all\n"


def test_where_no_table_fits_each_cell_has_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    lines = shown(capsys, 30)
    assert lines[0] == "name   a-name-of-more-than-24-"
    assert "count  1" in lines
    assert "count  22" in lines
