"""How is a poll cut into batches, and what does a function get of one?"""

import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from bradbury import TopicPartition
from bradbury.clients.consumer.consumer import SCHEMA
from bradbury.clients.consumer_group.processing.batch import BatchMaker, lanes_of_keys
from bradbury.clients.consumer_group.processing.function import (
    BatchFailed,
    Function,
    call,
    portable,
    records_in,
)
from bradbury.clients.fetch.record_stream import ConsumerRecord

Row = tuple[str, int, int, bytes | None]


def poll(rows: list[Row], chunk: int = 1000) -> pa.Table:
    """A poll of these rows (topic, partition, offset, key), in chunks of so many."""
    columns = {
        "topic": [row[0] for row in rows],
        "partition": [row[1] for row in rows],
        "offset": [row[2] for row in rows],
        "timestamp": [0] * len(rows),
        "key": [row[3] for row in rows],
        "value": [b"%d" % row[2] for row in rows],
        "headers": [[] for _ in rows],
    }
    table = pa.table(columns, schema=SCHEMA)
    return pa.Table.from_batches(table.to_batches(max_chunksize=chunk), schema=SCHEMA)


def rows_of(table: pa.Table) -> list[Row]:
    return [
        (row["topic"], row["partition"], row["offset"], row["key"]) for row in table.to_pylist()
    ]


parts = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.integers(0, 2),
        st.lists(st.one_of(st.none(), st.binary(max_size=3)), min_size=1, max_size=8),
    ),
    max_size=6,
    unique_by=lambda part: part[:2],
)


def rows_from(found: list[tuple[str, int, list[bytes | None]]]) -> list[Row]:
    return [
        (topic, partition, 100 + number, key)
        for topic, partition, keys in found
        for number, key in enumerate(keys)
    ]


@settings(deadline=None)
@given(
    found=parts,
    order=st.sampled_from([None, "partition", "key"]),
    lanes=st.integers(1, 5),
    chunk=st.integers(1, 10),
)
def test_every_row_is_in_one_batch_and_its_offset_in_that_batchs_span(
    found: list[tuple[str, int, list[bytes | None]]], order: str, lanes: int, chunk: int
) -> None:
    rows = rows_from(found)
    batches = BatchMaker(order, lanes).cut(poll(rows, chunk))
    assert sorted(row for one in batches for row in rows_of(one.table)) == sorted(rows)
    for one in batches:
        spans = {span.topic_partition: span for span in one.spans}
        assert len(spans) == len(one.spans)
        mine: dict[TopicPartition, list[int]] = {}
        for topic, partition, offset, _ in rows_of(one.table):
            mine.setdefault(TopicPartition(topic, partition), []).append(offset)
        for key, offsets in mine.items():
            assert offsets == sorted(offsets)
            assert (spans[key].first, spans[key].last) == (offsets[0], offsets[-1])
        assert set(mine) == set(spans)
        assert (one.lane is None) == (order is None)


@settings(deadline=None)
@given(found=parts, lanes=st.integers(1, 5))
def test_rows_with_one_key_are_in_one_lane_whatever_their_partition(
    found: list[tuple[str, int, list[bytes | None]]], lanes: int
) -> None:
    batches = BatchMaker("key", lanes).cut(poll(rows_from(found)))
    lane_of: dict[bytes, int | None] = {}
    for one in batches:
        for _, _, _, key in rows_of(one.table):
            if key is not None:
                assert lane_of.setdefault(key, one.lane) == one.lane


@settings(deadline=None)
@given(found=parts, lanes=st.integers(1, 5))
def test_rows_of_a_partition_are_in_one_lane(
    found: list[tuple[str, int, list[bytes | None]]], lanes: int
) -> None:
    batches = BatchMaker("partition", lanes).cut(poll(rows_from(found)))
    lane_of: dict[TopicPartition, int | None] = {}
    for one in batches:
        for key in one.topic_partitions:
            assert lane_of.setdefault(key, one.lane) == one.lane


def test_the_keys_of_one_partition_use_all_lanes() -> None:
    """What placed them there must not be what spreads them here."""
    from bradbury.protocol.partitioner import partition_for_key

    keys = [b"%d" % number for number in range(4000)]
    placed = [key for key in keys if partition_for_key(key, 4) == 1]
    lanes = lanes_of_keys(pa.array(placed, pa.binary()), 8)
    counts = [int((lanes == lane).sum()) for lane in range(8)]
    assert min(counts) > len(placed) / 16
    assert max(counts) < len(placed) / 4


def test_merged_batches_keep_rows_in_order_and_all_spans() -> None:
    maker = BatchMaker("partition", 1)
    first = maker.cut(poll([("a", 0, 1, None), ("a", 0, 2, None)]))
    second = maker.cut(poll([("a", 0, 5, None)]))
    merged = maker.merge([*first, *second])
    assert [row[2] for row in rows_of(merged.table)] == [1, 2, 5]
    assert [(span.first, span.last) for span in merged.spans] == [(1, 2), (5, 5)]


def test_records_are_what_the_consumer_iterates() -> None:
    table = poll([("a", 0, 7, b"k")])
    assert records_in(table) == [ConsumerRecord("a", 0, 7, 0, b"k", b"7", [])]
    assert records_in(SCHEMA.empty_table()) == []


def test_a_class_is_made_once_and_gets_its_arguments() -> None:
    made = []

    class Sum:
        def __init__(self, start: int, *, step: int) -> None:
            made.append(self)
            self.total = start
            self.step = step

        def __call__(self, records: list[ConsumerRecord], more: int, *, factor: int) -> int:
            self.total += self.step * len(records) + more * factor
            return self.total

    built = Function(
        fn=Sum,
        batch_format="records",
        arguments=(1,),
        keywords={"factor": 10},
        constructor_arguments=(100,),
        constructor_keywords={"step": 1},
    ).build()
    table = poll([("a", 0, 0, None), ("a", 0, 1, None)])
    assert [call(built, table)[1] for _ in range(2)] == [112, 124]
    assert len(made) == 1


def test_what_cannot_be_called_or_built_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="neither a function nor a class"):
        Function(fn=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch_format"):
        Function(fn=print, batch_format="pandas")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="constructor"):
        Function(fn=print, constructor_arguments=(1,))


def test_errors_that_cannot_be_pickled_become_text() -> None:
    class Stubborn(Exception):
        def __reduce__(self) -> str:
            raise TypeError("I stay")

    error = portable(Stubborn("here"))
    assert "Stubborn: here" in str(error)
    same = ValueError("plain")
    assert portable(same) is same


def test_an_exit_is_a_failure_of_the_batch_and_not_the_end_of_the_actor() -> None:
    def leaves(table: pa.Table) -> None:
        raise SystemExit(3)

    outcome, result = call(leaves, poll([]))
    assert "SystemExit: 3" in str(outcome.error)
    assert result is None


def test_a_failure_survives_the_way_between_processes() -> None:
    [batch] = BatchMaker().cut(poll([("a", 0, 7, b"k"), ("a", 0, 9, b"k")]))
    failure = BatchFailed(batch.spans, batch.table, ValueError("no"), "")
    again = pickle.loads(pickle.dumps(failure))
    assert str(again) == "a-0 offsets 7 to 9: ValueError: no"
    assert isinstance(again.__cause__, ValueError)
    assert again.spans == batch.spans
