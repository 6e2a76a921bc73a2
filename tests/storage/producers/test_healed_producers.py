"""Does the producer state miss a producer of fetched records, or has the producer expired?"""

import pytest

from bradbury.protocol.records.record_batch import read_header
from bradbury.storage.producers.healed_producers import HealedProducers
from bradbury.storage.producers.producer_state import ProducerEntry, ProducerState, WrittenBatch
from bradbury.tests.support.storage.batches import make_batch

WRITTEN_MS, EXPIRATION_MS = 5_000, 1_000


@pytest.mark.parametrize("age_ms", [0, EXPIRATION_MS - 1, EXPIRATION_MS, EXPIRATION_MS + 1])
def test_a_producer_may_be_absent_once_it_expires(age_ms: int) -> None:
    batch = make_batch(timestamps=[WRITTEN_MS], producer_id=7, producer_epoch=0, base_sequence=0)
    healed, state = HealedProducers([(0, 1)]), ProducerState()
    healed.add([read_header(batch)])
    now_ms = WRITTEN_MS + age_ms
    assert healed.agree(state, now_ms - EXPIRATION_MS) is (age_ms >= EXPIRATION_MS)


@pytest.mark.parametrize(
    ("epoch", "batches", "agrees"),
    [
        (0, [(0, 0)], True),
        (0, [(1, 0)], False),  # with another sequence
        (0, [(1, 1)], False),  # a later one, and this one is not known
        (0, [(number, number) for number in range(1, 6)], True),  # no more are remembered
        (1, [(0, 1)], True),
        (1, [(0, 0)], False),  # in a newer epoch, at its place
        (-1, [(0, 1)], False),
    ],
)
def test_its_last_batch_or_later_ones_have_to_be_known(
    epoch: int, batches: list[tuple[int, int]], *, agrees: bool
) -> None:
    """batches: (last sequence, offset) of those in the state."""
    batch = make_batch(timestamps=[WRITTEN_MS], producer_id=7, producer_epoch=0, base_sequence=0)
    healed, state = HealedProducers([(0, 1)]), ProducerState()
    healed.add([read_header(batch)])
    state.entries[7] = entry = ProducerEntry(epoch)
    entry.batches.extend(WrittenBatch(last, offset, 0, WRITTEN_MS) for last, offset in batches)
    assert healed.agree(state, 0) is agrees
