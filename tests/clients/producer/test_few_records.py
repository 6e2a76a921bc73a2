"""Do a few records of `send` become the same batches one by one as they do by columns?"""

import threading
from typing import Any

from hypothesis import given, strategies as st

from bradbury.clients.producer.batches.accumulator import FEW, Accumulator, _columns_of
from bradbury.clients.producer.batches.buffer_memory import BufferMemory
from bradbury.clients.producer.batches.deliveries import CollectedRecords
from bradbury.clients.producer.batches.producer_metrics import ProducerMetrics
from bradbury.clients.threads.observed_condition import ObservedCondition
from bradbury.clients.wire.cluster_view import ClusterView

PARTITIONS = 3
contents = st.none() | st.binary(max_size=40)
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), contents), max_size=3)
records = st.tuples(
    contents, contents, st.integers(-1, 2**62), headers, st.integers(-1, PARTITIONS)
)


def collected(given_records: list[Any], condition: threading.Condition) -> CollectedRecords:
    """As `send` collects them."""
    run = CollectedRecords("t", condition, deadline=7.0)
    for row, (key, value, timestamp, pairs, partition) in enumerate(given_records):
        run.keys.append(key)
        run.values.append(value)
        run.timestamps.append(timestamp)
        run.has_keys = run.has_keys or key is not None
        if run.headers is not None or pairs:
            run.headers = [None] * row if run.headers is None else run.headers
            run.headers.append(pairs)
        if run.partitions is not None or partition >= 0:
            run.partitions = [-1] * row if run.partitions is None else run.partitions
            run.partitions.append(partition)
        run.size += 100 + len(key or b"") + len(value or b"")
    return run


def batches_of(given_records: list[Any], codec: int, *, by_columns: bool) -> Any:
    """What they become, and what a partitioner remembers; or what is wrong with them."""
    condition = ObservedCondition(threading.Lock())
    accumulator = Accumulator(
        memory=BufferMemory(2**20, condition, max_block_ms=0, metrics=ProducerMetrics(1.0)),
        condition=condition,
        batch_size=2**16,
        max_request_size=2**20,
        delivery_timeout_ms=1000,
        codec=codec,
        partitioner=None,
        view=ClusterView,
    )
    topic = accumulator.open_topic("t", PARTITIONS)
    topic.sticky.partition = 1  # else it is a matter of luck
    run = collected(given_records, condition)
    try:
        if by_columns:
            batches = accumulator._encode(topic, _columns_of(run), run, run.deadline)
        else:
            batches = accumulator._encode_few(topic, run)
    except ValueError as error:
        return str(error)
    return topic.sticky, [
        (each.partition, bytes(each.data), each.rows.tolist(), each.memory, each.deadline)
        for each in batches
    ]


@given(st.lists(records, min_size=1, max_size=FEW), st.sampled_from([0, 1, 4]))
def test_they_are_the_same_batches(given_records: list[Any], codec: int) -> None:
    found = batches_of(given_records, codec, by_columns=False)
    assert found == batches_of(given_records, codec, by_columns=True)
    is_refused = any(partition == PARTITIONS for *_, partition in given_records)
    assert is_refused == (found == "topic 't' has partitions 0 to 2, not 3")
