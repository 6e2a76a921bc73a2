"""What a TopicDataset does when its topics become others: recreated ones, more partitions."""

from collections.abc import Iterator

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


def test_a_topic_that_is_recreated_before_it_is_read_is_not_read_by_its_old_offsets(
    cluster: bradbury.LocalCluster, admin: bradbury.Admin
) -> None:
    topic, servers = "recreated-before", cluster.bootstrap_servers
    admin.create_topic(topic, 1)
    with bradbury.Producer(servers) as producer:
        producer.send_batch(topic, [b"old"] * 5).result(60)
    samples = bradbury.TopicDataset(topic, bootstrap_servers=servers)
    less = bradbury.TopicDataset(topic, bootstrap_servers=servers, fail_on_data_loss=False)
    admin.delete_topic(topic)
    admin.create_topic(topic, 1)
    with bradbury.Producer(servers) as producer:
        producer.send_batch(topic, [b"new"] * 9).result(60)
    with pytest.raises(DataLoss, match=rf"\[0, 5\) of {topic}-0 .* was deleted and recreated"):
        list(samples)
    assert list(less) == []


def test_partitions_that_are_added_are_followed_by_one_shard_each(
    cluster: bradbury.LocalCluster, admin: bradbury.Admin
) -> None:
    topic, servers = "followed", cluster.bootstrap_servers
    admin.create_topic(topic, 2)

    def dataset(rank: int) -> bradbury.TopicDataset:
        return bradbury.TopicDataset(
            topic,
            follow=True,
            columns=["value"],
            rank=rank,
            world_size=2,
            bootstrap_servers=servers,
        )

    def take(rows: Iterator[dict[str, bytes]], count: int) -> set[bytes]:
        return {next(rows)["value"] for _ in range(count)}

    with bradbury.Producer(servers) as producer:

        def send(text: str, partitions: range) -> None:
            for number in partitions:
                value = f"{text}-{number}"
                producer.send(topic, value, partition=number).result(60)

        send("first", range(2))
        datasets = [dataset(rank) for rank in range(2)]
        streams = [iter(one) for one in datasets]
        assert [take(rows, 1) for rows in streams] == [{b"first-0"}, {b"first-1"}]
        admin.create_partitions(topic, 4)
        send("second", range(2, 4))
        assert [take(rows, 1) for rows in streams] == [{b"second-2"}, {b"second-3"}]
        send("third", range(4))
        for rank, former in enumerate(datasets):
            again = dataset(rank)
            again.load_state_dict(former.state_dict())
            expected = {f"third-{number}".encode() for number in (rank, rank + 2)}
            assert take(iter(again), 2) == expected
