"""A cluster in a process of its own that writes a topic and is then stopped, or killed.

    python -m bradbury.tests.live.nodes.killed_cluster DATA_DIR NODES PARTITIONS RECORDS

It prints a line when all is written, closes when its input ends, and may be killed before that.
"""

import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import bradbury

TOPIC = "damaged"
ABORTED = b"aborted"
SEGMENT_BYTES = 3000
BATCH_RECORDS = 4
CONFIG = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "replica.high.watermark.checkpoint.interval.ms": 200,
}


def value_of(partition: int, number: int) -> bytes:
    return f"{partition}/{number}/".encode().ljust(100, b".")


def write(servers: str, nodes: int, partitions: int, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic(
        TOPIC,
        partitions,
        nodes,
        config={"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "500"},
    )
    admin.create_topics([topic])[TOPIC].result(60)
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 50})
    for start in range(0, records, BATCH_RECORDS):
        for number in range(start, min(start + BATCH_RECORDS, records)):
            for partition in range(partitions):
                producer.produce(TOPIC, value_of(partition, number), partition=partition)
        assert producer.flush(60) == 0
        if start <= records // 2 < start + BATCH_RECORDS:
            write_aborted(servers, partitions)


def write_aborted(servers: str, partitions: int) -> None:
    """Records that no reader of committed ones may see: each partition gets a transaction index."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "aborted"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(partitions):
        producer.produce(TOPIC, ABORTED, partition=partition)
    assert producer.flush(60) == 0
    producer.abort_transaction(60)


if __name__ == "__main__":
    data_dir, *numbers = sys.argv[1:]
    nodes, partitions, records = map(int, numbers)
    with bradbury.local(data_dir, nodes=nodes, config=CONFIG) as cluster:
        write(cluster.bootstrap_servers, nodes, partitions, records)
        print("written", flush=True)
        sys.stdin.read()
