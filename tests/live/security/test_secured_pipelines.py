"""Loads, mirrors and training data of a cluster that asks for a password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import bradbury
from bradbury.cli.main import run
from bradbury.protocol.errors import AuthenticationFailed
from bradbury.tests.support.certificates import CertificateAuthority
from bradbury.tests.support.secured_cluster import PASSWORD, secured_cluster

COUNT = 100


@pytest.fixture(scope="module")
def secured(authority: CertificateAuthority) -> Iterator[tuple[str, dict[str, Any]]]:
    with secured_cluster(authority, nodes=1) as (cluster, alice):
        servers = cluster.bootstrap_servers
        with bradbury.Admin(servers, **alice) as admin:
            admin.create_topic("numbers", 2)
        with bradbury.Producer(servers, **alice) as producer:
            producer.send_batch("numbers", [b"%d" % n for n in range(COUNT)]).result(60)
        yield servers, alice


def test_a_topic_is_loaded_into_a_table(secured: Any, tmp_path: Path) -> None:
    servers, alice = secured
    with pytest.raises(AuthenticationFailed, match="not authenticated") as caught:
        bradbury.load(
            "numbers",
            str(tmp_path / "table"),
            bootstrap_servers=servers,
            **{**alice, "sasl_password": f"not-{PASSWORD}"},
        )
    assert PASSWORD not in str(caught.value)
    bradbury.load("numbers", str(tmp_path / "table"), bootstrap_servers=servers, **alice)
    assert len(pq.read_table(tmp_path / "table")) == COUNT


def test_the_command_reads_the_settings_from_a_file(secured: Any, tmp_path: Path) -> None:
    servers, alice = secured
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in alice.items()))
    table = tmp_path / "table"
    run(
        [
            "--client-config",
            str(path),
            "load",
            "numbers",
            "--to",
            str(table),
            "--bootstrap",
            servers,
        ]
    )
    assert len(pq.read_table(table)) == COUNT


def test_a_mirror_writes_into_it_and_reads_from_it(secured: Any) -> None:
    servers, alice = secured
    with bradbury.local() as other:
        there = other.bootstrap_servers
        copied = bradbury.mirror(
            "numbers",
            servers,
            alias="secured",
            bootstrap_servers=there,
            source_security=alice,
            security_protocol="PLAINTEXT",
        )
        assert copied.records == COUNT
        with bradbury.Admin(there) as admin:
            admin.create_topic("others")
        with bradbury.Producer(there) as producer:
            producer.send("others", b"a record").result(60)
        back = bradbury.mirror("others", there, alias="other", bootstrap_servers=servers, **alice)
        assert back.records == 1
    with bradbury.Admin(servers, **alice) as admin:
        assert "other.others" in admin.list_topics()


def test_samples_for_training_are_read_and_no_password_is_in_their_state(secured: Any) -> None:
    servers, alice = secured
    samples = bradbury.TopicDataset(
        "numbers", columns=["value"], batch_size=10, bootstrap_servers=servers, **alice
    )
    assert sum(len(batch["value"]) for batch in samples) == COUNT
    assert PASSWORD not in repr(samples.state_dict())
