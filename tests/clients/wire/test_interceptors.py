"""What do interceptors see and change, and what does it cost to write a bad one?"""

import logging
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bradbury
from bradbury.clients.wire.record_metadata import OffsetRange
from bradbury.protocol.errors import MessageTooLarge, UnknownTopicOrPartition
from bradbury.tests.support.groups.group_members import fill

NewTopic = Callable[..., str]
Acknowledged = tuple[bradbury.BatchMetadata, Exception | None]


class Notes(bradbury.ProducerInterceptor):
    """Writes down what it is shown."""

    def __init__(self) -> None:
        self.records: list[bradbury.ProducerRecord] = []
        self.tables: list[tuple[str, pa.Table]] = []
        self.acknowledged: list[Acknowledged] = []
        self.closed = 0

    def on_send(self, record: bradbury.ProducerRecord) -> bradbury.ProducerRecord:
        self.records.append(record)
        return record

    def on_send_batch(self, topic: str, table: pa.Table) -> pa.Table:
        self.tables.append((topic, table))
        return table

    def on_acknowledgement(self, metadata: bradbury.BatchMetadata, error: Exception | None) -> None:
        self.acknowledged.append((metadata, error))

    def close(self) -> None:
        self.closed += 1


class Stamp(bradbury.ProducerInterceptor):
    """Marks what is sent."""

    def on_send(self, record: bradbury.ProducerRecord) -> bradbury.ProducerRecord:
        return record._replace(value=b"stamped", headers={"by": b"Stamp"})

    def on_send_batch(self, topic: str, table: pa.Table) -> pa.Table:
        return table.slice(0, 2)


class Broken(bradbury.ProducerInterceptor):
    """Raises, or returns nothing, wherever it can."""

    def on_send(self, record: bradbury.ProducerRecord) -> bradbury.ProducerRecord:
        return None  # type: ignore[return-value]

    def on_send_batch(self, topic: str, table: pa.Table) -> pa.Table:
        return "no table"

    def on_acknowledgement(self, metadata: bradbury.BatchMetadata, error: Exception | None) -> None:
        raise RuntimeError("on_acknowledgement is broken")

    def close(self) -> None:
        raise RuntimeError("close is broken")


def read(bootstrap: str, topic: str) -> list[dict[str, object]]:
    with bradbury.Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        (end,) = consumer.end_offsets().values()
        rows: list[dict[str, object]] = []
        while len(rows) < end:
            rows += consumer.poll().to_pylist()
    return rows


def test_they_see_records_tables_and_acknowledgements(bootstrap: str, new_topic: NewTopic) -> None:
    topic, notes = new_topic(2), Notes()
    with bradbury.Producer(bootstrap, interceptors=[notes]) as producer:
        producer.send(topic, "text", b"k", partition=1, timestamp_ms=5, headers={"h": b""}).result(
            60
        )
        assert notes.acknowledged == [
            (bradbury.BatchMetadata(topic, 1, (OffsetRange(1, 0, 1),)), None)
        ]
        producer.send_batch(topic, [b"1", b"2"], partition=0).result(60)
    assert notes.records == [
        bradbury.ProducerRecord(topic, "text", b"k", 1, 5, {"h": b""}),
    ]
    ((name, table),) = notes.tables
    assert (name, table.column("value").to_pylist()) == (topic, [b"1", b"2"])
    assert notes.acknowledged[1] == (
        bradbury.BatchMetadata(topic, 2, (OffsetRange(0, 0, 2),)),
        None,
    )
    assert notes.closed == 1


def test_each_is_shown_what_the_one_before_has_made(bootstrap: str, new_topic: NewTopic) -> None:
    topic, before, after = new_topic(), Notes(), Notes()
    with bradbury.Producer(bootstrap, interceptors=[before, Stamp(), after]) as producer:
        producer.send(topic, b"plain").result(60)
        assert producer.send_batch(topic, [b"1", b"2", b"3"]).result(60).count == 2
    assert (before.records[0].value, after.records[0].value) == (b"plain", b"stamped")
    assert (before.tables[0][1].num_rows, after.tables[0][1].num_rows) == (3, 2)
    rows = read(bootstrap, topic)
    assert [row["value"] for row in rows] == [b"stamped", b"1", b"2"]
    assert rows[0]["headers"] == [{"key": "by", "value": b"Stamp"}]


