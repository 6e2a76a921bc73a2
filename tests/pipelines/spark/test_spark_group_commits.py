"""Is a stream's progress shown as offsets of a group, and does it end nothing when it cannot be?"""

import pickle
from collections.abc import Callable

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

import bradbury
from bradbury.pipelines.spark.reading.stream_reader import StreamReader
from bradbury.pipelines.spark.source import BradburyDataSource
from bradbury.protocol.topic_partition import TopicPartition

NewTopic = Callable[..., str]


def stream(bootstrap: str, **options: str) -> StreamReader:
    given = CaseInsensitiveDict({"kafka.bootstrap.servers": bootstrap})
    for name, value in options.items():
        given[name.replace("_", ".")] = value
    source = BradburyDataSource(given)
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    return reader


def test_what_is_done_is_shown_as_offsets_of_a_group(
    bootstrap: str, producer: bradbury.Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer.send_batch(topic, [b"0", b"1", b"2"]).result(60)
    group = f"query-of-{topic}"
    options = {"subscribe": topic, "startingOffsets": "earliest", "kafka_group_id": group}
    reader = stream(bootstrap, **options, commitOffsets="true")

    def shown() -> int | None:
        with bradbury.Admin(bootstrap) as admin:
            found = admin.group_offsets(group).get(TopicPartition(topic, 0))
            return None if found is None else found.offset

    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert shown() is None  # of a batch that is planned nothing is done
    assert reader.latestOffset(end, ReadAllAvailable()) == end  # Spark asks on when it is
    reader.stop()
    assert shown() == 3
    again = stream(bootstrap, **options, commitOffsets="true")
    again.commit({topic: {"0": 2}})
    again.stop()
    assert shown() == 2
    pickle.dumps(again)


def test_a_group_that_refuses_offsets_does_not_end_the_query(
    bootstrap: str,
    producer: bradbury.Producer,
    new_topic: NewTopic,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic()
    producer.send_batch(topic, [b"0", b"1", b"2"]).result(60)
    with bradbury.Consumer(topic, bootstrap=bootstrap, group=f"of-{topic}") as member:
        member.poll(1000)
        assert member.assignment()
        reader = stream(
            bootstrap, subscribe=topic, kafka_group_id=f"of-{topic}", commitOffsets="true"
        )
        for _ in range(2):
            reader.commit({topic: {"0": 3}})
            reader.stop()
    assert caplog.text.count("offsets not committed to group") == 1
