"""Is what the checker reads in `__consumer_offsets` what Kafka's own formatters read there?"""

import base64
import json
import struct

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer

import bradbury
from bradbury.tests.compatibility.support.kafka_jars import require_kafka, run_java
from bradbury.tests.groups_soak.history import Commit, Generation
from bradbury.tests.groups_soak.offsets_topic import decode, decode_assignment, read_log

FORMATTERS = "org.apache.kafka.tools.consumer."


def formatted(servers: str, formatter: str) -> list[dict]:
    """The records of the one partition, up to its present end; the reading tool has no group."""
    with bradbury.Admin(servers) as admin:
        (end,) = admin.list_offsets([("__consumer_offsets", 0)]).values()
    said = run_java(
        FORMATTERS + "ConsoleConsumer",
        *("--bootstrap-server", servers, "--topic", "__consumer_offsets", "--partition", "0"),
        *("--offset", "earliest", "--max-messages", str(end.offset)),
        *("--formatter", FORMATTERS + formatter),
    )
    found, text = [], said.stdout[said.stdout.find("{") :].strip()
    while text:  # one object behind the other, without a separator
        one, end = json.JSONDecoder().raw_decode(text)
        found.append(one)
        text = text[end:].lstrip()
    return found


@pytest.mark.slow
@pytest.mark.java
def test_commits_and_generations_are_those_that_kafkas_formatters_show() -> None:
    require_kafka()
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with bradbury.local(config=config) as cluster:
        servers = cluster.bootstrap_servers
        with cluster.admin() as admin:
            admin.create_topic("t", 3)
            admin.create_topic("other", 1)
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "g", "group.instance.id": "one"}
        )
        consumer.subscribe(["t", "other"])
        other = KafkaConsumer("t", bootstrap_servers=servers, group_id="h")
        while not consumer.assignment() or not other.assignment():
            consumer.poll(0.1)
            other.poll(100)
        for offset in (3, 5):
            wanted = [TopicPartition("t", 1, offset), TopicPartition("other", 0, offset + 40)]
            consumer.commit(offsets=wanted, asynchronous=False)
        consumer.close()
        other.close()
        ours = read_log(servers, {"g", "h"}, "t")
        offsets = formatted(servers, "OffsetsMessageFormatter")
        groups = formatted(servers, "GroupMetadataMessageFormatter")
    assert [one for one in ours if isinstance(one, Commit) and one.group == "g"] == [
        Commit("g", 1, one["value"]["data"]["offset"])
        for one in offsets
        if one["key"]["data"]["group"] == "g" and one["key"]["data"]["topic"] == "t"
    ]
    for group in ("g", "h"):
        mine = [one for one in ours if isinstance(one, Generation) and one.group == group]
        theirs = [
            one["value"]["data"]
            for one in groups
            if one["key"]["data"]["group"] == group and one["value"]
        ]
        assert [one.generation for one in mine] == [one["generation"] for one in theirs]
        for one, other_one in zip(mine, theirs, strict=True):
            names = {
                member["groupInstanceId"] or member["memberId"]: decode_assignment(
                    base64.b64decode(member["assignment"]), "t"
                )
                for member in other_one["members"]
            }
            assert one.owners == names
    assert {frozenset({0, 1, 2})} <= {
        owned for one in ours if isinstance(one, Generation) for owned in one.owners.values()
    }


def test_an_assignment_is_of_the_topic_asked_for() -> None:
    topics = ((b"other", [7]), (b"t", [0, 2]))
    assignment = struct.pack(">hi", 1, len(topics))
    for name, partitions in topics:
        assignment += struct.pack(f">h{len(name)}si", len(name), name, len(partitions))
        assignment += struct.pack(f">{len(partitions)}i", *partitions)
    assignment += struct.pack(">i", -1)
    assert decode_assignment(assignment, "t") == {0, 2}
    assert decode_assignment(b"", "t") == frozenset()


def test_a_tombstone_and_a_record_of_a_newer_kind_are_nothing() -> None:
    key = struct.pack(">hh1s", 2, 1, b"g")
    assert decode(key, None, "t") is None
    assert decode(struct.pack(">hh1s", 3, 1, b"g"), b"\0\0", "t") is None
