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


def test_they_are_sound_and_damage_to_them_is_found(command: Command, tmp_path: Path) -> None:
    require_kafka()
    with KafkaBroker(tmp_path, heap="256m") as kafka:
        servers = {"bootstrap.servers": kafka.bootstrap_servers}
        configs = {"index.interval.bytes": "1000", "segment.bytes": str(1024 * 1024)}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("t", 1, 1, config=configs)])["t"].result(30)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = Producer({**servers, "compression.type": codec, "batch.size": 10_000})
            for number in range(3_000):
                producer.produce("t", b"%0100d" % number, b"key", headers={"h": b"v"})
            assert producer.flush(30) == 0
        kafka.stop()
    outcome = command("log", "verify", str(kafka.data), "--json")
    found = json.loads(outcome.out)
    assert outcome.code == 0, [one for one in found["segments"] if one["problems"]]
    assert sum(one["records"] for one in found["segments"] if "/t-0/" in one["file"]) == 15_000
    outcome = command("log", "index-check", str(kafka.data), "--json")
    indexes = json.loads(outcome.out)["indexes"]
    assert outcome.code == 0, [one for one in indexes if one["problems"]]
    assert sum(one["entries"] or 0 for one in indexes if "/t-0/" in one["file"]) > 100
    log = min(kafka.data.glob("t-0/*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    assert command("log", "verify", str(kafka.data)).code == 1
