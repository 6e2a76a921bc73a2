"""Settings that programs send although they change nothing, and those that change while a node runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import bradbury
from bradbury.storage.log.retention import choose_deletions
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.logs import open_log

SECONDS = 60
AS_IT_IS = {
    "preallocate": "false",
    "remote.storage.enable": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "local.retention.ms": "-2",
    "local.retention.bytes": "-2",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[bradbury.LocalCluster]:
    static = {"log.preallocate": "false", "remote.log.storage.system.enable": "false"}
    with bradbury.local(config=static) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: bradbury.LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def described(admin: AdminClient, kind: ConfigResource.Type, name: str) -> dict[str, str]:
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource])[resource].result(SECONDS)
    return {key: entry.value for key, entry in found.items()}


def alter(admin: AdminClient, kind: ConfigResource.Type, name: str, **values: str) -> None:
    resource = ConfigResource(
        kind, name, set_config={k.replace("_", "."): v for k, v in values.items()}
    )
    admin.alter_configs([resource])[resource].result(SECONDS)


def test_what_is_done_anyway_is_accepted_and_anything_else_is_refused(admin: AdminClient) -> None:
    topic = NewTopic("as-it-is", 1, 1, config={**AS_IT_IS, "retention.ms": "1000"})
    admin.create_topics([topic])["as-it-is"].result(SECONDS)
    found = described(admin, ConfigResource.Type.TOPIC, "as-it-is")
    assert {name: found[name] for name in AS_IT_IS} == AS_IT_IS
    assert found["retention.ms"] == "1000"
    for name, value in (("preallocate", "true"), ("local.retention.ms", "60000")):
        with pytest.raises(KafkaException, match=f"{name} is not available: .* can only be"):
            alter(admin, ConfigResource.Type.TOPIC, "as-it-is", **{name.replace(".", "_"): value})
    assert described(admin, ConfigResource.Type.TOPIC, "as-it-is") == found


def test_a_topic_without_any_cleanup_policy_keeps_all(admin: AdminClient, tmp_path: Path) -> None:
    topic = NewTopic("for-ever", 1, 1, config={"cleanup.policy": ""})
    admin.create_topics([topic])["for-ever"].result(SECONDS)
    assert described(admin, ConfigResource.Type.TOPIC, "for-ever")["cleanup.policy"] == ""
    config = LogConfig(cleanup_policy="", retention_ms=0, retention_bytes=0)
    assert config.cleanup_policies == frozenset()
    assert not config.is_compacted
    log = open_log(tmp_path, config=config)
    rules = {"log_start_offset": 0, "high_watermark": 2**62, "now_ms": 2**62}
    assert choose_deletions(tuple(log.segments), config, **rules) == []
    log.close(clean=True)


def test_the_cleaner_is_changed_while_it_runs(
    admin: AdminClient, cluster: bradbury.LocalCluster
) -> None:
    host = cluster.nodes[0].storage.partition_host
    assert host is not None
    assert host.cleaner is not None
    cleaner = host.cleaner

    def working() -> int:
        return sum(not task.done() for task in cleaner._workers.values())

    assert working() == 1
    alter(
        admin,
        ConfigResource.Type.BROKER,
        str(cluster.nodes[0].node_id),
        log_cleaner_threads="3",
        log_cleaner_dedupe_buffer_size=str(6 * 1024**2),
        log_cleaner_io_buffer_size="60000",
        log_cleaner_io_buffer_load_factor="0.5",
        log_cleaner_io_max_bytes_per_second="5000",
        log_cleaner_backoff_ms="50",
    )
    while working() != 3:
        pass
    assert (cleaner.step.config.threads, cleaner.step.config.read_bytes) == (3, 10_000)
    assert cleaner.step.config.most_keys == 6 * 1024**2 // 3 // 24 // 2
    assert cleaner._backoff_seconds == 0.05
    assert cleaner._throttler._bytes_per_ms == 5
    node = str(cluster.nodes[0].node_id)
    alter(admin, ConfigResource.Type.BROKER, node, log_cleaner_threads="2")
    while working() != 2:
        pass
