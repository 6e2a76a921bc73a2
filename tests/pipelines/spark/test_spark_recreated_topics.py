"""A topic that is deleted and recreated under a stream: its offsets say nothing of what was read."""

from collections.abc import Callable

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

import bradbury
from bradbury.pipelines.ranges.partition_range import DataLoss
from bradbury.pipelines.spark.reading.stream_reader import StreamReader
from bradbury.pipelines.spark.source import BradburyDataSource

NewTopic = Callable[..., str]


def stream(bootstrap: str, options: dict[str, str]) -> StreamReader:
    one = BradburyDataSource(CaseInsensitiveDict({"kafka.bootstrap.servers": bootstrap, **options}))
    reader = one.streamReader(one.schema())
    assert isinstance(reader, StreamReader)
    return reader


@pytest.mark.parametrize("count", [0, 3, 50], ids="{} records".format)
def test_a_topic_made_again_is_data_loss_however_long_it_is(
    bootstrap: str,
    admin: bradbury.Admin,
    producer: bradbury.Producer,
    new_topic: NewTopic,
    count: int,
) -> None:
    topic = new_topic()
    producer.send_batch(topic, [b"old"] * 5, partition=0).result(60)
    running = stream(bootstrap, {"subscribe": topic, "startingOffsets": "earliest"})
    start = running.latestOffset(running.initialOffset(), ReadAllAvailable())
    admin.delete_topic(topic)
    admin.create_topic(topic, 1)
    if count:
        producer.send_batch(topic, [b"new"] * count, partition=0).result(60)
    options = {"subscribe": topic, "kafka.metadata.max.age.ms": "1"}
    started_again = stream(bootstrap, options)
    with pytest.raises(DataLoss, match=f"{topic} was deleted and recreated since it was read"):
        started_again.latestOffset(start, ReadAllAvailable())
    available = stream(bootstrap, options)
    available.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match="deleted and recreated"):
        available.latestOffset(start, ReadAllAvailable())

    tolerant = stream(bootstrap, {**options, "failOnDataLoss": "false"})
    end = tolerant.latestOffset(start, ReadAllAvailable())
    assert end[topic] == {"0": count}
    assert end["@topics"] != start["@topics"]
    ranges = [one for task in tolerant.partitions(start, end) for one in task.ranges]
    assert [(one.start, one.end) for one in ranges] == ([(0, count)] if count else [])
    assert tolerant.latestOffset(end, ReadAllAvailable()) is end
