"""Can an index of aborted transactions be that of a segment?"""

from __future__ import annotations

import pytest

from bradbury.storage.segments.transaction_index import AbortedTransaction, TransactionIndex
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem

BASE, END = 100, 200


@pytest.mark.parametrize(
    ("markers", "is_plausible"),
    [
        ((), True),
        ((BASE,), True),  # a segment may begin with a marker
        ((BASE, 150, END - 1), True),
        ((BASE - 1, 150), False),
        ((150, END), False),
        ((END - 1, BASE), False),
    ],
)
def test_its_markers_lie_in_the_segment(markers: tuple[int, ...], is_plausible: bool) -> None:
    index = TransactionIndex(MemoryFileSystem(), "/index", stored=0)
    for marker in markers:
        index.add(AbortedTransaction(7, 90, marker, marker + 1))
    assert index.is_plausible(BASE, END) == is_plausible
