"""What of a damaged file is found sound: all that is, and nothing that only looks so."""

import random
import struct
from collections.abc import Callable

import pytest

from bradbury.protocol.records.record_batch import HEADER_SIZE, stamp, walk_batches
from bradbury.protocol.records.records import encode_records
from bradbury.storage.segments.segment_runs import SegmentReader, SegmentRun, find_runs
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

RECORDS = 10


def batch(offset: int, *values: bytes, epoch: int = 0) -> bytes:
    made = bytearray(encode_records([(1000, None, value, ()) for value in values]))
    stamp(made, base_offset=offset, leader_epoch=epoch)
    return bytes(made)


def plain(offset: int) -> bytes:
    return batch(offset, *(b"%03d" % number * 20 for number in range(RECORDS)))


def runs_of(content: bytes, *, end_offset: int, has_gaps: bool = False) -> list[SegmentRun]:
    disk = MemoryFileSystem()
    file = disk.open("/log", create=True)
    file.write_at(content, 0)
    return find_runs(SegmentReader(file, len(content), end_offset=end_offset, has_gaps=has_gaps), 0)


def offsets(runs: list[SegmentRun]) -> list[tuple[int, int]]:
    return [(run.first_offset, run.next_offset) for run in runs]


def flipped(content: bytes, position: int, bit: int = 4) -> bytes:
    changed = bytearray(content)
    changed[position] ^= 1 << bit
    return bytes(changed)


def log(count: int) -> tuple[bytes, list[int]]:
    """`count` plain batches, and where they begin."""
    content = b"".join(plain(number * RECORDS) for number in range(count))
    return content, [position for position, _ in walk_batches(content)]


# Where gaps are right, a base offset that is a little off cannot be told.
FLIPS = [(byte, gaps) for byte in range(HEADER_SIZE + 1) for gaps in (False, byte >= 8)]


@pytest.mark.parametrize("bit", [0, 6])
@pytest.mark.parametrize(("byte", "has_gaps"), FLIPS)
def test_one_flipped_bit_costs_its_batch_alone(byte: int, bit: int, has_gaps: bool) -> None:
    """But for the leader epoch, which no CRC covers."""
    content, starts = log(5)
    runs = runs_of(flipped(content, starts[2] + byte, bit), end_offset=50, has_gaps=has_gaps)
    if 12 <= byte < 16:
        assert offsets(runs) == [(0, 50)]
    else:
        assert offsets(runs) == [(0, 20), (30, 50)]


NESTED = {
    "at the offset that is missing": lambda: plain(20),
    "behind it": lambda: batch(22, b"x", b"y"),
    "many": lambda: b"".join(batch(21 + number, b"x") for number in range(5)),
    "with the last offset": lambda: batch(29, b"x"),
}


@pytest.mark.parametrize("byte", [0, 7, 8, 10, 16, 17, 23, 61])
@pytest.mark.parametrize("has_gaps", [False, True])
@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
def test_a_batch_inside_a_value_is_none_of_the_log(
    nested: Callable[[], bytes], has_gaps: bool, byte: int
) -> None:
    values = [b"before", b"..." + nested() + b"...", *([b"z"] * (RECORDS - 2))]
    content = plain(0) + plain(10) + batch(20, *values) + plain(30) + plain(40)
    damaged = flipped(content, len(plain(0)) * 2 + byte)
    assert offsets(runs_of(damaged, end_offset=50, has_gaps=has_gaps)) == [(0, 20), (30, 50)]


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
def test_nor_when_its_batch_is_the_last(nested: Callable[[], bytes]) -> None:
    values = [b"before", *([b"z"] * (RECORDS - 2)), nested()]
    content = plain(0) + plain(10) + batch(20, *values)
    for byte in (7, 8, 16, 17):
        damaged = flipped(content, len(plain(0)) * 2 + byte)
        assert offsets(runs_of(damaged, end_offset=30)) == [(0, 20)]


