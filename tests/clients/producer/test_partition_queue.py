"""Do retries ever lose, double or reorder a batch? A broker's memory of producers is the judge."""

import random as random_module
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from bradbury.clients.producer.batches.partition_queue import MAX_EPOCH, Identity, PartitionQueue
from bradbury.clients.producer.batches.producer_batch import AppendedBatch, ProducerBatch
from bradbury.protocol.columns.columns import encode_batch
from bradbury.protocol.records.record_batch import check_batch, read_header


class NoDelivery:
    def on_placed(self, batches: list[ProducerBatch]) -> None: ...
    def on_done(self, batch: ProducerBatch, outcome: AppendedBatch | Exception) -> None: ...
    def on_split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None: ...


def batch(number: int, count: int = 1) -> ProducerBatch:
    data = encode_batch(None, pa.array([b"%d" % number] * count), 0)
    rows = np.arange(count, dtype=np.int64)
    return ProducerBatch(
        "t", 0, data, rows, NoDelivery(), memory=0, uncompressed_size=None, deadline=0.0
    )


@dataclass
class Broker:
    """ProducerAppendInfo and ProducerStateEntry, as literally as can be: KIP-98, KIP-360."""

    log: list[ProducerBatch] = field(default_factory=list)
    producers: dict[int, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)

    def append(self, one: ProducerBatch) -> str:
        header = check_batch(one.data)
        epoch, last_five = self.producers.get(header.producer_id, (-1, []))
        mine = (header.base_sequence, header.last_sequence)
        if header.producer_epoch < epoch:
            return "fenced"
        if header.producer_epoch > epoch:
            if header.base_sequence != 0 and epoch >= 0:
                return "out of order"
            last_five = []
        elif mine in last_five:
            return "ok"
        elif last_five and mine[0] != (last_five[-1][1] + 1) & 0x7FFFFFFF:
            return "out of order"
        self.producers[header.producer_id] = (header.producer_epoch, [*last_five, mine][-5:])
        self.log.append(one)
        return "ok"


ANSWERS = ("ok", "ok", "ok", "lost request", "lost answer", "refused", "not now")


@settings(max_examples=300, deadline=None)
@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=25),
    faults=st.lists(st.sampled_from(ANSWERS), max_size=60),
    seed=st.integers(0, 2**32),
)
def test_what_is_acknowledged_is_there_once_and_in_order_and_nothing_else_is_there_twice(
    counts: list[int], faults: list[str], seed: int
) -> None:
    random = random_module.Random(seed)
    queue, broker, identity = PartitionQueue("t", 0), Broker(), Identity(1, 0)
    waiting = [batch(number, count) for number, count in enumerate(counts)]
    everything = list(waiting)
    acknowledged: list[ProducerBatch] = []
    on_the_wire: list[ProducerBatch] = []
    left = iter(faults)
    while waiting or queue.ready or queue.in_flight:
        if waiting and random.random() < 0.5:
            queue.add(waiting.pop(0))
        elif queue.can_send(0.0) and random.random() < 0.7:
            on_the_wire.append(queue.take(identity))
        elif on_the_wire:
            one = on_the_wire.pop(0)  # a connection answers in order
            fault = next(left, "ok")
            if fault == "refused":
                queue.on_failed(one)
                continue
            if fault == "not now":  # not enough replicas, too large as one: nothing is appended
                queue.on_retry(one, retry_at=0.0)
                continue
            answer = "lost" if fault == "lost request" else broker.append(one)
            if fault.startswith("lost"):
                queue.on_retry(one, retry_at=0.0)
                for later in on_the_wire:  # the connection is gone; what it carried may be there
                    if fault == "lost answer" and random.random() < 0.5:
                        broker.append(later)
                    queue.on_retry(later, retry_at=0.0)
                on_the_wire.clear()
            elif answer == "ok":
                queue.on_done(one)
                acknowledged.append(one)
            else:
                assert answer == "out of order"
                if not queue.is_first(one):
                    queue.on_retry(one, retry_at=0.0)
                else:
                    assert queue.gap, "refused although nothing before it was given up"
                    queue.on_refused(one, retry_at=0.0)
    assert len(set(broker.log)) == len(broker.log), "a batch is in the log twice"
    places = [everything.index(one) for one in broker.log]
    assert places == sorted(places), "a batch overtook another"
    assert set(acknowledged) <= set(broker.log)


