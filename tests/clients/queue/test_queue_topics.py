"""The topics of a queue: what they are made with, and which others may be one."""

import logging
from collections.abc import Callable

import pytest

import bradbury
from bradbury.clients.queue.queue_brokers import QueueBrokers
from bradbury.clients.queue.queue_log import create_queue_topics

MakeTopic = Callable[..., str]


@pytest.fixture
def brokers(bootstrap: str) -> QueueBrokers:
    return QueueBrokers(bootstrap, None)


def test_nothing_is_deleted_that_was_not_consumed(
    brokers: QueueBrokers, admin: bradbury.Admin, caplog: pytest.LogCaptureFixture
) -> None:
    create_queue_topics(brokers, "kept")
    create_queue_topics(brokers, "kept")
    configs = admin.describe_configs("kept")
    assert configs["retention.ms"].value == configs["retention.bytes"].value == "-1"
    assert configs["cleanup.policy"].value == "delete"
    assert caplog.records == []


def test_a_topic_of_several_partitions_is_no_queue(
    brokers: QueueBrokers, new_topic: MakeTopic
) -> None:
    """Its items are those of one partition: nobody would get the others."""
    with pytest.raises(ValueError, match=r"has 4 partitions.*another name"):
        create_queue_topics(brokers, new_topic(4))


def test_a_compacted_topic_is_no_queue(brokers: QueueBrokers, new_topic: MakeTopic) -> None:
    """The keys of items are numbers of items: compaction would keep the last item alone."""
    with pytest.raises(ValueError, match=r"cleanup.policy=compact.*set it to delete"):
        create_queue_topics(brokers, new_topic(1, cleanup_policy="compact"))


def test_a_topic_whose_records_expire_is_a_queue_with_a_warning(
    brokers: QueueBrokers, new_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(1, retention_ms="86400000")
    with caplog.at_level(logging.WARNING):
        create_queue_topics(brokers, topic)
    (record,) = caplog.records
    assert record.getMessage() == (
        f"topic {topic} has retention.ms=86400000, which deletes items that nobody has consumed; "
        "-1 keeps them"
    )
