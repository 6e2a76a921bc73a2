"""bradbury groups reset-offsets, export and import: against a real cluster."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import bradbury
from bradbury import LocalCluster
from bradbury.cli.groups.group_offsets_file import read_offsets
from bradbury.cli.groups.group_reset import parse_duration
from bradbury.cli.terminal.failure import CommandFailed
from bradbury.clients.admin.group_offsets_admin import CommittedOffset
from bradbury.tests.support.command_line import Command, Outcome

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def bootstrap(bradbury_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("BRADBURY_BOOTSTRAP", bradbury_cluster.bootstrap_servers)
    return bradbury_cluster.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str, bradbury_topic: str) -> str:
    """Three partitions: 0 has records of 3 hours ago, 1 hour ago and now; 1 had two, and lost one."""
    now_ms = round(time.time() * 1000)
    with bradbury.Admin(bootstrap) as admin:
        admin.create_topic(bradbury_topic, 3, configs={"retention.ms": "-1"})
        with bradbury.Producer(bootstrap) as producer:
            for ago_ms in (3 * HOUR_MS, HOUR_MS, 0):
                timestamp = now_ms - ago_ms
                producer.send(bradbury_topic, b"x", partition=0, timestamp_ms=timestamp).result()
            for timestamp in (1_000, 2_000):
                producer.send(bradbury_topic, b"x", partition=1, timestamp_ms=timestamp).result()
        admin.delete_records({(bradbury_topic, 1): 1})
    return bradbury_topic


@pytest.fixture
def group(bootstrap: str, topic: str) -> str:
    """A group at 2 of partition 0 and 1 of partition 1; nothing is committed for partition 2."""
    with bradbury.Admin(bootstrap) as admin:
        admin.alter_group_offsets(f"{topic}-group", {(topic, 0): 2, (topic, 1): 1})
    return f"{topic}-group"


Offsets = Callable[[], dict[int, int]]


@pytest.fixture
def offsets(bootstrap: str, group: str) -> Offsets:
    def committed() -> dict[int, int]:
        with bradbury.Admin(bootstrap) as admin:
            found = admin.group_offsets(group)
        return {key.partition: one.offset for key, one in found.items()}

    return committed


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--to-earliest",), {0: 0, 1: 1, 2: 0}),
        (("--to-latest",), {0: 3, 1: 2, 2: 0}),
        (("--to-current",), {0: 2, 1: 1, 2: 0}),
        (("--to-offset", "1"), {0: 1, 1: 1, 2: 0}),
        (("--to-offset", "0"), {0: 0, 1: 1, 2: 0}),
        (("--to-offset", "99"), {0: 3, 1: 2, 2: 0}),
        (("--by-duration", "PT2H"), {0: 1, 1: 2, 2: 0}),
        (("--by-duration", "30m"), {0: 2, 1: 2, 2: 0}),
        (("--to-datetime", "1970-01-01T00:00:01.500Z"), {0: 0, 1: 1, 2: 0}),
        (("--to-datetime", "2100-01-01"), {0: 3, 1: 2, 2: 0}),
    ],
)
def test_every_form_is_shown_first_and_done_with_execute(
    command: Command, topic: str, group: str, offsets: Offsets, words: tuple, expected: dict
) -> None:
    reset = ("groups", "reset-offsets", group, "--topic", topic, *words, "--json")
    planned = json.loads(command(*reset).out)
    assert {one["partition"]: one["new"] for one in planned} == expected
    assert offsets() == {0: 2, 1: 1}
    assert command(*reset, "--execute").code == 0
    assert offsets() == expected


@pytest.mark.parametrize(
    ("shift", "expected"), [("-1", {0: 1, 1: 1}), ("1", {0: 3, 1: 2}), ("-9", {0: 0, 1: 1})]
)
def test_a_shift_is_from_where_the_group_is_and_stays_in_the_log(
    command: Command, group: str, offsets: Offsets, shift: str, expected: dict
) -> None:
    shifted = ("groups", "reset-offsets", group, "--all-topics", "--shift-by", shift)
    assert command(*shifted, "--execute").code == 0
    assert offsets() == expected


def test_a_shift_needs_an_offset_to_begin_from(command: Command, topic: str, group: str) -> None:
    outcome = command("groups", "reset-offsets", group, "--topic", topic, "--shift-by", "1")
    assert f"nothing is committed for {topic}-2" in outcome.error


def test_only_the_partitions_that_are_named_move(
    command: Command, topic: str, group: str, offsets: Offsets
) -> None:
    words = ("groups", "reset-offsets", group, "-t", f"{topic}:0,2", "--to-latest", "--execute")
    assert command(*words).code == 0
    assert offsets() == {0: 3, 1: 1, 2: 0}


def test_the_table_says_what_would_change_and_that_nothing_has(
    command: Command, topic: str, group: str
) -> None:
    outcome = command("groups", "reset-offsets", group, "-t", topic, "--to-offset", "99")
    assert "99 is past the end: the end" in outcome.out
    assert "+1" in outcome.out
    assert "nothing was changed; --execute sets the offsets" in outcome.err


def test_a_group_that_is_not_there_is_made_only_when_that_is_said(
    command: Command, bootstrap: str, topic: str
) -> None:
    words = ("groups", "reset-offsets", f"{topic}-new", "-t", topic, "--to-latest", "--execute")
    error = command(*words).error
    assert f"group '{topic}-new' does not exist; `bradbury groups list`" in error
    assert "--create creates it" in error
    with bradbury.Admin(bootstrap) as admin:
        assert f"{topic}-new" not in [one.group_id for one in admin.list_groups()]
    words += ("--create",)
    assert command(*words).code == 0
    with bradbury.Admin(bootstrap) as admin:
        assert len(admin.group_offsets(f"{topic}-new")) == 3


def test_a_group_with_members_is_shown_but_not_moved(
    command: Command, bootstrap: str, topic: str, group: str, offsets: Offsets
) -> None:
    with bradbury.Consumer(topic, bootstrap=bootstrap, group=group) as consumer:
        consumer.poll(10_000)
        words = ("groups", "reset-offsets", group, "-t", topic, "--to-earliest")
        assert "it has members, which must be stopped first" in command(*words).err
        assert (
            "has members, which would overwrite the offsets; stop them"
            in command(*words, "--execute").error
        )
        path = Path("offsets")
        path.write_text(f"{topic},0,0\n")
        assert "stop them first" in command("groups", "import", group, str(path)).error
        path.unlink()
        assert offsets()[0] >= 2


def test_what_makes_no_sense_is_refused_in_one_line(
    command: Command, topic: str, group: str
) -> None:
    def ask(*words: str) -> Outcome:
        return command("groups", "reset-offsets", group, *words)

    assert "use one of --to-earliest" in ask("-t", topic).usage
    assert "use one of --to-earliest" in ask("-t", topic, "--to-latest", "--shift-by", "1").usage
    assert "use --topic TOPIC or --all-topics" in ask("--to-latest").usage
    both = ask("--to-latest", "-t", topic, "--all-topics")
    assert "use --topic TOPIC or --all-topics" in both.usage
    assert "omit --all-topics" in ask("--from-file", "x.csv", "--all-topics").usage
    assert "is not a duration" in ask("-t", topic, "--by-duration", "an hour").usage
    assert "is not a time" in ask("-t", topic, "--to-datetime", "noon").usage
    refused = ask("-t", topic, "--to-datetime", "latest").usage
    assert "is not a time" in refused and "earliest" not in refused
    assert "TOPIC:0,1" in ask("-t", f"{topic}:", "--to-latest").usage
    assert "0 to 2, not 3" in ask("-t", f"{topic}:3", "--to-latest").error
    assert "does not exist" in ask("-t", "absent", "--to-latest").error
    words = ("groups", "reset-offsets", "absent", "--all-topics", "--to-latest")
    assert "'absent' does not exist" in command(*words).error
    assert "has committed nothing" in command(*words, "--create").error


def test_what_is_exported_can_be_imported_elsewhere(
    command: Command, bootstrap: str, topic: str, group: str, home: Path
) -> None:
    with bradbury.Admin(bootstrap) as admin:
        admin.alter_group_offsets(group, {(topic, 1): CommittedOffset(2, 0, "checked, twice")})
        csv, document = home / "offsets.csv", home / "offsets.json"
        csv.write_text(command("groups", "export", group).out)
        document.write_text(command("groups", "export", group, "--json").out)
        assert csv.read_text() == f"{topic},0,2\n{topic},1,2\n"
        assert command("groups", "import", f"{group}-a", str(csv)).code == 0
        assert command("groups", "import", f"{group}-b", str(document), "--dry-run").code == 0
        assert admin.group_offsets(f"{group}-b") == {}
        assert command("groups", "import", f"{group}-b", str(document)).code == 0
        assert [one.offset for one in admin.group_offsets(f"{group}-a").values()] == [2, 2]
        assert admin.group_offsets(f"{group}-b") == admin.group_offsets(group)


def test_several_groups_fit_in_one_file(
    command: Command, bootstrap: str, topic: str, group: str, offsets: Offsets, home: Path
) -> None:
    other = f"{topic}-other"
    with bradbury.Admin(bootstrap) as admin:
        admin.alter_group_offsets(other, {(topic, 0): 0})
    path = home / "offsets.csv"
    path.write_text(command("groups", "export", group, other).out)
    assert path.read_text().splitlines()[-1] == f"{other},{topic},0,0"
    command("groups", "reset-offsets", group, "--all-topics", "--to-latest", "--execute")
    outcome = command(
        "groups", "reset-offsets", group, "--from-file", str(path), "--execute", "--json"
    )
    assert [(one["current"], one["new"]) for one in json.loads(outcome.out)] == [(3, 2), (2, 1)]
    assert offsets() == {0: 2, 1: 1}
    assert "no offsets of group 'third'" in command("groups", "import", "third", str(path)).error


def test_a_plan_can_be_kept_as_a_file(
    command: Command, topic: str, group: str, home: Path, offsets: Offsets
) -> None:
    words = ("groups", "reset-offsets", group, "-t", topic, "--to-earliest", "--export")
    plan = home / "plan.csv"
    plan.write_text(command(*words).out)
    assert plan.read_text() == f"{topic},0,0\n{topic},1,1\n{topic},2,0\n"
    assert offsets() == {0: 2, 1: 1}
    words = ("groups", "reset-offsets", group, "--from-file", str(plan), "-t", f"{topic}:0")
    assert command(*words, "--execute").code == 0
    assert offsets() == {0: 0, 1: 1}


def test_an_import_says_which_offsets_are_not_in_the_log_and_keeps_them(
    command: Command, topic: str, group: str, offsets: Offsets, home: Path
) -> None:
    path = home / "offsets.csv"
    path.write_text(f"{topic},0,77\n")
    outcome = command("groups", "import", group, str(path))
    assert f"{topic}-0: 77 is not in the log, 0 to 3" in outcome.err
    assert offsets()[0] == 77


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("t,0\n", "line 1: 't,0' is not topic,partition,offset"),
        ("t,0,1\nt,0,x\n", "line 2: 't,0,x' is not"),
        ("t,0,-1\n", "is not topic,partition,offset"),
        ("t,0,1\nt,0,2\n", "line 2: t-0 is listed twice"),
        (",0,1\n", "is not topic,partition,offset"),
        ("", "no offsets of group"),
        ('{"version": 2}', "has version 2; 1 can be read"),
        ('{"version": 1, "offsets": [{"topic": "t"}]}', "is not a file of `bradbury groups export"),
        ('{"version": 1, "offsets": 5}', "is not a file of"),
        ("{", "is not a file of"),
    ],
)
def test_a_file_that_is_not_understood_says_where(
    command: Command, home: Path, group: str, content: str, reason: str
) -> None:
    path = home / "offsets"
    path.write_text(content)
    assert reason in command("groups", "import", group, str(path)).error


def test_a_file_that_is_not_there_or_of_another_cluster_is_refused(
    command: Command, home: Path, topic: str, group: str
) -> None:
    assert "is not there" in command("groups", "import", group, "nowhere.csv").usage
    path = home / "offsets"
    path.write_text("absent,0,1\n")
    assert "'absent' does not exist" in command("groups", "import", group, str(path)).error
    path.write_text(f"{topic},9,1\n")
    assert "0 to 2, not 9" in command("groups", "import", group, str(path)).error
    path.write_bytes(b"\xff\xfe\x00")
    assert "is not text" in command("groups", "import", group, str(path)).error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1H30M", 5_400_000),
        ("P2D", 172_800_000),
        ("P1DT1S", 86_401_000),
        ("PT0.5S", 500),
        ("90m", 5_400_000),
        ("-PT1H", -3_600_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration(text, "--by-duration") == expected


@given(text=st.text(max_size=12))
def test_text_that_is_not_a_duration_is_refused(text: str) -> None:
    try:
        assert isinstance(parse_duration(text, "--by-duration"), int)
    except CommandFailed as error:
        assert "is not a duration" in str(error)


@given(content=st.text(st.characters(exclude_categories=["Cs"])) | st.text('{}[]",0at:\n'))
def test_a_file_without_offsets_is_refused(
    tmp_path_factory: pytest.TempPathFactory, content: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-file"
    path.write_text(content)
    try:
        found = read_offsets(path, "g")
    except CommandFailed:
        return
    assert all(key.partition >= 0 and one.offset >= 0 for key, one in found.items())
