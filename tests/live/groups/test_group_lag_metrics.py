"""Does /metrics say how far a group of somebody's client is behind, in records and in seconds?"""

import time
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

import bradbury
from bradbury.actors.coordinators import lag_reader
from bradbury.launch.local import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with bradbury.local(nodes=2) as cluster:
        yield cluster


def scrape(cluster: LocalCluster, name: str) -> dict[tuple[str, str, int], float]:
    """{(group, topic, partition): value}, from all nodes, as Prometheus would have it."""
    found: dict[tuple[str, str, int], float] = {}
    for node in cluster.nodes:
        url = f"http://{node.status()['metrics']}/metrics"
        with urllib.request.urlopen(url, timeout=20) as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name:
                    labels = sample.labels
                    if "group" in labels:
                        key = (labels["group"], labels["topic"], int(labels["partition"]))
                    else:
                        key = ("", "", node.status()["node_id"])
                    assert key not in found  # one node alone shows it
                    found[key] = sample.value
    return found


def produce(cluster: LocalCluster, topic: str, records: dict[int, list[int]]) -> None:
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        for partition, times in records.items():
            for timestamp in times:
                producer.send(topic, b"x", partition=partition, timestamp_ms=timestamp).result()


def consume(cluster: LocalCluster, topic: str, group: str, count: int) -> None:
    """confluent-kafka reads so many records as a member, commits and leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = 0
    while read < count:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        read += 1
    ends = [TopicPartition(topic, 0, count), TopicPartition(topic, 1, 0)]
    consumer.commit(offsets=ends, asynchronous=False)
    consumer.close()


def test_a_group_of_confluent_kafka_that_lags(cluster: LocalCluster) -> None:
    with cluster.admin() as admin:
        admin.create_topic("rides", 2)
    now_ms = round(time.time() * 1000)
    ages = [90_000, 80_000, 70_000, 60_000]
    produce(cluster, "rides", {0: [now_ms - age for age in ages]})
    consume(cluster, "rides", "drivers", 3)
    before = time.time()
    records = scrape(cluster, "kafka_consumergroup_lag")
    seconds = scrape(cluster, "kafka_consumergroup_lag_seconds")
    passed = time.time() - now_ms / 1000
    assert records == {("drivers", "rides", 0): 1, ("drivers", "rides", 1): 0}
    assert 60 + before - now_ms / 1000 - 1 <= seconds["drivers", "rides", 0] <= 60 + passed
    assert seconds["drivers", "rides", 1] == 0
    produce(cluster, "rides", {1: [now_ms - 5_000] * 7})
    records = scrape(cluster, "kafka_consumergroup_lag")
    assert records == {("drivers", "rides", 0): 1, ("drivers", "rides", 1): 7}
    with cluster.admin() as admin:
        assert {(one.partition, one.lag) for one in admin.lag("drivers")} == {(0, 1), (1, 7)}
        admin.alter_group_offsets("drivers", {("rides", 0): 4, ("rides", 1): 7})
        assert set(scrape(cluster, "kafka_consumergroup_lag").values()) == {0}
        assert set(scrape(cluster, "kafka_consumergroup_lag_seconds").values()) == {0}
        assert sum(scrape(cluster, "bradbury_metrics_group_partitions_omitted").values()) == 0
        admin.delete_groups(["drivers"])
    assert scrape(cluster, "kafka_consumergroup_lag") == {}


def test_what_is_beyond_the_bound_is_counted(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.admin() as admin:
        admin.create_topic("wide", 8)
        admin.alter_group_offsets("wide", {("wide", partition): 0 for partition in range(8)})
        monkeypatch.setattr(lag_reader, "MAX_GROUP_PARTITIONS", 5)
        assert len(scrape(cluster, "kafka_consumergroup_lag")) == 5
        assert sum(scrape(cluster, "bradbury_metrics_group_partitions_omitted").values()) == 3
        admin.delete_groups(["wide"])
