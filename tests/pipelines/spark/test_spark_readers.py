"""What do the readers do when Spark calls them? Driven as Spark drives them, without Spark."""

import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import bradbury
from bradbury.pipelines.ranges.partition_range import DataLoss
from bradbury.pipelines.spark.reading.batch_query import PushdownBatchReader
from bradbury.pipelines.spark.source import BradburyDataSource
from bradbury.pipelines.spark.tasks.spark_failure import errors_in_one_line
from bradbury.protocol.errors import ConnectionFailed, KafkaError, RequestTimedOut
from bradbury.protocol.topic_partition import TopicPartitionPair

NewTopic = Callable[..., str]


def source(bootstrap: str, **options: str) -> BradburyDataSource:
    given = CaseInsensitiveDict({"kafka.bootstrap.servers": bootstrap})
    for name, value in options.items():
        given[name.replace("_", ".")] = value
    return BradburyDataSource(given)


def without_ids(nested: dict[str, Any]) -> dict[str, Any]:
    """Offsets of a checkpoint, without what tells topics of one name apart."""
    return {name: value for name, value in nested.items() if name != "@topics"}


def stream(bootstrap: str, **options: str):
    one = source(bootstrap, **options)
    return one.streamReader(one.schema())


def rows_of(reader, partitions) -> list[dict]:
    """As tasks do: reader and partition pickled, each partition read on its own."""
    found: list[dict] = []
    for partition in partitions:
        copy, sent = pickle.loads(pickle.dumps((reader, partition)))
        for batch in copy.read(sent):
            found += batch.to_pylist()
    return found


def batch_rows(bootstrap: str, **options: str) -> list[dict]:
    one = source(bootstrap, **options)
    reader = one.reader(one.schema())
    return rows_of(reader, reader.partitions())


def send(producer: bradbury.Producer, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer.send_batch(topic, values, partition=partition).result(60)


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


# --- batch -----------------------------------------------------------------------------------


def test_a_batch_has_every_record_once_and_each_partition_in_order(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        send(producer, topic, numbered(0, 500), partition)
        send(producer, topic, numbered(500, 700), partition)
    rows = batch_rows(bootstrap, subscribe=topic)
    for partition in range(3):
        mine = [row for row in rows if row["partition"] == partition]
        assert [row["offset"] for row in mine] == list(range(700))
        assert [row["value"] for row in mine] == numbered(0, 700)


def test_offsets_may_begin_and_end_inside_a_batch_of_the_log(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(producer, topic, numbered(0, 100))
    rows = batch_rows(
        bootstrap,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 17}}),
        endingOffsets=json.dumps({topic: {"0": 42}}),
    )
    assert [row["value"] for row in rows] == numbered(17, 42)


