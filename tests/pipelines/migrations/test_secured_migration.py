"""Do both sides of a migration, and of a mirror, let it in by a password over TLS, and nobody else?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.cli.main import run
from bradbury.protocol.errors import AuthenticationFailed
from bradbury.tests.support.certificates import CertificateAuthority
from bradbury.tests.support.secured_cluster import PASSWORD, USER, secured_cluster

Side = tuple[str, dict[str, Any]]


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Side]:
    (tmp_path / "old").mkdir()
    with secured_cluster(CertificateAuthority(tmp_path / "old"), nodes=1) as (cluster, alice):
        yield cluster.bootstrap_servers, alice


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Side]:
    """Another authority: its certificates prove nothing to who trusts the old one."""
    (tmp_path / "new").mkdir()
    with secured_cluster(CertificateAuthority(tmp_path / "new"), nodes=1) as (cluster, alice):
        yield cluster.bootstrap_servers, alice


def fill(side: Side, topic: str, count: int) -> None:
    servers, alice = side
    with bradbury.Admin(servers, **alice) as admin, bradbury.Producer(servers, **alice) as producer:
        admin.create_topic(topic, 2)
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 2)
        producer.flush()
        admin.alter_group_offsets("readers", {(topic, 0): 3, (topic, 1): 0})


def values(side: Side, topic: str) -> list[int]:
    servers, alice = side
    with bradbury.Consumer(
        topic, bootstrap=servers, auto_offset_reset="earliest", **alice
    ) as consumer:
        found: list[int] = []
        with bradbury.Admin(servers, **alice) as admin:
            ends = admin.list_offsets([(topic, 0), (topic, 1)])
        while any(consumer.position(key) < end.offset for key, end in ends.items()):
            table = consumer.poll(timeout_ms=500)
            found += [int(value) for value in table["value"].to_pylist()]
    return sorted(found)


def config_file(path: Path, alice: dict[str, Any]) -> str:
    path.write_text(
        "security.protocol=SASL_SSL\n"
        f"ssl.truststore.location={alice['ssl_truststore_location']}\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username={USER}\nsasl.password={PASSWORD}\n"
    )
    return str(path)


def test_there_and_verified(old: Side, new: Side) -> None:
    fill(old, "orders", 40)
    there = bradbury.Migration(old[0], bootstrap_servers=new[0], source_security=old[1], **new[1])
    assert there.follow(continuous=False).records == 40
    done = there.cut_over(quiet_s=0.0, timeout_s=30.0)
    assert done.is_done
    assert sum(check.source_sum.records for check in done.checks) == 40
    assert values(new, "orders") == list(range(40))
    with bradbury.Admin(new[0], **new[1]) as admin:
        offsets = admin.group_offsets("readers")
    assert offsets["orders", 0].offset == 3


@pytest.mark.long  # two clusters more
def test_a_side_that_lets_nobody_in_is_told_apart(old: Side, new: Side) -> None:
    wrong = {**old[1], "sasl_password": "wrong"}
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        bradbury.Migration(
            old[0], bootstrap_servers=new[0], source_security=wrong, **new[1]
        ).follow(continuous=False)
    with pytest.raises(AuthenticationFailed):  # the certificate of the other authority
        bradbury.Migration(
            old[0], bootstrap_servers=new[0], source_security=old[1], **old[1]
        ).follow(continuous=False)
    with bradbury.Admin(new[0], **new[1]) as admin:
        assert admin.list_topics() == []


@pytest.mark.long  # two clusters more
def test_the_command_takes_a_file_for_each_side(
    old: Side, new: Side, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(old, "orders", 40)
    both = (
        "--from", old[0], "--bootstrap", new[0],
        "--source-config", config_file(tmp_path / "old.properties", old[1]),
    )  # fmt: skip
    target = ("--client-config", config_file(tmp_path / "new.properties", new[1]))
    assert run([*target, "migrate", *both, "--once"]) == 0
    assert run([*target, "migrate", "verify", *both]) == 0
    assert run([*target, "migrate", "cut-over", *both]) == 0
    assert values(new, "orders") == list(range(40))
    shown = capfd.readouterr()
    assert PASSWORD not in shown.out + shown.err