def test_sequences_count_records_and_go_on_from_batch_to_batch() -> None:
    queue = PartitionQueue("t", 0)
    for count in (3, 2, 1):
        queue.add(batch(0, count))
    taken = [queue.take(Identity(9, 4)) for _ in range(3)]
    stamps = [read_header(one.data)[9:12] for one in taken]
    assert stamps == [(9, 4, 0), (9, 4, 3), (9, 4, 5)]
    for one in taken:
        check_batch(one.data)


def test_sequences_wrap_from_the_largest_to_zero() -> None:
    queue = PartitionQueue("t", 0, identity=Identity(1, 0), next_sequence=2**31 - 2)
    for count in (3, 1):
        queue.add(batch(0, count))
    first, second = queue.take(Identity(1, 0)), queue.take(Identity(1, 0))
    assert (first.base_sequence, second.base_sequence) == (2**31 - 2, 1)


def test_after_a_failure_nothing_is_sent_until_all_that_is_in_flight_is_back() -> None:
    queue = PartitionQueue("t", 0)
    for number in range(4):
        queue.add(batch(number))
    first, second = queue.take(Identity(1, 0)), queue.take(Identity(1, 0))
    queue.on_retry(first, retry_at=0.0)
    assert not queue.can_send(0.0)
    queue.on_retry(second, retry_at=0.0)
    assert queue.can_send(0.0)
    assert [queue.take(Identity(1, 0)) for _ in range(2)] == [first, second]


def test_a_retry_waits_for_its_time() -> None:
    queue = PartitionQueue("t", 0)
    queue.add(batch(0))
    queue.on_retry(queue.take(None), retry_at=5.0)
    assert not queue.can_send(4.9)
    assert queue.can_send(5.0)


def test_the_parts_of_a_split_take_its_place_and_its_sequences() -> None:
    queue = PartitionQueue("t", 0)
    for count in (4, 1):
        queue.add(batch(0, count))
    large, small = queue.take(Identity(1, 0)), queue.take(Identity(1, 0))
    parts = [batch(1, 2), batch(2, 2)]
    queue.on_split(large, parts)
    queue.on_retry(small, retry_at=0.0)  # refused as out of order: the large one is missing
    again = [queue.take(Identity(1, 0)) for _ in range(3)]
    assert again == [*parts, small]
    assert [one.base_sequence for one in again] == [0, 2, 4]


def test_used_up_epochs_need_a_new_producer_id() -> None:
    queue = PartitionQueue("t", 0, identity=Identity(1, MAX_EPOCH))
    queue.add(batch(0))
    queue.on_failed(queue.take(Identity(1, MAX_EPOCH)))
    queue.add(batch(1))
    assert queue.needs_identity()
    one = queue.take(Identity(2, 0))
    assert (one.producer_id, one.producer_epoch, one.base_sequence) == (2, 0, 0)


@pytest.mark.parametrize("limit", [1, 5])
def test_no_more_are_in_flight_than_the_broker_remembers(limit: int) -> None:
    queue = PartitionQueue("t", 0, max_in_flight=limit)
    for number in range(10):
        queue.add(batch(number))
    first = queue.take(Identity(1, 0))
    assert not queue.can_send(0.0), "the broker may know nothing of this producer yet"
    queue.on_done(first)
    while queue.can_send(0.0):
        queue.take(Identity(1, 0))
    assert len(queue.in_flight) == limit
