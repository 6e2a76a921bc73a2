"""Where did a leader epoch end?"""

from pathlib import Path

import pytest

from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log.leader_epoch_cache import LeaderEpochCache


def cache(directory: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    epochs = LeaderEpochCache(OsFileSystem(), str(directory))
    epochs.assign_all(list(entries))
    return epochs


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),  # before the first: nothing of it is here, it ended where the first began
        (2, (2, 20)),
        (3, (2, 20)),  # never seen: the one before it
        (4, (4, 30)),
        (7, (7, 99)),  # the latest ends with the log
        (8, (-1, -1)),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(
    tmp_path: Path, asked: int, answer: tuple[int, int]
) -> None:
    assert cache(tmp_path, (2, 10), (4, 20), (7, 30)).end_offset_for(asked, 99) == answer


def test_nothing_is_known_of_an_empty_log(tmp_path: Path) -> None:
    assert cache(tmp_path).end_offset_for(0, 0) == (-1, -1)
    assert cache(tmp_path).epoch_at(5) == -1


def test_the_epoch_of_a_record_is_the_last_that_began_before_it(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (2, 10), (4, 20))
    assert [epochs.epoch_at(offset) for offset in (9, 10, 19, 20, 500)] == [-1, 2, 2, 4, 4]


def test_an_epoch_without_records_gives_way_to_the_next(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (2, 10), (3, 20), (4, 20))
    assert epochs.entries == [(2, 10), (4, 20)]


def test_every_change_is_on_the_disk_at_once(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (2, 10), (4, 20), (7, 30))
    path = tmp_path / "leader-epoch-checkpoint"
    assert path.read_text() == "0\n3\n2 10\n4 20\n7 30\n"
    epochs.assign(7, 35)
    assert path.read_text() == "0\n3\n2 10\n4 20\n7 30\n"
    epochs.truncate_from_end(30)
    assert path.read_text() == "0\n2\n2 10\n4 20\n"
    assert epochs.latest_epoch == 4
    assert cache(tmp_path).entries == [(2, 10), (4, 20)]
    epochs.clear()
    assert path.read_text() == "0\n0\n"


def test_what_changes_nothing_is_not_written(tmp_path: Path) -> None:
    """It would cost an fsync for each batch that a follower appends."""
    epochs = cache(tmp_path, (2, 10), (4, 20))
    path = tmp_path / "leader-epoch-checkpoint"
    path.unlink()
    epochs.assign(4, 25)
    epochs.assign_all([(4, 25)])
    epochs.truncate_from_end(30)
    assert not path.exists()
    epochs.assign(5, 30)
    assert path.exists()


def test_deleting_old_records_keeps_the_epoch_that_holds_the_first_one(tmp_path: Path) -> None:
    epochs = cache(tmp_path, (2, 10), (4, 20), (7, 30))
    epochs.truncate_from_start(25)
    assert epochs.entries == [(4, 25), (7, 30)]
    epochs.truncate_from_start(5)
    assert epochs.entries == [(4, 25), (7, 30)]
