"""What does a damaged file of the metadata cost? Never more than itself, and never in silence.

Each row: a data directory as a kill or a clean stop has left it, one of its files damaged, and a
start. It serves every topic and record, or it is refused with one line that names file and remedy.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury
from bradbury.cli.main import run
from bradbury.launch import local as local_module
from bradbury.launch.local import LocalCluster
from bradbury.protocol.errors import InconsistentClusterId
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.disk.storage_failure import DataDirectoryError
from bradbury.tests.live.nodes.damaged_files import (
    DAMAGES,
    PARTITIONS,
    RECORDS,
    TOPICS,
    LeftBehind,
    flip,
    make_unreadable,
)

LOG = "metadata/__cluster_metadata-0"
FILES = (
    f"{LOG}/00000000000000000000.log",
    f"{LOG}/00000000000000000000.index",
    f"{LOG}/00000000000000000000.timeindex",
    f"{LOG}/leader-epoch-checkpoint",
    f"{LOG}/partition.metadata",
    "metadata/quorum-state",
    "metadata/quorum-state.copy",
    "metadata/acknowledged-offset",
    "metadata/meta.properties",
    "metadata/meta.properties.copy",
    "metadata/recovery-point-offset-checkpoint",
    "metadata/replication-offset-checkpoint",
    "metadata/log-start-offset-checkpoint",
    "metadata/.kafka_cleanshutdown",
    "metadata/.lock",
    "partitions-0/meta.properties",
    "partitions-0/meta.properties.copy",
    "partitions-0/.kafka_cleanshutdown",
    "partitions-0/last-port",
    "partitions-0/.lock",
    "partitions-0/recovery-point-offset-checkpoint",
    "partitions-0/replication-offset-checkpoint",
    "partitions-0/log-start-offset-checkpoint",
    "partitions-0/cleaner-offset-checkpoint",
)
FOLDERS = ("metadata", LOG)
SEGMENT = FILES[0]
ONLY_AFTER_A_STOP = ("index", "offset-checkpoint", "cleanshutdown")
STATES = ("killed", "stopped")
UNREADABLE = "unreadable"
EVERY_DAMAGE = (*DAMAGES, UNREADABLE)
QUICK = {
    (SEGMENT, "flipped in the middle"),
    (SEGMENT, "flipped at the end"),
    (SEGMENT, "emptied"),
    (SEGMENT, UNREADABLE),
    (LOG, "deleted"),
    ("metadata", "deleted"),
    ("metadata/quorum-state", "garbage"),
    ("metadata/acknowledged-offset", "deleted"),
    ("metadata/meta.properties", "deleted"),
    ("metadata/.lock", "a directory"),
    ("partitions-0/meta.properties", "deleted"),
    ("partitions-0/meta.properties", "flipped in the middle"),
    ("partitions-0/last-port", "garbage"),
}
QUICK_STOPPED = {
    (SEGMENT, "flipped in the middle"),
    (SEGMENT, "emptied"),
    (LOG, "deleted"),
    (f"{LOG}/leader-epoch-checkpoint", UNREADABLE),
}


def is_refused(file: str, damage: str) -> bool:
    """Where nothing else says what the file has said, or the disk refuses: the start says so."""
    if file in (SEGMENT, *FOLDERS):
        return True
    if damage == "a directory":
        return file in (
            "metadata/.lock",
            "partitions-0/.lock",
            "partitions-0/meta.properties",
            "partitions-0/meta.properties.copy",
            "partitions-0/.kafka_cleanshutdown",
        )
    if damage != UNREADABLE:
        return False
    # An index is opened when it is needed; the log is read without, and without checkpoints, but
    # for that of its epochs.
    if file == f"{LOG}/partition.metadata" or file.endswith("offset-checkpoint"):
        return False
    return not file.endswith(
        ("quorum-state", ".copy", "meta.properties", "cleanshutdown", "last-port", "index")
    )


def rows() -> list[object]:
    found = []
    for state in STATES:
        for file in (*FILES, *FOLDERS):
            if state == "killed" and file.endswith(ONLY_AFTER_A_STOP):
                continue
            for damage in ("deleted",) if file in FOLDERS else EVERY_DAMAGE:
                is_quick = (file, damage) in (QUICK if state == "killed" else QUICK_STOPPED)
                marks = () if is_quick else (pytest.mark.deep,)
                name = f"{state}-{file.removesuffix('.log')}-{damage}".replace(" ", "-")
                found.append(pytest.param(state, file, damage, marks=marks, id=name))
    return found


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LeftBehind]]:
    """What a kill and a clean stop have left of one node."""
    path = tmp_path_factory.mktemp("left")
    made = {each: LeftBehind(path / each, nodes=1, killed=each == "killed") for each in STATES}
    yield made
    for each in made.values():
        each.forget()


def read_all(cluster: LocalCluster) -> set[bytes]:
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "reader",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(t, index, 0) for t in TOPICS for index in range(PARTITIONS)])
    found = {message.value() for message in consumer.consume(RECORDS, 20)}
    consumer.close()
    return found


ALL = {b"%d" % number for number in range(RECORDS)}


@pytest.mark.parametrize(("state", "file", "damage"), rows())
def test_a_damaged_file_costs_itself_at_most_or_is_named(
    left: dict[str, LeftBehind],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    file: str,
    damage: str,
) -> None:
    data_dir = left[state].copy(tmp_path / "data")
    path = data_dir / file
    assert path.exists()
    if damage == UNREADABLE:
        make_unreadable(monkeypatch, path)
    else:
        DAMAGES[damage](path)
    if not is_refused(file, damage):
        with bradbury.local(str(data_dir)) as cluster:
            assert read_all(cluster) == ALL
            assert list(cluster.nodes[0].status()["damaged"]) == []
        return
    with pytest.raises((DataDirectoryError, InconsistentClusterId)) as caught:
        bradbury.local(str(data_dir))
    said = str(caught.value)
    assert "\n" not in said
    if file == "metadata":
        assert "`bradbury metadata recover" in said
        return
    assert str(data_dir / (LOG if damage in ("deleted", "emptied") else file)) in said
    if file in (SEGMENT, LOG):
        assert f"`bradbury metadata recover {data_dir}`" in said


def test_a_refused_start_has_changed_nothing_that_a_repair_needs(
    left: dict[str, LeftBehind], tmp_path: Path
) -> None:
    data_dir = left["killed"].copy(tmp_path / "data")
    segment = data_dir / SEGMENT
    whole = segment.read_bytes()
    DAMAGES["flipped in the middle"](segment)
    for _ in range(2):
        with pytest.raises(DataDirectoryError, match="is damaged at byte"):
            bradbury.local(str(data_dir))
    segment.write_bytes(whole)
    with bradbury.local(str(data_dir)) as cluster:
        assert read_all(cluster) == ALL


DEEP = pytest.mark.deep


@pytest.mark.parametrize(
    ("loss", "state"),
    [
        ("one bit", "killed"),
        ("metadata deleted", "stopped"),
        pytest.param("one bit", "stopped", marks=DEEP),
        pytest.param("emptied", "killed", marks=DEEP),
        pytest.param("emptied", "stopped", marks=DEEP),
        pytest.param("log deleted", "killed", marks=DEEP),
        pytest.param("log deleted", "stopped", marks=DEEP),
        pytest.param("metadata deleted", "killed", marks=DEEP),
    ],
)
def test_after_a_recovery_every_record_can_be_read_again(
    left: dict[str, LeftBehind],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    state: str,
    loss: str,
) -> None:
    data_dir = left[state].copy(tmp_path / "data")
    if loss == "metadata deleted":
        DAMAGES["deleted"](data_dir / "metadata")
    elif loss == "log deleted":
        DAMAGES["deleted"](data_dir / LOG)
    else:
        damage = {"one bit": "flipped in the middle"}.get(loss, loss)
        DAMAGES[damage](data_dir / SEGMENT)
    with pytest.raises((DataDirectoryError, InconsistentClusterId)):
        bradbury.local(str(data_dir))
    before = {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}
    shown = recover(capsys, str(data_dir), "--dry-run")
    assert {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()} == before
    assert not shown["is_written"]
    assert [(each["name"], len(each["partitions"])) for each in shown["topics"]] == [
        (name, PARTITIONS) for name in TOPICS
    ]
    done = recover(capsys, str(data_dir))
    assert done["is_written"]
    assert Path(done["set_aside"][0]).is_dir()
    with bradbury.local(str(data_dir)) as cluster:
        assert read_all(cluster) == ALL
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce(TOPICS[0], b"more", partition=0)
        assert producer.flush(20) == 0
    again = recover(capsys, str(data_dir))
    assert again["is_whole"]
    assert not again["is_written"]


def test_a_recovery_refuses_where_a_broker_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with bradbury.local(str(tmp_path)):
        capsys.readouterr()
        assert run(["metadata", "recover", str(tmp_path)]) == 1
        said = capsys.readouterr().err
    assert "is in use by a running broker; stop it" in said
    assert said.count("\n") == 1


def test_a_recovery_of_what_is_no_data_directory_touches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "anything" / "below").mkdir(parents=True)
    for arguments in ([], ["--dry-run"]):
        assert run(["metadata", "recover", str(tmp_path), *arguments]) == 1
        assert "there is no directory of partitions" in capsys.readouterr().err
    assert run(["metadata", "recover", str(tmp_path / "absent")]) == 2
    assert "there is no such directory" in capsys.readouterr().err
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["anything", "below"]


def test_a_recovery_that_was_killed_between_its_renames_is_finished(
    left: dict[str, LeftBehind],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data_dir = left["stopped"].copy(tmp_path / "data")
    DAMAGES["flipped in the middle"](data_dir / SEGMENT)
    original = OsFileSystem.rename

    def rename(disk: OsFileSystem, source: str, target: str) -> None:
        if target == str(data_dir / "metadata"):
            raise OSError(errno.EINTR, "killed here", target)
        original(disk, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(OsFileSystem, "rename", rename)
        assert run(["metadata", "recover", str(data_dir)]) == 1
    assert not (data_dir / "metadata").exists()
    done = recover(capsys, str(data_dir))
    assert done["is_whole"]
    with bradbury.local(str(data_dir)) as cluster:
        assert read_all(cluster) == ALL


def test_metadata_without_an_identity_has_it_from_the_vote(
    left: dict[str, LeftBehind], tmp_path: Path
) -> None:
    data_dir = left["killed"].copy(tmp_path / "data")
    for name in ("meta.properties", "meta.properties.copy"):
        (data_dir / "metadata" / name).unlink()
    with bradbury.local(str(data_dir)) as cluster:
        assert read_all(cluster) == ALL
    assert (data_dir / "metadata" / "meta.properties").exists()


def test_partitions_without_an_identity_get_the_one_that_the_metadata_knows(
    left: dict[str, LeftBehind], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = left["killed"].copy(tmp_path / "data")
    for name in ("meta.properties", "meta.properties.copy"):
        (data_dir / "partitions-0" / name).unlink()
    with pytest.raises(DataDirectoryError, match=r"partitions-0/meta\.properties is missing"):
        bradbury.local(str(data_dir))
    done = recover(capsys, str(data_dir))
    assert done["is_whole"]
    assert list(done["identities"].values()) == [1]
    with bradbury.local(str(data_dir)) as cluster:
        assert read_all(cluster) == ALL


def test_partitions_that_are_gone_altogether_are_named_and_the_node_comes_back(
    left: dict[str, LeftBehind], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir = left["killed"].copy(tmp_path / "data")
    DAMAGES["deleted"](data_dir / "partitions-0")
    with bradbury.local(str(data_dir), config={"broker.session.timeout.ms": 1_000}) as cluster:
        assert (
            "the node's former directory is still registered; waiting for its session to expire"
            in caplog.text
        )
        assert "the records that its former one had of 4 partitions" in caplog.text
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce(TOPICS[0], b"more", partition=0)
        assert producer.flush(20) == 0


THREE = ("node-0", "node-1", "node-2")
HEALS = (SEGMENT, LOG, "metadata")


def is_refused_of_three(file: str, damage: str) -> bool:
    """The log comes from the others, unless the disk refuses to read it."""
    return damage == UNREADABLE if file in HEALS else is_refused(file, damage)


def rows_of_three() -> list[object]:
    """(state, damage, files, whether refused). Of those that cost nothing one on each of the nodes,
    so that a start shows three.
    """
    found = []
    for state in STATES:
        for damage in EVERY_DAMAGE:
            files = [
                file
                for file in (*FILES, *FOLDERS)
                if (damage == "deleted" or file not in FOLDERS)
                and (state == "stopped" or not file.endswith(ONLY_AFTER_A_STOP))
            ]
            alone = [file for file in files if file in HEALS or is_refused_of_three(file, damage)]
            others = [file for file in files if file not in alone]
            groups = [(file,) for file in alone]
            groups += [tuple(others[at : at + 3]) for at in range(0, len(others), 3)]
            for group in groups:
                is_quick = (state, damage, group[0]) in QUICK_OF_THREE
                marks = () if is_quick else (pytest.mark.deep,)
                name = f"{state}-{damage}-{group[0].removesuffix('.log')}".replace(" ", "-")
                found.append(pytest.param(state, damage, group, marks=marks, id=name))
    return found


QUICK_OF_THREE = {
    ("killed", "flipped in the middle", SEGMENT),
    ("stopped", "flipped in the middle", SEGMENT),
    ("killed", "deleted", LOG),
    ("killed", "garbage", f"{LOG}/leader-epoch-checkpoint"),
    ("killed", UNREADABLE, SEGMENT),
}


@pytest.mark.parametrize(("state", "damage", "files"), rows_of_three())
def test_of_three_nodes_a_damaged_one_takes_from_the_others_what_it_has_lost(
    three: dict[str, LeftBehind],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    damage: str,
    files: tuple[str, ...],
) -> None:
    data_dir = three[state].copy(tmp_path / "data")
    for name, file in zip(THREE, files, strict=False):
        path = data_dir / name / file
        assert path.exists(), path
        if damage == UNREADABLE:
            make_unreadable(monkeypatch, path)
        else:
            DAMAGES[damage](path)
    if is_refused_of_three(files[0], damage):
        with pytest.raises(DataDirectoryError) as caught:
            bradbury.local(str(data_dir), nodes=3)
        assert "\n" not in str(caught.value)
        assert str(data_dir / THREE[0] / files[0]) in str(caught.value)
        return
    with bradbury.local(str(data_dir), nodes=3) as cluster:
        assert read_all(cluster) == ALL
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("after", 1, 3)])["after"].result(30)
        if files == ("metadata",):
            return  # it comes back as an empty directory, which is no voter: see `bradbury voters`
        deadline = time.monotonic() + 20
        while not is_whole(cluster, data_dir) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert is_whole(cluster, data_dir)
    logs = [(data_dir / name / SEGMENT).read_bytes() for name in THREE]
    shortest = min(logs, key=len)  # they stop one after the other
    assert all(shortest[-200:] in log for log in logs)


def is_whole(cluster: LocalCluster, data_dir: Path) -> bool:
    """All vote, all replicas are in sync, and nothing is damaged."""
    topics = {*TOPICS, "after"}
    return (
        all(caught_up(data_dir / name) for name in THREE)
        and all(topics <= set(node.image.topics) for node in cluster.nodes)
        and all(
            len(partition.isr) == len(THREE)
            for node in cluster.nodes
            for topic in topics
            for partition in node.image.topics[topic].partitions
        )
        and not any(node.status()["damaged"] for node in cluster.nodes)
    )


def test_of_three_voters_two_damaged_ones_are_waited_for_and_named(
    three: dict[str, LeftBehind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_module, "START_SECONDS", 3)
    data_dir = three["killed"].copy(tmp_path / "data")
    for name in THREE[:2]:
        DAMAGES["flipped in the middle"](data_dir / name / SEGMENT)
    with pytest.raises(TimeoutError, match="node-0 was damaged; it does not vote until") as caught:
        bradbury.local(str(data_dir), nodes=3)
    assert "\n" not in str(caught.value)
    whole = (three["killed"].path / THREE[2] / SEGMENT).read_bytes()
    assert (data_dir / THREE[2] / SEGMENT).read_bytes().startswith(whole)


def test_of_three_voters_two_damaged_ones_and_one_that_is_gone_are_made_one_again(
    three: dict[str, LeftBehind], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What one has lost another one has; so nothing is lost."""
    data_dir = three["killed"].copy(tmp_path / "data")
    first, second, third = (data_dir / name for name in THREE)
    flip(first / SEGMENT, 0.4)
    flip(second / SEGMENT, 0.6)
    DAMAGES["deleted"](third / "metadata")
    done = recover(capsys, str(first), str(second), str(third))
    assert any("is damaged at byte" in flaw for flaw in done["flaws"])
    assert not any("are nowhere" in flaw for flaw in done["flaws"])
    assert done["notes"] == []
    assert len(done["set_aside"]) == 2
    with bradbury.local(str(data_dir), nodes=3) as cluster:
        assert read_all(cluster) == ALL
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("after", 1, 3)])["after"].result(30)


