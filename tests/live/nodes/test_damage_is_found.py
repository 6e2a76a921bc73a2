"""Is a damaged segment found before a reader comes to it? Runs on the compiled modules, too."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import bradbury

SECONDS = 30.0
KEYS = 20


def metric(cluster: bradbury.LocalCluster, name: str) -> float:
    with urllib.request.urlopen(f"http://{cluster.nodes[0].status()['metrics']}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return sum(one.value for family in families for one in family.samples if one.name == name)


def wait_for(cluster: bradbury.LocalCluster, name: str, value: float) -> None:
    deadline = time.monotonic() + SECONDS
    while (found := metric(cluster, name)) != value:
        assert time.monotonic() < deadline, f"{name} is {found}"
        time.sleep(0.1)


def fill(cluster: bradbury.LocalCluster, **configs: str) -> None:
    """Some closed segments: of a key in turn, a record a batch."""
    with cluster.admin() as admin:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        admin.create_topic("t", 1, configs={"segment.bytes": "2000", **settings})
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        for number in range(60):
            producer.send("t", key=b"%d" % (number % KEYS), value=b"%0100d" % number).result(30)


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "t-0").glob("*.log"))


def test_a_closed_segment_that_is_cut_short_is_found_by_nobodys_reading(tmp_path: Path) -> None:
    with bradbury.local(data_dir=tmp_path) as cluster:
        fill(cluster)
    [folder] = {path.parent.parent for path in tmp_path.rglob("t-0/*.log")}
    closed = segments(folder)[1]
    closed.write_bytes(closed.read_bytes()[:-50])
    config = {"bradbury.log.scrub.enable": "false"}  # it would read every segment whole
    with bradbury.local(data_dir=tmp_path, config=config) as cluster:
        wait_for(cluster, "bradbury_log_damaged_partitions", 1)
        assert metric(cluster, "bradbury_log_damaged_offsets") >= 1


def test_a_log_that_cannot_be_compacted_is_left_alone_and_the_others_are_not(
    tmp_path: Path,
) -> None:
    config = {"log.cleaner.backoff.ms": 50}
    compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
    with bradbury.local(data_dir=tmp_path, config={"log.cleaner.enable": "false"}) as cluster:
        fill(cluster, **compacted)
    [folder] = {path.parent.parent for path in tmp_path.rglob("t-0/*.log")}
    closed = segments(folder)[1]
    content = bytearray(closed.read_bytes())
    content[-20] ^= 0xFF  # of a value: the CRC is wrong
    closed.write_bytes(content)
    with bradbury.local(data_dir=tmp_path, config=config) as cluster:
        wait_for(cluster, "kafka_log_logcleanermanager_uncleanable_partitions_count", 1)
        with cluster.admin() as admin:
            sound = {name.replace("_", "."): value for name, value in compacted.items()}
            admin.create_topic("sound", 1, configs={"segment.bytes": "2000", **sound})
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            for number in range(60):
                producer.send("sound", key=b"k", value=b"%0100d" % number).result(30)
        deadline = time.monotonic() + SECONDS
        while metric(cluster, "bradbury_cleanings_total") < 1:
            assert time.monotonic() < deadline
            time.sleep(0.1)