def test_a_range_of_many_answers_is_read_whole_through_a_small_fetch_size(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    for start in range(0, 2_000, 50):
        send(producer, topic, numbered(start, start + 50))
    rows = batch_rows(bootstrap, subscribe=topic, kafka_max_partition_fetch_bytes="300")
    assert [row["value"] for row in rows] == numbered(0, 2_000)


def test_a_task_that_is_left_early_ends_its_fetching(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    for start in range(0, 1_000, 50):
        send(producer, topic, numbered(start, start + 50))
    one = source(bootstrap, subscribe=topic, kafka_max_partition_fetch_bytes="300")
    reader = one.reader(one.schema())
    batches = reader.read(reader.partitions()[0])
    next(batches)
    batches.close()
    assert len(batch_rows(bootstrap, subscribe=topic)) == 1_000


def test_compressed_records_and_headers_arrive(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        with bradbury.Producer(bootstrap, compression_type=codec) as producer:
            producer.send(topic, codec * 100, headers=[("codec", codec.encode())])
    rows = batch_rows(bootstrap, subscribe=topic, includeHeaders="true")
    assert [row["headers"][0]["value"].decode() * 100 for row in rows] == [
        row["value"].decode() for row in rows
    ]


def test_records_of_kafka_python_are_read_as_it_wrote_them(
    bootstrap: str, new_topic: NewTopic
) -> None:
    kafka = pytest.importorskip("kafka")
    topic = new_topic(2, retention_ms="-1")  # its timestamps are old
    theirs = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(20):
        theirs.send(
            topic,
            key=b"k%d" % number if number % 3 else None,
            value=b"v%d" % number if number % 5 else b"",
            timestamp_ms=1_000 + number,
            partition=number % 2,
            headers=[("h", b"%d" % number)] if number % 2 else [],
        ).get(10)
    theirs.close()
    rows = batch_rows(bootstrap, subscribe=topic, includeHeaders="true")
    rows.sort(key=lambda row: row["timestamp"])
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == [
        (
            b"k%d" % number if number % 3 else None,
            b"v%d" % number if number % 5 else b"",
            [{"key": "h", "value": b"%d" % number}] if number % 2 else None,
        )
        for number in range(20)
    ]
    assert [row["timestamp"].timestamp() for row in rows] == [
        (1_000 + number) / 1000 for number in range(20)
    ]


def test_a_pattern_chooses_topics_in_whose_name_it_is_found(
    bootstrap: str, admin: bradbury.Admin, producer: bradbury.Producer
) -> None:
    for topic in ("log-1", "log-2", "log-2-old"):
        admin.create_topic(topic)
        send(producer, topic, [topic.encode()])
    found = {
        pattern: sorted(row["value"] for row in batch_rows(bootstrap, subscribePattern=pattern))
        for pattern in ("og-[02]", "^log-[0-9]$")
    }
    assert found == {"og-[02]": [b"log-2", b"log-2-old"], "^log-[0-9]$": [b"log-1", b"log-2"]}


def test_assigned_partitions_only_are_read(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        send(producer, topic, [b"x"], partition)
    rows = batch_rows(bootstrap, assign=json.dumps({topic: [0, 2]}))
    assert [row["partition"] for row in rows] == [0, 2]


def test_timestamps_choose_where_to_start_and_end(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(retention_ms="-1")  # its timestamps are old
    with bradbury.Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp_ms=1_000 * number)
            producer.flush()
    rows = batch_rows(bootstrap, subscribe=topic, startingTimestamp="2500", endingTimestamp="7000")
    assert [row["value"] for row in rows] == numbered(3, 7)
    with pytest.raises(ValueError, match="No offset matched"):
        batch_rows(bootstrap, subscribe=topic, startingTimestamp="99999")
    assert (
        batch_rows(
            bootstrap,
            subscribe=topic,
            startingTimestamp="99999",
            startingOffsetsByTimestampStrategy="latest",
        )
        == []
    )


def test_offsets_must_name_every_partition(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with pytest.raises(ValueError, match="all partitions must be specified"):
        batch_rows(bootstrap, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0}}))


@pytest.mark.slow
def test_a_topic_that_does_not_exist_is_said_in_one_line(bootstrap: str) -> None:
    with pytest.raises(KafkaError, match="does not exist; create it with"):
        batch_rows(bootstrap, subscribe="never-made")


def test_a_refused_stream_says_so_when_it_is_first_asked(bootstrap: str) -> None:
    """Spark swallows what streamReader raises: see RefusedStream."""
    refused = pickle.loads(pickle.dumps(stream(bootstrap, subscribe="t", endingOffsets="latest")))
    assert isinstance(refused.getDefaultReadLimit(), ReadAllAvailable)
    for ask in (
        refused.initialOffset,
        refused.prepareForTriggerAvailableNow,
        lambda: refused.latestOffset({}, ReadAllAvailable()),
        lambda: refused.partitions({}, {}),
    ):
        with pytest.raises(ValueError, match="ending offset not valid in streaming queries"):
            ask()


def test_a_worker_of_spark_hides_the_traceback_of_known_causes_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hidden(error: Exception) -> bool:
        monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
        with pytest.raises(type(error)), errors_in_one_line():
            raise error
        return "SPARK_HIDE_TRACEBACK" in os.environ

    causes = [KafkaError("x"), ConnectionFailed("x"), DataLoss("x"), ValueError("x")]
    assert not any(hidden(cause) for cause in causes)  # this is no worker of Spark
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "s")
    assert all(hidden(cause) for cause in causes)
    assert not hidden(TypeError("a mistake in the code"))
    assert not hidden(UnicodeDecodeError("utf-8", b"", 0, 1, "a ValueError of somebody else"))
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)


