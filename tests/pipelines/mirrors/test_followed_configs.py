"""Do topics of the target get the configs that are changed in the source, and only those?"""

import time
from collections.abc import Callable
from typing import Any

import pytest

import bradbury
from bradbury.pipelines.mirrors import mirror_session
from bradbury.protocol.errors import TopicAuthorizationFailed
from tests.pipelines.mirrors.mirror_scene import Continuous, send


def configs(servers: str, topic: str, *names: str) -> list[str | None]:
    with bradbury.Admin(servers) as admin:
        found = admin.describe_configs(topic)
    return [found[name].value for name in names]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def alter(servers: str, topic: str, changes: dict[str, str], *unset: str) -> None:
    with bradbury.Admin(servers) as admin:
        admin.alter_configs(topic, changes, unset=unset)


def test_each_run_sets_what_the_source_has_meanwhile(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str
) -> None:
    here = f"{alias}.{topic}"
    options: dict[str, Any] = {"alias": alias, "bootstrap_servers": bootstrap}
    bradbury.mirror(topic, source.bootstrap_servers, **options)
    alter(
        source.bootstrap_servers,
        topic,
        {"retention.ms": "7200000", "min.insync.replicas": "2", "segment.bytes": "2000000"},
    )
    alter(bootstrap, here, {"retention.bytes": "5000", "segment.bytes": "3000000"})
    names = ("retention.ms", "segment.bytes", "retention.bytes", "min.insync.replicas")
    before = configs(bootstrap, here, *names)
    bradbury.mirror(topic, source.bootstrap_servers, **options, sync_configs_interval_s=0)
    assert configs(bootstrap, here, *names) == before == ["86400000", "3000000", "5000", "1"]
    bradbury.mirror(topic, source.bootstrap_servers, **options)
    assert configs(bootstrap, here, *names) == ["7200000", "2000000", "5000", "1"]


def test_a_mirror_that_runs_follows_changes(
    source: bradbury.LocalCluster,
    bootstrap: str,
    topic: str,
    alias: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirror_session, "TOPICS_SECONDS", 0.05)
    there, here = source.bootstrap_servers, f"{alias}.{topic}"
    settings: dict[str, Any] = {"alias": alias, "bootstrap_servers": bootstrap}
    send(there, topic, range(3))
    with Continuous(topic, there, **settings, sync_configs_interval_s=0.05) as running:
        running.wait_for(3)
        alter(there, topic, {"retention.ms": "7200000", "max.message.bytes": "70000"})
        wait_until(lambda: configs(bootstrap, here, "retention.ms") == ["7200000"])
        alter(bootstrap, here, {"max.message.bytes": "80000"})
        wait_until(lambda: configs(bootstrap, here, "max.message.bytes") == ["70000"])
        alter(there, topic, {}, "retention.ms")
        wait_until(lambda: configs(bootstrap, here, "retention.ms") == ["604800000"])
        assert running.failure is None


def test_what_the_target_refuses_does_not_end_the_mirror(
    source: bradbury.LocalCluster,
    bootstrap: str,
    topic: str,
    alias: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    there = source.bootstrap_servers
    options: dict[str, Any] = {"alias": alias, "bootstrap_servers": bootstrap}
    bradbury.mirror(topic, there, **options)
    alter(there, topic, {"retention.ms": "7200000"})
    send(there, topic, range(5))

    def refuse(*_: object, **__: object) -> None:
        raise TopicAuthorizationFailed("not for you")

    monkeypatch.setattr(bradbury.Admin, "alter_configs", refuse)
    assert bradbury.mirror(topic, there, **options).records == 5
    assert f"configs of topic {alias}.{topic} were not synced: not for you" in caplog.text
