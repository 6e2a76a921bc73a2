"""Does the producer state miss a producer of fetched records, or has the producer expired?"""

import pytest

from bradbury.protocol.records.record_batch import read_header
from bradbury.storage.producers.healed_producers import HealedProducers
from bradbury.storage.producers.producer_state import ProducerState
from bradbury.tests.support.storage.batches import make_batch

WRITTEN_MS, EXPIRATION_MS = 5_000, 1_000


@pytest.mark.parametrize("age_ms", [0, EXPIRATION_MS - 1, EXPIRATION_MS, EXPIRATION_MS + 1])
def test_a_producer_may_be_absent_once_it_expires(age_ms: int) -> None:
    batch = make_batch(timestamps=[WRITTEN_MS], producer_id=7, producer_epoch=0, base_sequence=0)
    healed, state = HealedProducers([(0, 1)]), ProducerState()
    healed.add([read_header(batch)])
    now_ms = WRITTEN_MS + age_ms
    assert healed.agree(state, now_ms - EXPIRATION_MS) is (age_ms >= EXPIRATION_MS)
