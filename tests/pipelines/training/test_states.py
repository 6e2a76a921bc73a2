"""What a state of a TopicDataset is refused for, though its offsets are there."""

import pytest

import bradbury
from bradbury.pipelines.ranges.partition_range import DataLoss


@pytest.mark.parametrize("count", [1, 50])
def test_a_state_of_a_topic_that_was_recreated_since(
    cluster: bradbury.LocalCluster, admin: bradbury.Admin, count: int
) -> None:
    topic, servers = f"recreated-{count}", cluster.bootstrap_servers
    admin.create_topic(topic, 1)
    with bradbury.Producer(servers) as producer:
        producer.send_batch(topic, [b"old"] * 5).result(60)
    samples = bradbury.TopicDataset(topic, bootstrap_servers=servers)
    next(iter(samples))
    state = samples.state_dict()
    bradbury.TopicDataset(topic, bootstrap_servers=servers).load_state_dict(state)
    admin.delete_topic(topic)
    admin.create_topic(topic, 1)
    with bradbury.Producer(servers) as producer:
        producer.send_batch(topic, [b"new"] * count).result(60)
    again = bradbury.TopicDataset(topic, bootstrap_servers=servers)
    with pytest.raises(DataLoss, match=f"'{topic}' was deleted and recreated since the state"):
        again.load_state_dict(state)
    assert len(list(again)) == count