def test_two_damaged_batches_in_a_row_and_one_later() -> None:
    content, starts = log(8)
    for byte in (0, 8, 16, 17):
        damaged = content
        for number in (2, 3, 6):
            damaged = flipped(damaged, starts[number] + byte)
        assert offsets(runs_of(damaged, end_offset=80)) == [(0, 20), (40, 60), (70, 80)]


def test_a_page_of_zeros_between() -> None:
    content, starts = log(8)
    damaged = bytearray(content)
    for number in (2, 5):
        damaged[starts[number] : starts[number] + 100] = bytes(100)
    assert offsets(runs_of(bytes(damaged), end_offset=80)) == [(0, 20), (30, 50), (60, 80)]


def test_batches_that_are_gone_without_a_byte_are_missing() -> None:
    content, starts = log(5)
    assert offsets(runs_of(content[: starts[2]] + content[starts[3] :], end_offset=50)) == [
        (0, 20),
        (30, 50),
    ]


def test_an_offset_that_lies_moves_no_record() -> None:
    content, starts = log(5)
    for claimed in (19, 21, 25, 29, 30, 31, 39, 40):
        damaged = bytearray(content)
        struct.pack_into(">q", damaged, starts[2], claimed)
        assert offsets(runs_of(bytes(damaged), end_offset=50)) == [(0, 20), (30, 50)], claimed


def test_whatever_is_damaged_something_is_missing_between_the_runs() -> None:
    chance = random.Random(1)
    nested = batch(22, b"x") + batch(23, b"y")
    contents = [
        b"".join(batch(number * RECORDS, *([value] * RECORDS)) for number in range(8))
        for value in (nested, b"plain" * 25)
    ]
    for _ in range(3_000):
        # Two in a row, of which one lies about its length, cannot be told from what is in a value.
        number = chance.randrange(2)
        check_flips(contents[number], chance, may_touch=bool(number))


def check_flips(content: bytes, chance: random.Random, *, may_touch: bool) -> None:
    chosen = chance.sample(range(8), chance.randrange(1, 4))
    if not may_touch:
        chosen = [number for number in chosen if number - 1 not in chosen]
    true = {header.base_offset: position for position, header in walk_batches(content)}
    size, damaged = len(content) // 8, bytearray(content)
    # An offset that lies, between two damaged batches, cannot be told either: no CRC covers it.
    least = 8 if len(chosen) > 1 else 0
    for number in chosen:
        within = chance.randrange(least, HEADER_SIZE if chance.random() < 0.5 else size)
        damaged[true[number * RECORDS] + within] ^= 1 << chance.randrange(8)
    runs = runs_of(bytes(damaged), end_offset=80)
    offset = position = 0
    for run in runs:
        assert run.position == true[run.first_offset], "a batch of the log, at its place"
        assert (run.first_offset > offset) == (run.position > position)
        offset, position = run.next_offset, run.position + run.size
    assert (offset == 80) == (position == len(content))


def test_what_is_behind_the_size_does_not_count() -> None:
    """It may be what is being appended."""
    content, starts = log(5)
    disk = MemoryFileSystem()
    file = disk.open("/log", create=True)
    file.write_at(content, 0)
    found = find_runs(SegmentReader(file, starts[3], end_offset=50, has_gaps=False), 0)
    assert [(run.position, run.size) for run in found] == [(0, starts[3])]
    assert offsets(found) == [(0, 30)]
    file.truncate(starts[2])  # and a file may be shorter than was said
    found = find_runs(SegmentReader(file, starts[3], end_offset=50, has_gaps=False), 0)
    assert offsets(found) == [(0, 20)]


def test_a_file_that_ends_within_a_header_has_no_batch_there() -> None:
    content, starts = log(3)
    disk = MemoryFileSystem()
    file = disk.open("/log", create=True)
    file.write_at(content, 0)
    reader = SegmentReader(file, len(content), end_offset=30, has_gaps=False)
    file.truncate(starts[2] + HEADER_SIZE - 1)  # by somebody else, while it is read
    assert reader.batch_at(starts[1], 10, has_gap=False) is not None
    assert reader.batch_at(starts[2], 20, has_gap=False) is None