def test_an_exception_of_one_is_logged_and_goes_no_further(
    bootstrap: str, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic, notes = new_topic(), Notes()
    with (
        caplog.at_level(logging.ERROR),
        bradbury.Producer(bootstrap, interceptors=[Broken(), notes]) as producer,
    ):
        producer.send(topic, b"1").result(60)
        producer.send_batch(topic, [b"2"]).result(60)
    assert [row["value"] for row in read(bootstrap, topic)] == [b"1", b"2"]
    assert (len(notes.records), len(notes.tables), len(notes.acknowledged)) == (1, 1, 2)
    assert notes.closed == 1
    said = [record.getMessage() for record in caplog.records]
    for hook in ("on_send", "on_send_batch", "on_acknowledgement", "close"):
        assert f"Broken.{hook} failed and is skipped" in said


@pytest.mark.usefixtures("unknown_soon")
def test_records_that_are_not_sent_are_reported_with_their_error(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, notes = new_topic(1, max_message_bytes="2000"), Notes()
    with bradbury.Producer(bootstrap, interceptors=[notes]) as producer:
        with pytest.raises(MessageTooLarge):
            producer.send(topic, b"x" * 3_000).result(60)
        with pytest.raises(UnknownTopicOrPartition):
            producer.send("nowhere", b"")
        with pytest.raises(UnknownTopicOrPartition):
            producer.send_batch("nowhere", [b"", b""])
        with pytest.raises(ValueError, match="partitions 0 to 0"):
            producer.send_batch(topic, [b"", b""], partition=4)
    reported = [
        (metadata.topic, metadata.ranges, type(error)) for metadata, error in notes.acknowledged
    ]
    assert reported == [
        (topic, (OffsetRange(0, -1, -1),), MessageTooLarge),
        ("nowhere", (), UnknownTopicOrPartition),
        ("nowhere", (), UnknownTopicOrPartition),
        (topic, (), ValueError),
    ]


class Watch(bradbury.ConsumerInterceptor):
    """Leaves out odd numbers, and notes commits."""

    def __init__(self) -> None:
        self.shown: list[int] = []
        self.commits: list[dict[bradbury.TopicPartition, int]] = []
        self.closed = 0

    def on_consume(self, records: pa.Table) -> pa.Table:
        self.shown += records.column("offset").to_pylist()
        even = pc.equal(pc.bit_wise_and(records.column("offset"), 1), 0)
        return records.filter(even).append_column(
            "seen", pa.repeat(True, pc.sum(even).as_py() or 0)
        )

    def on_commit(
        self, offsets: Mapping[bradbury.TopicPartition, bradbury.OffsetAndMetadata]
    ) -> None:
        self.commits.append({key: stored.offset for key, stored in offsets.items()})

    def close(self) -> None:
        self.closed += 1


class BrokenWatch(bradbury.ConsumerInterceptor):
    def on_consume(self, records: pa.Table) -> pa.Table:
        return records.select(["value"])  # the others are needed

    def on_commit(
        self, offsets: Mapping[bradbury.TopicPartition, bradbury.OffsetAndMetadata]
    ) -> None:
        raise RuntimeError("on_commit is broken")


def test_they_change_what_poll_returns_and_hear_of_commits(
    bootstrap: str, new_topic: NewTopic
) -> None:
    topic, watch = new_topic(), Watch()
    key = bradbury.TopicPartition(topic, 0)
    fill(bootstrap, topic, 10)
    with bradbury.Consumer(
        topic,
        bootstrap=bootstrap,
        group=f"g-{topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        interceptors=[watch],
    ) as consumer:
        table = consumer.poll(max_records=6)
        assert table.column("offset").to_pylist() == [0, 2, 4]
        assert table.column("seen").to_pylist() == [True] * 3
        assert consumer.position(key) == 6  # what was omitted counts as consumed
        consumer.commit()
        assert watch.commits == [{key: 6}]
        records = iter(consumer)
        assert [next(records).offset, next(records).offset] == [6, 8]
        consumer.commit_async({key: 7}).result(60)
        consumer.poll(0)
        assert watch.commits == [{key: 6}, {key: 7}]
    assert watch.shown[:6] == [*range(6)]
    assert watch.closed == 1


def test_automatic_commits_are_reported_too(bootstrap: str, new_topic: NewTopic) -> None:
    topic, watch = new_topic(), Watch()
    fill(bootstrap, topic, 10)
    with bradbury.Consumer(
        topic,
        bootstrap=bootstrap,
        group=f"g-{topic}",
        auto_offset_reset="earliest",
        interceptors=[watch],
    ) as consumer:
        consumer.poll()
    assert watch.commits == [{bradbury.TopicPartition(topic, 0): 10}]


def test_a_broken_one_costs_the_consumer_nothing(
    bootstrap: str, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    with (
        caplog.at_level(logging.ERROR),
        bradbury.Consumer(
            topic,
            bootstrap=bootstrap,
            group=f"g-{topic}",
            auto_offset_reset="earliest",
            interceptors=[BrokenWatch()],
        ) as consumer,
    ):
        assert consumer.poll(max_records=4).num_rows == 4
        assert next(consumer.records()).offset == 4
        consumer.commit()
        assert consumer.committed() == {(topic, 0): 5}
    said = [record.getMessage() for record in caplog.records]
    assert "BrokenWatch.on_consume failed and is skipped" in said
    assert "BrokenWatch.on_commit failed and is skipped" in said