def test_an_empty_topic_is_an_empty_batch(bootstrap: str, new_topic: NewTopic) -> None:
    one = source(bootstrap, subscribe=new_topic())
    reader = one.reader(one.schema())
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []  # what Spark makes of no partitions


# --- data loss -------------------------------------------------------------------------------


@pytest.fixture
def shortened(
    bootstrap: str, admin: bradbury.Admin, producer: bradbury.Producer, new_topic: NewTopic
) -> TopicPartitionPair:
    """A topic of 1000 records whose first ones retention has removed: (name, first offset left)."""
    topic = new_topic(segment_bytes="2048", retention_bytes="4096")
    for start in range(0, 1_000, 20):
        send(producer, topic, numbered(start, start + 20))
    deadline = time.monotonic() + 20
    first = 0
    while time.monotonic() < deadline:
        now = admin.list_offsets([(topic, 0)], "earliest")[topic, 0].offset
        if now and now == first:
            return topic, first
        first = now
        threading.Event().wait(0.3)
    raise AssertionError("retention removed nothing")


def test_records_that_are_gone_are_an_error_unless_their_loss_is_accepted(
    bootstrap: str, shortened: TopicPartitionPair
) -> None:
    topic, first = shortened
    start = json.dumps({topic: {"0": 0}})
    with pytest.raises(DataLoss, match="failOnDataLoss to false"):
        batch_rows(bootstrap, subscribe=topic, startingOffsets=start)
    rows = batch_rows(bootstrap, subscribe=topic, startingOffsets=start, failOnDataLoss="false")
    assert [row["offset"] for row in rows] == list(range(first, 1_000))


def test_records_that_went_after_planning_are_noticed_by_the_task(
    bootstrap: str, shortened: TopicPartitionPair
) -> None:
    topic, first = shortened
    planned, end = {topic: {"0": 0}}, {topic: {"0": 1_000}}
    strict = stream(bootstrap, subscribe=topic)
    with pytest.raises(DataLoss, match=rf"records \[0, {first}\) of {topic}-0 do not exist"):
        rows_of(strict, strict.partitions(planned, end))
    tolerant = stream(bootstrap, subscribe=topic, failOnDataLoss="false")
    rows = rows_of(tolerant, tolerant.partitions(planned, end))
    assert [row["offset"] for row in rows] == list(range(first, 1_000))


