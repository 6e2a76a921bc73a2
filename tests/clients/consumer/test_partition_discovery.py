"""Are partitions read that a topic gets later? Those of whole topics are."""

from collections.abc import Callable

import pytest

import bradbury
from bradbury.tests.support.groups.group_members import fill

NewTopic = Callable[..., str]


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_a_consumer_of_whole_topics_reads_new_partitions_from_their_beginning(
    bootstrap: str, admin: bradbury.Admin, new_topic: NewTopic, reset: str
) -> None:
    one, other = new_topic(1), new_topic(2)
    with bradbury.Consumer(
        one, other, bootstrap=bootstrap, auto_offset_reset=reset, metadata_max_age_ms=100
    ) as consumer:
        for key in consumer.assignment():
            consumer.seek(key, 0)
        admin.create_partitions(other, 4)
        fill(bootstrap, other, 10, partition=3)
        table = consumer.poll()
        assert set(table.column("partition").to_pylist()) == {3}
        assert table.column("offset").to_pylist()[0] == 0
        everything = [(one, 0), *((other, number) for number in range(4))]
        assert consumer.assignment() == sorted(everything)


def test_what_was_read_before_goes_on_where_it_was(
    bootstrap: str, admin: bradbury.Admin, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    fill(bootstrap, topic, 10)
    with bradbury.Consumer(
        topic, bootstrap=bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=100
    ) as consumer:
        assert consumer.poll(max_records=4).num_rows == 4
        admin.create_partitions(topic, 2)
        fill(bootstrap, topic, 5, partition=1)
        found: dict[int, list[int]] = {0: [], 1: []}
        while sum(map(len, found.values())) < 11:
            for row in consumer.poll().select(["partition", "offset"]).to_pylist():
                found[row["partition"]].append(row["offset"])
    assert found == {0: [4, 5, 6, 7, 8, 9], 1: [0, 1, 2, 3, 4]}


def test_what_was_assigned_by_hand_stays_as_it_is(
    bootstrap: str, admin: bradbury.Admin, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    with bradbury.Consumer(
        topic, bootstrap=bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=50
    ) as consumer:
        consumer.assign([(topic, 0)])  # from here on it is not the whole topic
        admin.create_partitions(topic, 2)
        while consumer.partitions_for(topic) == 1:
            pass
        fill(bootstrap, topic, 5, partition=1)
        fill(bootstrap, topic, 5, partition=0)
        assert set(consumer.poll().column("partition").to_pylist()) == {0}
        assert consumer.assignment() == [(topic, 0)]
        consumer.unsubscribe()
        assert consumer.poll(200).num_rows == 0
        assert consumer.assignment() == []
