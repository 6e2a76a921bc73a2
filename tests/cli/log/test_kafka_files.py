"""bradbury log verify, index-check and dump on a directory that Apache Kafka itself has written."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.tests.compatibility.support.kafka_jars import require_kafka
from bradbury.tests.support.command_line import Command

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.mark.long  # a JVM; tests/storage/directories reads such files in each run
def test_they_are_sound_and_damage_to_them_is_found(command: Command, tmp_path: Path) -> None:
    require_kafka()
    with KafkaBroker(tmp_path, heap="256m") as kafka:
        servers = {"bootstrap.servers": kafka.bootstrap_servers}
        configs = {"index.interval.bytes": "1000", "segment.bytes": str(1024 * 1024)}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("t", 1, 1, config=configs)])["t"].result(30)
        small = {"segment.bytes": str(1024 * 1024), "segment.ms": "1000"}
        topic = NewTopic("in-transactions", 1, 1, config=small)
        admin.create_topics([topic])["in-transactions"].result(30)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = Producer({**servers, "compression.type": codec, "batch.size": 10_000})
            for number in range(3_000):
                producer.produce("t", b"%0100d" % number, b"key", headers={"h": b"v"})
            assert producer.flush(30) == 0
        for number in range(20):
            settings = {**servers, "transactional.id": f"id-{number % 3}", "linger.ms": 0}
            writer = Producer(settings)
            writer.init_transactions(60)
            writer.begin_transaction()
            for _ in range(3):
                writer.produce("in-transactions", bytes(5_000), partition=0)
                assert writer.flush(30) == 0
            if number % 4 == 3:
                continue  # the next one with this id aborts it
            (writer.abort_transaction if number % 2 else writer.commit_transaction)(60)
        kafka.stop()
    outcome = command("log", "verify", str(kafka.data), "--json")
    found = json.loads(outcome.out)
    assert outcome.code == 0, [one for one in found["segments"] if one["problems"]]
    assert sum(one["records"] for one in found["segments"] if "/t-0/" in one["file"]) == 15_000
    outcome = command("log", "index-check", str(kafka.data), "--json")
    indexes = json.loads(outcome.out)["indexes"]
    assert outcome.code == 0, [one for one in indexes if one["problems"]]
    assert sum(one["entries"] or 0 for one in indexes if "/t-0/" in one["file"]) > 100
    aborts = [one for one in indexes if one["file"].endswith(".txnindex")]
    assert sum(one["entries"] for one in aborts) >= 8
    for index in kafka.data.glob("in-transactions-0/*.txnindex"):
        content = index.read_bytes()
        if content:
            index.write_bytes(content[:-34])
            outcome = command("log", "verify", str(kafka.data / "in-transactions-0"))
            assert outcome.code == 1
            assert f"delete {index}" in outcome.err
            index.write_bytes(content)
    log = min(kafka.data.glob("t-0/*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    assert command("log", "verify", str(kafka.data)).code == 1
