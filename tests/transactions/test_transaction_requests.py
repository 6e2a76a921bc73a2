"""Written markers count for the coordinator that has sent them, and for no other of its partition.

What else requests do: tests/simulation/test_coordinators.py.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from bradbury.transactions.transaction_effects import SendMarkers
from bradbury.transactions.transaction_markers import MarkersWritten, TransactionKey
from bradbury.transactions.transaction_requests import TransactionRequests

MARKERS = SendMarkers("id", 1, 0, True, frozenset({("paid", 0)}))


class ActiveContext(SimpleNamespace):
    """Context of coordinator epoch 5, with the markers that have reached its coordinator."""

    def __init__(self) -> None:
        super().__init__(leader_epoch=5)
        self.written: list[tuple[SendMarkers, int]] = []

    def on_markers_written(self, markers: SendMarkers, *, now_ms: int) -> None:
        self.written.append((markers, now_ms))

    def run_if_active(self, operation: Any, *, now_ms: int, wall_ms: int) -> None:
        operation(self)


@pytest.mark.parametrize(("epoch", "count"), [(4, 0), (5, 1), (6, 0)])
def test_written_markers_count_in_the_epoch_that_has_sent_them(epoch: int, count: int) -> None:
    context: Any = ActiveContext()
    written = MarkersWritten(TransactionKey(0, epoch, "id"), MARKERS)
    TransactionRequests(context).on_markers_written(written, now_ms=7, wall_ms=1_000)
    assert context.written == [(MARKERS, 1_000)] * count
