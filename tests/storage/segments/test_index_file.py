"""Which entry does an index find? A sorted list is the oracle."""

from bisect import bisect_left, bisect_right
from struct import Struct

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from bradbury.storage.segments import index_file
from bradbury.storage.segments.index_file import IndexFile
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

ENTRY = Struct(">II")


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    keys=st.sets(st.integers(0, 300), min_size=1, max_size=60).map(sorted),
    spill=st.integers(1, 9),
    cut=st.integers(0, 60),
    targets=st.permutations(range(-1, 302)),
    below=st.booleans(),
)
def test_the_entry_found_is_the_last_that_is_not_above(
    monkeypatch: pytest.MonkeyPatch,
    keys: list[int],
    spill: int,
    cut: int,
    targets: list[int],
    below: bool,
) -> None:
    monkeypatch.setattr(index_file, "SPILL_ENTRIES", spill)
    disk = MemoryFileSystem()
    index = IndexFile(disk, "/index", ENTRY, capacity=100, stored=0)
    for number, key in enumerate(keys):
        index.append(ENTRY.pack(key, number))
        if number % 7 == 0:
            index.floor(key, column=0)
    cut = min(cut, len(keys))
    if cut:
        index.truncate(len(keys) - cut)
        keys = keys[: len(keys) - cut] + [1000 + key for key in range(cut)]
        for key in keys[len(keys) - cut :]:
            index.append(ENTRY.pack(key, 0))
    assert len(index) == len(keys)
    oracle = bisect_left if below else bisect_right
    for target in targets:
        assert index.floor(target, column=0, below=below) == oracle(keys, target) - 1
    index.write_out()
    again = IndexFile(disk, "/index", ENTRY, capacity=100, stored=len(keys))
    assert [again.entry(number)[0] for number in range(len(keys))] == keys
    for target in targets:
        assert again.floor(target, column=0, below=below) == oracle(keys, target) - 1
