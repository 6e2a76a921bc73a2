"""Does Apache Kafka's transaction coordinator go on with a log of `__transaction_state` that we wrote?"""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.protocol.topic_partition import TopicPartition
from bradbury.tests.compatibility.support.kafka_jars import require_kafka

pytestmark = [pytest.mark.deep, pytest.mark.java]

STATE = "__transaction_state-0"
CONFIG = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
SECONDS = 60.0
IDS = ["committed", "open"]


def begun(servers: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("t", b"value", partition=1)
    assert producer.flush(SECONDS) == 0
    return producer


def test_kafkas_coordinator_knows_our_transactional_ids_and_ends_what_is_open(
    tmp_path: Path,
) -> None:
    require_kafka()
    with bradbury.local(tmp_path / "ours", config=CONFIG) as cluster:
        cluster.admin().create_topic("t", 2)
        begun(cluster.bootstrap_servers, "committed").commit_transaction(SECONDS)
        open_one = begun(cluster.bootstrap_servers, "open")
        with cluster.admin() as admin:
            wanted = {one.transactional_id: one for one in admin.describe_transactions(IDS)}
    del open_one  # its brokers are gone: nothing is aborted

    with KafkaBroker(tmp_path / "kafka", heap="256m", config=CONFIG) as kafka:
        with bradbury.Admin(kafka.bootstrap_servers) as admin:
            admin.create_topic("t", 2)
        begun(kafka.bootstrap_servers, "its own").commit_transaction(SECONDS)
        kafka.stop()
        [ours] = (tmp_path / "ours").rglob(f"{STATE}/00000000000000000000.log")
        for file in (kafka.data / STATE).iterdir():
            if file.suffix in {".log", ".index", ".timeindex", ".snapshot"}:
                file.unlink()
        shutil.copy(ours, kafka.data / STATE)
        (kafka.data / ".kafka_cleanshutdown").unlink(missing_ok=True)  # it makes the indexes again
        kafka.start()
        with bradbury.Admin(kafka.bootstrap_servers) as admin:
            found = {one.transactional_id: one for one in admin.describe_transactions(IDS)}
        assert found["committed"].state == "CompleteCommit"
        assert found["open"].state == "Ongoing"
        assert list(found["open"].partitions) == [TopicPartition("t", 1)]
        for name in IDS:
            assert found[name].producer_id == wanted[name].producer_id
            assert found[name].producer_epoch == wanted[name].producer_epoch
        # The id goes on, after what it has left open was aborted.
        begun(kafka.bootstrap_servers, "open").commit_transaction(SECONDS)
