"""Whose is a data directory, and what does it remember from one run to the next?"""

import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from crc32c import crc32c

from bradbury.protocol.errors import InconsistentTopicId, KafkaStorageError, UnknownTopicOrPartition
from bradbury.storage.directories.log_directory import LogDirectory
from bradbury.storage.directories.partition_directory import (
    DELETE_SUFFIX,
    decode_id,
    encode_id,
    parse_directory_name,
    retired_directory_name,
)
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.disk.storage_failure import DataDirectoryError, DirectoryUnusable
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.child_process import ChildProcess
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_file_count, read_all, remove_log

TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
SMALL = LogConfig(segment_bytes=256, file_delete_delay_ms=100)


def start(path: Path, **identity: object) -> LogDirectory:
    options = {"directory_id": "dir-1", "cluster_id": "cluster-1", "node_id": 3, **identity}
    directory = LogDirectory.open(OsFileSystem(), str(path), **options)  # type: ignore[arg-type]
    directory.load_logs(lambda topic: SMALL, now_ms=1000)
    return directory


def with_records(path: Path, *, count: int = 6) -> LogDirectory:
    directory = start(path)
    log = directory.create_log("flights", 0, TOPIC_ID, SMALL)
    for _ in range(count):
        log.append_as_leader(make_batch(), leader_epoch=0, now_ms=1000)
    log.high_watermark = count - 1
    return directory


def test_a_new_directory_is_given_its_identity(tmp_path: Path) -> None:
    start(tmp_path / "deep" / "data").close(clean=True)
    text = (tmp_path / "deep" / "data" / "meta.properties").read_text()
    crc, _, lines = text.partition("\n")
    assert crc.startswith("#crc32c=")  # to Kafka a comment
    assert lines == "version=1\ncluster.id=cluster-1\nnode.id=3\ndirectory.id=dir-1\n"


@pytest.mark.parametrize("name", ["meta.properties", "meta.properties.copy"])
@pytest.mark.parametrize("damage", ["missing", "emptied", "one bit"])
def test_an_identity_outlives_the_loss_of_one_of_its_files(
    tmp_path: Path, name: str, damage: str
) -> None:
    with_records(tmp_path).close(clean=True)
    path = tmp_path / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        flipped = content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]
        path.write_bytes(b"" if damage == "emptied" else flipped)
    directory = start(tmp_path, directory_id="other", cluster_id=None, node_id=None)
    assert directory.identity.directory_id == "dir-1"
    assert directory.identity.node_id == 3
    assert path.read_bytes() == content
    directory.close(clean=True)


