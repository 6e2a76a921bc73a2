"""Does one worker of many get what another has left, and does a lost hand-over harm nobody?"""

import os
import stat
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from bradbury.clients.producer.batches.partition_queue import Identity
from bradbury.pipelines.spark.tasks import handover
from bradbury.pipelines.spark.tasks.handover import Handover, claim, handover_file, offer
from bradbury.pipelines.spark.tasks.sink_batch import BatchMarker, TaskMarker

LEFT = Handover(Identity(7, 3), TaskMarker(5, "query", "flights", 10, 100), None)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(handover.LOCAL_DIRS, f"{tmp_path},/another")
    found = handover_file("host:9092", "spark-sink-0", "run")
    assert found is not None and found.parent == tmp_path
    return found


def test_what_is_left_is_what_is_got_once(file: Path) -> None:
    for all_done in (None, BatchMarker(4, "query", 2)):
        left = Handover(LEFT.identity, LEFT.last, all_done)
        offer(file, left)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert claim(file) == left
        assert claim(file) is None
        assert not list(file.parent.iterdir())


def test_of_many_workers_at_once_one_gets_it(file: Path) -> None:
    with ProcessPoolExecutor(8) as workers:
        for _ in range(20):
            offer(file, LEFT)
            got = list(workers.map(claim, [file] * 16))
            assert [one for one in got if one is not None] == [LEFT]


def test_each_cluster_transactional_id_and_run_has_a_file_of_its_own(file: Path) -> None:
    others = [
        handover_file(*names)
        for names in (
            (None, "spark-sink-0", "run"),
            ("host:9092", "spark-sink-1", "run"),
            ("host:9092", "spark-sink-0", None),
        )
    ]
    assert len({file, *others}) == 4


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[]", b'{"producer": [1, 2], "last": [3], "done": null}']
)
def test_what_is_unreadable_is_removed_and_said(
    file: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_bytes(content)
    assert claim(file) is None
    assert "the transactional id is initialized" in caplog.text
    assert not list(file.parent.iterdir())


def test_without_a_directory_or_room_in_it_nothing_is_left_and_nothing_fails(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(file.parent / "gone" / file.name, LEFT)
    file.with_suffix(f".{os.getpid()}").write_text("of a worker that was killed")
    offer(file, LEFT)
    assert claim(file) is None
    offer(file, LEFT)
    assert claim(file) == LEFT
    for folders in ("", str(file.parent / "gone")):
        monkeypatch.setenv(handover.LOCAL_DIRS, folders)
        assert handover_file("host:9092", "spark-sink-0", "run") is None