def test_a_range_beyond_the_end_of_the_log_is_given_up_in_time(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(producer, topic, numbered(0, 10))
    options = {"kafkaConsumer_pollTimeoutMs": "300", "kafka_fetch_max_wait_ms": "50"}
    reader = stream(bootstrap, subscribe=topic, **options)
    tasks = reader.partitions({topic: {"0": 5}}, {topic: {"0": 20}})
    with pytest.raises(DataLoss, match="the log ends at 10"):
        rows_of(reader, tasks)
    tolerant = stream(bootstrap, subscribe=topic, failOnDataLoss="false", **options)
    assert [row["value"] for row in rows_of(tolerant, tasks)] == numbered(5, 10)


def test_a_task_without_a_broker_says_so(producer: bradbury.Producer) -> None:
    with bradbury.local() as other:
        other.admin().create_topic("t")
        reader = stream(
            other.bootstrap_servers,
            subscribe="t",
            kafkaConsumer_pollTimeoutMs="300",
            kafka_client_id="gone",
        )
        assert rows_of(reader, reader.partitions({"t": {"0": 0}}, {"t": {"0": 0}})) == []
        tasks = reader.partitions({"t": {"0": 0}}, {"t": {"0": 5}})
        reader.initialOffset()  # the client has met the cluster
        other.stop_node(0)
        with pytest.raises(RequestTimedOut, match="cannot fetch record for offset 0 of t-0"):
            rows_of(reader, tasks)


# --- push-down -------------------------------------------------------------------------------


def test_a_reader_with_push_down_is_given_only_where_spark_asks_for_it(
    bootstrap: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = source(bootstrap, subscribe=new_topic())
    assert not isinstance(one.reader(one.schema()), PushdownBatchReader)
    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.data_source_pushdown_filters", pytest)
    assert isinstance(one.reader(one.schema()), PushdownBatchReader)


@pytest.fixture
def narrowed(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> Callable[..., tuple[list[tuple[int, int]], list]]:
    """Filters -> (partition, offset) of the rows read, and the filters left to Spark."""
    topic = new_topic(3)
    for partition in range(3):
        send(producer, topic, numbered(0, 10), partition)

    def read(*filters):
        one = source(bootstrap, subscribe=topic)
        reader = PushdownBatchReader(one.schema(), one.read_options(streaming=False))
        left = list(reader.pushFilters(list(filters)))
        rows = rows_of(reader, reader.partitions())
        return [(row["partition"], row["offset"]) for row in rows], left

    return read


def test_filters_on_partition_and_offset_are_done_by_reading_less(narrowed) -> None:
    rows, left = narrowed(
        IsNotNull(("offset",)),
        In(("partition",), (0, 2)),
        GreaterThan(("offset",), 3),
        LessThanOrEqual(("offset",), 5),
    )
    assert (rows, left) == ([(0, 4), (0, 5), (2, 4), (2, 5)], [])
    assert narrowed(EqualTo(("partition",), 1), EqualTo(("offset",), 9)) == ([(1, 9)], [])
    assert narrowed(GreaterThanOrEqual(("offset",), 9), LessThan(("offset",), 9)) == ([], [])


def test_filters_on_topic_choose_topics(narrowed) -> None:
    assert narrowed(EqualTo(("topic",), "other")) == ([], [])


def test_filters_on_anything_else_are_left_to_spark(narrowed) -> None:
    others = [EqualTo(("value",), b"1"), StringStartsWith(("topic",), "x"), IsNotNull(("key",))]
    rows, left = narrowed(*others)
    assert (len(rows), left) == (30, others)


def test_a_lower_bound_on_time_skips_what_is_older_and_is_left_to_spark_too(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(retention_ms="-1")  # its timestamps are old
    with bradbury.Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp_ms=1_000 * number)
            producer.flush()
    one = source(bootstrap, subscribe=topic)
    since = GreaterThan(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=7))
    reader = PushdownBatchReader(one.schema(), one.read_options(streaming=False))
    assert list(reader.pushFilters([since])) == [since]
    assert [row["value"] for row in rows_of(reader, reader.partitions())] == numbered(7, 10)


# --- streams ---------------------------------------------------------------------------------


def test_the_first_batch_starts_where_the_query_began_even_when_it_is_run_again(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(producer, topic, numbered(0, 5))
    first = stream(bootstrap, subscribe=topic)
    begun = first.initialOffset()
    assert begun == {topic: {"0": 5}}
    send(producer, topic, numbered(5, 8))
    end = first.latestOffset(begun, ReadAllAvailable())

    restarted = stream(bootstrap, subscribe=topic)  # batch 0 is in Spark's log, but not committed
    asked_anew = restarted.initialOffset()
    assert asked_anew == {topic: {"0": 8}}
    rows = rows_of(restarted, restarted.partitions(asked_anew, json.loads(json.dumps(end))))
    assert [row["value"] for row in rows] == numbered(5, 8)


def test_later_ends_do_not_carry_the_beginning(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    reader = stream(bootstrap, subscribe=topic)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert without_ids(end) == {topic: {"0": 0}, "@initial": {topic: {"0": 0}}}
    assert reader.partitions({topic: {"0": 0}}, end) == []
    send(producer, topic, numbered(0, 3))
    assert without_ids(reader.latestOffset(end, ReadAllAvailable())) == {topic: {"0": 3}}


def test_when_nothing_is_new_the_answer_is_the_very_start_after_a_wait_on_the_broker(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    reader = stream(bootstrap, subscribe=topic)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    begun = time.monotonic()
    for _ in range(3):
        assert reader.latestOffset(start, ReadAllAvailable()) is start
    assert time.monotonic() - begun >= 0.5


def test_news_end_the_wait(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    reader = stream(bootstrap, subscribe=topic)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader._reader().wait_beyond({}, 1)  # connected
    arrived = threading.Event()

    def wait() -> None:
        reader._reader().wait_beyond({(topic, 0): 0, (topic, 1): 0}, 20_000)
        arrived.set()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    send(producer, topic, [b"x"], partition=1)
    assert arrived.wait(60)
    waiter.join(60)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert without_ids(end) == {topic: {"0": 0, "1": 1}}


def test_limits_share_a_backlog_over_batches_and_availableNow_stops_at_its_end(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    send(producer, topic, numbered(0, 90), 0)
    send(producer, topic, numbered(0, 10), 1)
    reader = stream(
        bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40"
    )
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(40)
    reader.prepareForTriggerAvailableNow()
    send(producer, topic, numbered(0, 50), 1)
    start, ends = reader.initialOffset(), []
    while True:
        end = reader.latestOffset(start, limit)
        if end == start:
            break
        ends.append({key: value for key, value in end.items() if key == topic})
        start = end
    assert ends == [
        {topic: {"0": 36, "1": 4}},
        {topic: {"0": 72, "1": 8}},
        {topic: {"0": 90, "1": 10}},
    ]
    assert reader.reportLatestOffset() == {topic: {"0": 90, "1": 10}}


def test_trigger_once_takes_everything_whatever_the_limits(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(producer, topic, numbered(0, 90))
    reader = stream(
        bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40"
    )
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end[topic] == {"0": 90}


def test_a_batch_is_held_back_until_enough_has_come(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    reader = stream(bootstrap, subscribe=topic, minOffsetsPerTrigger="10")
    limit = reader.getDefaultReadLimit()
    start = reader.latestOffset(reader.initialOffset(), limit)
    send(producer, topic, numbered(0, 9))
    start = reader.latestOffset(start, limit)  # the first batch never waits
    assert without_ids(start) == {topic: {"0": 9}}
    send(producer, topic, numbered(9, 18))
    assert reader.latestOffset(start, limit) is start
    begun = time.monotonic()
    for _ in range(2):
        assert reader.latestOffset(start, limit) is start
    assert time.monotonic() - begun >= 0.3  # at the broker, beyond what is held back
    send(producer, topic, numbered(18, 19))
    assert without_ids(reader.latestOffset(start, limit)) == {topic: {"0": 19}}


def test_a_topic_that_is_shorter_than_what_was_read_is_data_loss(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    """Also where the checkpoint does not know which topic that was."""
    topic = new_topic()
    send(producer, topic, numbered(0, 5))
    start = {topic: {"0": 7}}
    with pytest.raises(DataLoss, match="decreased from 7 to 5"):
        stream(bootstrap, subscribe=topic).latestOffset(start, ReadAllAvailable())
    tolerant = stream(bootstrap, subscribe=topic, failOnDataLoss="false")
    end = tolerant.latestOffset(start, ReadAllAvailable())
    assert without_ids(end) == {topic: {"0": 5}}
    assert tolerant.partitions(start, end) == []


def test_partitions_that_are_gone_are_data_loss(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    start = {"deleted": {"0": 3}, topic: {"0": 0}}
    with pytest.raises(DataLoss, match="deleted-0 no longer exist"):
        stream(bootstrap, subscribe=topic).latestOffset(start, ReadAllAvailable())


def test_the_plan_depends_on_offsets_and_options_alone(new_topic: NewTopic) -> None:
    def plan() -> str:
        reader = stream("127.0.0.1:1", subscribe="t", minPartitions="4")  # nobody is there
        return repr(reader.partitions({"t": {"0": 0, "1": 5}}, {"t": {"0": 100, "1": 9, "2": 50}}))

    assert plan() == plan()
    assert "PartitionRange(topic='t', partition=2, start=0" in plan()


def test_a_checkpoint_of_sparks_own_kafka_source_is_understood(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(producer, topic, numbered(0, 5))
    compact = json.loads(f'{{"{topic}":{{"0":2}}}}')
    reader = stream(bootstrap, subscribe=topic)
    end = reader.latestOffset(compact, ReadAllAvailable())
    assert [row["value"] for row in rows_of(reader, reader.partitions(compact, end))] == numbered(
        2, 5
    )