def test_a_recovery_takes_a_log_that_a_start_has_set_aside(
    three: dict[str, LeftBehind],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two damaged voters and one that is gone: who starts the nodes first loses nothing."""
    data_dir = three["killed"].copy(tmp_path / "data")
    nodes = [str(data_dir / name) for name in THREE]
    flip(data_dir / THREE[0] / SEGMENT, 0.4)
    flip(data_dir / THREE[1] / SEGMENT, 0.6)
    DAMAGES["deleted"](data_dir / THREE[2] / "metadata")
    with monkeypatch.context() as patched:
        patched.setattr(local_module, "START_SECONDS", 3)
        with pytest.raises(TimeoutError, match="`bradbury metadata recover`"):
            bradbury.local(str(data_dir), nodes=3)
    assert len(list(data_dir.glob("node-*/metadata/__cluster_metadata-0.*-damaged"))) == 2
    # The third has a new directory since, which is no voter's.
    assert run(["metadata", "recover", *nodes]) == 1
    assert "1 of 3 voters (" in capsys.readouterr().err
    done = recover(capsys, *nodes, "--other-voters-are-lost")
    assert not any("are nowhere" in flaw for flaw in done["flaws"])
    assert done["notes"] == []
    with bradbury.local(str(data_dir), nodes=3) as cluster:
        assert read_all(cluster) == ALL


def test_a_recovery_makes_no_second_cluster_beside_voters_that_may_come_back(
    three: dict[str, LeftBehind], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = three["killed"].copy(tmp_path / "data")
    first, second, third = (data_dir / name for name in THREE)
    flip(first / SEGMENT, 0.5)
    before = {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}
    capsys.readouterr()
    for number, named in ((2, [first]), (1, [first, second])):
        assert run(["metadata", "recover", *map(str, named)]) == 1
        said = capsys.readouterr().err
        assert f"{number} of 3 voters (" in said
        assert "--other-voters-are-lost if those are permanently lost" in said
        assert said.count("\n") == 1
    alone = recover(capsys, str(third), "--dry-run", "--other-voters-are-lost")
    assert {each["name"] for each in alone["topics"]} >= set(TOPICS)
    files = {path: path.read_bytes() for path in data_dir.rglob("*") if path.is_file()}
    assert {path: data for path, data in files.items() if path.name != ".lock"} == {
        path: data for path, data in before.items() if path.name != ".lock"
    }
    assert run(["metadata", "recover", *map(str, (first, second, third))]) == 0
    assert "nothing to do: a majority of the 3 voters has the metadata" in capsys.readouterr().out
    with bradbury.local(str(data_dir), nodes=3) as cluster:
        assert read_all(cluster) == ALL


def caught_up(path: Path) -> bool:
    state = json.loads((path / "metadata" / "quorum-state").read_text())
    return not state["catches_up"]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LeftBehind]]:
    path = tmp_path_factory.mktemp("three")
    made = {each: LeftBehind(path / each, nodes=3, killed=each == "killed") for each in STATES}
    yield made
    for each in made.values():
        each.forget()


def recover(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """`bradbury metadata recover --json`."""
    capsys.readouterr()
    code = run(["metadata", "recover", *arguments, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found