def test_logs_of_nobody_are_not_taken_for_a_new_directorys(tmp_path: Path) -> None:
    with_records(tmp_path).close(clean=True)
    for name in ("meta.properties", "meta.properties.copy"):
        (tmp_path / name).unlink()
    with pytest.raises(
        DirectoryUnusable, match=r"meta\.properties is missing.*flights-0"
    ) as caught:
        start(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_old_directory_keeps_its_own_id(tmp_path: Path) -> None:
    start(tmp_path).close(clean=True)
    directory = start(tmp_path, directory_id="other", cluster_id=None, node_id=None)
    assert (
        directory.identity.directory_id,
        directory.identity.cluster_id,
        directory.identity.node_id,
    ) == (
        "dir-1",
        "cluster-1",
        3,
    )


def test_an_identity_can_come_later_and_is_then_kept(tmp_path: Path) -> None:
    directory = start(tmp_path, cluster_id=None, node_id=None)
    directory.assign_identity(cluster_id="cluster-9")
    directory.assign_identity(cluster_id="cluster-9", node_id=0)
    with pytest.raises(DataDirectoryError):
        directory.assign_identity(node_id=4)
    directory.close(clean=True)
    again = start(tmp_path, cluster_id=None, node_id=None)
    assert (again.identity.cluster_id, again.identity.node_id) == ("cluster-9", 0)


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ({"cluster_id": "cluster-2"}, "belongs to cluster cluster-1, not cluster-2"),
        ({"node_id": 4}, "belongs to node 3, not 4"),
    ],
)
def test_a_directory_of_another_node_is_refused_and_left_as_it_was(
    tmp_path: Path, identity: dict[str, object], message: str
) -> None:
    with_records(tmp_path).close(clean=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(DataDirectoryError, match=message) as caught:
        start(tmp_path, **identity)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert start(tmp_path).was_clean


@pytest.mark.parametrize("content", ["", "version=0\n", "version=1\nnode.id=x\n"])
def test_a_damaged_identity_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(DataDirectoryError, match="damaged"):
        start(tmp_path)


def test_a_directory_in_use_is_refused_in_this_process(tmp_path: Path) -> None:
    directory = start(tmp_path)
    with pytest.raises(DataDirectoryError, match="in use by a running broker"):
        start(tmp_path)
    directory.close(clean=True)
    start(tmp_path).close(clean=True)


def test_the_lock_of_another_process_ends_with_it_even_by_kill(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from bradbury.storage.disk.file_system import OsFileSystem\n"
        "from bradbury.storage.directories.log_directory import LogDirectory\n"
        f"held = LogDirectory.open(OsFileSystem(), {str(tmp_path)!r}, directory_id='d')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    link = Path(__file__).resolve().parents[3] / ".path"
    with ChildProcess(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(link)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(DataDirectoryError, match="in use by a running broker"):
            start(tmp_path)
        process.kill()
        process.wait()
    start(tmp_path).close(clean=True)


def test_a_path_that_cannot_be_a_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataDirectoryError, match="cannot be used") as caught:
            start(path)
        assert "\n" not in str(caught.value)


def test_a_clean_stop_is_believed_once(tmp_path: Path) -> None:
    with_records(tmp_path).close(clean=True, broker_epoch=12)
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version": 0, "brokerEpoch": 12}'
    directory = start(tmp_path)
    assert directory.was_clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    log = directory.logs["flights", 0]
    assert log.recovery.segments_scanned == 0
    assert (log.log_end_offset, log.flushing.recovery_point, log.high_watermark) == (6, 6, 5)
    assert log.topic_id == TOPIC_ID
    directory.close(clean=False)
    again = start(tmp_path)
    assert not again.was_clean
    assert again.logs["flights", 0].recovery.segments_scanned > 0
    assert again.logs["flights", 0].log_end_offset == 6


def test_a_stop_before_the_logs_were_loaded_is_not_clean(tmp_path: Path) -> None:
    with_records(tmp_path).close(clean=True)
    directory = LogDirectory.open(OsFileSystem(), str(tmp_path), directory_id="x")
    before = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    directory.checkpoints.bring_up_to_date()
    directory.close(clean=True)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == before
    assert not start(tmp_path).was_clean


def test_checkpoints_are_kafkas_files(tmp_path: Path) -> None:
    directory = with_records(tmp_path)
    log = directory.logs["flights", 0]
    log.flushing.flush()
    log.advance_log_start_offset(2)
    directory.checkpoints.bring_up_to_date()
    for name, offset in (
        ("recovery-point-offset-checkpoint", 6),
        ("replication-offset-checkpoint", 5),
        ("log-start-offset-checkpoint", 2),
    ):
        checksum = crc32c(f"flights 0 {offset}".encode())
        expected = f"0\n2\nflights 0 {offset}\n# 0 {checksum}\n"
        assert (tmp_path / name).read_text() == expected
    assert directory.checkpoints.begin() is None
    directory.close(clean=False)
    assert start(tmp_path).logs["flights", 0].log_start_offset == 2


@pytest.mark.thorough
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", ["recovery-point", "replication", "log-start", "cleaner"])
def test_no_flipped_bit_of_a_checkpoint_moves_an_offset(
    tmp_path: Path, name: str, clean: bool
) -> None:
    directory = with_records(tmp_path)
    directory.logs["flights", 0].flushing.flush()
    directory.checkpoints.bring_up_to_date()
    directory.close(clean=clean)
    file = tmp_path / f"{name}-offset-checkpoint"
    content = file.read_bytes()
    mark = tmp_path / ".kafka_cleanshutdown"
    was_clean = mark.read_bytes() if clean else None
    for position in range(len(content)):
        for bit in (0, 4):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            file.write_bytes(damaged)
            if was_clean is not None:
                mark.write_bytes(was_clean)
            directory = start(tmp_path)
            log = directory.logs["flights", 0]
            assert (log.log_start_offset, log.log_end_offset) == (0, 6), (position, bit)
            assert log.high_watermark <= 6
            directory.close(clean=False)


@pytest.mark.parametrize("name", ["recovery-point", "replication", "log-start", "cleaner"])
def test_a_directory_in_the_place_of_a_checkpoint_is_set_aside(tmp_path: Path, name: str) -> None:
    with_records(tmp_path).close(clean=True)
    file = tmp_path / f"{name}-offset-checkpoint"
    file.unlink()
    file.mkdir()
    directory = start(tmp_path)
    assert f"{file} was a directory; renamed it to {file}.set-aside" in (
        directory.checkpoints.flaws
    )
    assert directory.logs["flights", 0].log_end_offset == 6
    directory.close(clean=True)
    assert file.is_file()


@pytest.mark.parametrize("content", [b"", b"0\n2\nflights 0 6\n", b"1\n0\n", b"0\n1\nx y z\n"])
def test_a_damaged_checkpoint_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    with_records(tmp_path).close(clean=False)
    for name in ("recovery-point", "replication", "log-start"):
        (tmp_path / f"{name}-offset-checkpoint").write_bytes(content)
    log = start(tmp_path).logs["flights", 0]
    assert (log.flushing.recovery_point, log.high_watermark, log.log_start_offset) == (0, 0, 0)
    assert log.log_end_offset == 6


def test_a_topic_made_again_does_not_get_the_old_records(tmp_path: Path) -> None:
    directory = with_records(tmp_path)
    same = directory.create_log("flights", 0, TOPIC_ID, SMALL)
    assert same is directory.logs["flights", 0]
    with pytest.raises(InconsistentTopicId):
        directory.create_log("flights", 0, UUID(int=5), SMALL)
    metadata = tmp_path / "flights-0" / "partition.metadata"
    assert metadata.read_text() == f"version: 0\ntopic_id: {encode_id(TOPIC_ID)}"


def test_a_removed_log_is_gone_at_once_and_its_files_later(tmp_path: Path) -> None:
    directory = with_records(tmp_path)
    log = directory.logs["flights", 0]
    piece = log.read(0, max_bytes=1000, up_to=6, min_one_batch=True)
    remove_log(directory, "flights", 0, now_ms=1000)
    deleted = tmp_path / f"flights-0.{1:032x}-delete"
    assert deleted.is_dir()
    assert not (tmp_path / "flights-0").exists()
    with pytest.raises(KafkaStorageError, match="is closed"):
        log.read(0, max_bytes=1000, up_to=6, min_one_batch=True)
    assert directory.health.is_online
    with pytest.raises(UnknownTopicOrPartition):
        remove_log(directory, "flights", 0, now_ms=1000)
    assert directory.deletions.take_due(now_ms=1099) == []
    due = directory.deletions.take_due(now_ms=1100)
    assert len(due) == 1
    directory.deletions.delete(due)
    assert not deleted.exists()
    assert piece.file is not None
    assert len(piece.file.read_at(piece.size, piece.position)) == piece.size
    fresh = directory.create_log("flights", 0, UUID(int=5), SMALL)
    assert fresh.log_end_offset == 0


def test_a_deletion_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    directory = with_records(tmp_path)
    remove_log(directory, "flights", 0, now_ms=1000)
    directory.close(clean=False)
    assert start(tmp_path).logs == {}
    assert not list(tmp_path.glob("*-delete"))


def test_what_is_no_partition_is_left_alone(tmp_path: Path) -> None:
    for name in ("lost+found", "flights-0-stray", "a.b-1-future", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "file-7").write_text("")
    assert start(tmp_path).logs == {}
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 4


def test_a_truncation_is_in_the_checkpoint_before_the_log_grows_again(tmp_path: Path) -> None:
    directory = with_records(tmp_path)
    directory.logs["flights", 0].flushing.flush()
    directory.checkpoints.bring_up_to_date()
    assert directory.truncate_log("flights", 0, 2) > 0
    text = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert "flights 0 2" in text.splitlines()


def test_internal_topics_are_loaded_first(tmp_path: Path) -> None:
    directory = start(tmp_path)
    for topic in ("apples", "__consumer_offsets", "zebras"):
        directory.create_log(topic, 0, TOPIC_ID, SMALL)
    directory.close(clean=True)
    assert [topic for topic, _ in start(tmp_path).logs] == [
        "__consumer_offsets",
        "apples",
        "zebras",
    ]


def test_names_and_ids_survive_the_round_trip() -> None:
    assert parse_directory_name("my-topic.x-12") == ("my-topic.x", 12)
    for name in ("topic", "topic-", "-1", "topic--", "topic-1x", "tøpic-1", "a-0.00-delete"):
        assert parse_directory_name(name) is None
    assert decode_id(encode_id(TOPIC_ID)) == TOPIC_ID
    assert encode_id(UUID(int=0)) == "A" * 22
    longest = retired_directory_name("t" * 249, 2**31 - 1, suffix=DELETE_SUFFIX, unique_id=TOPIC_ID)
    assert len(longest) == 255
    assert longest.endswith(f"-2147483647.{TOPIC_ID.hex}-delete")


def test_many_partitions_open_with_few_descriptors_after_a_clean_stop(tmp_path: Path) -> None:
    directory = start(tmp_path)
    for partition in range(50):
        log = directory.create_log("many", partition, TOPIC_ID, SMALL)
        log.append_as_leader(make_batch(), leader_epoch=0, now_ms=1000)
    directory.close(clean=True)
    before = open_file_count(tmp_path)
    again = start(tmp_path)
    assert open_file_count(tmp_path) <= before + 1  # the lock
    assert all(len(read_all(log)) > 0 for log in again.logs.values())


OTHER_ID = UUID("87654321-1234-5678-1234-567812345678")
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
)


def test_a_log_recreated_under_its_name_inherits_nothing_from_the_deleted_one(
    tmp_path: Path,
) -> None:
    """Its records were below the former one's log start: after a crash they would be dropped."""
    directory = with_records(tmp_path)
    former = directory.logs["flights", 0]
    former.flushing.flush()
    former.advance_log_start_offset(5)
    directory.checkpoints.bring_up_to_date()
    remove_log(directory, "flights", 0, now_ms=2000)
    log = directory.create_log("flights", 0, OTHER_ID, SMALL)
    for name in CHECKPOINTS:
        assert "flights" not in (tmp_path / name).read_text()
    for _ in range(2):
        log.append_as_leader(make_batch(), leader_epoch=0, now_ms=3000)
    directory.close(clean=False)  # killed before the next checkpoint
    again = start(tmp_path).logs["flights", 0]
    assert (again.log_start_offset, again.log_end_offset) == (0, 2)
    assert again.recovery.bytes_scanned > 0


def test_a_new_log_costs_no_checkpoint_where_none_of_its_name_was(tmp_path: Path) -> None:
    directory = with_records(tmp_path)
    directory.checkpoints.bring_up_to_date()
    assert directory.checkpoints.begin_forgetting([("flights", 0), ("flights", 1)]) is None
    remove_log(directory, "flights", 0, now_ms=2000)
    assert directory.checkpoints.begin_forgetting([("flights", 1)]) is None
    forgetting = directory.checkpoints.begin_forgetting([("flights", 0)])
    assert forgetting is not None
    forgetting.run()
    assert directory.checkpoints.begin_forgetting([("flights", 0)]) is None
    directory.close(clean=True)


def test_an_earlier_checkpoint_never_replaces_a_later_one(tmp_path: Path) -> None:
    """One that waits for a thread while the log is truncated says what is true no more."""
    directory = with_records(tmp_path)
    log = directory.logs["flights", 0]
    log.flushing.flush()
    waiting = directory.checkpoints.begin()
    directory.truncate_log("flights", 0, 3)
    assert waiting is not None
    waiting.run()
    text = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert "flights 0 3" in text.splitlines()
    directory.close(clean=False)


def test_a_checkpoint_under_way_when_a_log_is_deleted_does_not_speak_of_its_successor(
    tmp_path: Path,
) -> None:
    directory = with_records(tmp_path)
    directory.logs["flights", 0].flushing.flush()
    waiting = directory.checkpoints.begin()
    remove_log(directory, "flights", 0, now_ms=2000)
    directory.create_log("flights", 0, OTHER_ID, SMALL)
    assert waiting is not None
    waiting.run()
    assert "flights" not in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    directory.close(clean=False)
