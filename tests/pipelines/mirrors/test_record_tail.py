"""What comes while everything was copied: it is waited for at the source, and is not another topic's."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import bradbury
from bradbury.pipelines.mirrors import record_copier
from bradbury.pipelines.mirrors.record_copier import RecordCopier
from tests.pipelines.mirrors.mirror_scene import Continuous, rows, send, values


@pytest.fixture(scope="module")
def source() -> Iterator[bradbury.LocalCluster]:
    with bradbury.local() as running:
        yield running


@pytest.fixture(params=[True, False], ids=["exactly-once", "at-least-once"])
def exactly_once(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def topic(source: bradbury.LocalCluster, request: pytest.FixtureRequest) -> str:
    name = f"tail-{abs(hash(request.node.name))}"
    with source.admin() as admin:
        admin.create_topic(name, 3)
    return name


def test_what_comes_needs_no_look(
    source: bradbury.LocalCluster,
    bootstrap: str,
    topic: str,
    exactly_once: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0
    original = RecordCopier.copy

    def counted(*arguments: object) -> bool:
        nonlocal looks
        looks += 1
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RecordCopier, "copy", counted)
    with Continuous(
        topic,
        source.bootstrap_servers,
        alias=topic,
        bootstrap_servers=bootstrap,
        exactly_once=exactly_once,
    ) as mirror:
        for start in range(0, 300, 30):
            send(source.bootstrap_servers, topic, range(start, start + 30))
            mirror.wait_for(start + 30)
    assert mirror.failure is None
    assert looks <= 2  # one may have come before the first records
    assert rows(bootstrap, f"{topic}.{topic}") == rows(source.bootstrap_servers, topic)


def test_a_topic_made_again_that_ends_where_the_former_one_did(
    source: bradbury.LocalCluster,
    bootstrap: str,
    topic: str,
    exactly_once: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its offsets it looks like the former one with a few records more."""
    monkeypatch.setattr(record_copier, "POSITIONS_SECONDS", 0.5)
    with (
        source.admin() as admin,
        Continuous(
            topic,
            source.bootstrap_servers,
            alias=topic,
            bootstrap_servers=bootstrap,
            exactly_once=exactly_once,
            fail_on_data_loss=False,
        ) as mirror,
    ):
        send(source.bootstrap_servers, topic, range(300))
        mirror.wait_for(300)
        admin.delete_topic(topic)
        admin.create_topic(topic, 3)
        send(source.bootstrap_servers, topic, range(300, 600))
        send(source.bootstrap_servers, topic, range(600, 630))
        deadline = time.monotonic() + 60
        while set(values(bootstrap, f"{topic}.{topic}")) != set(range(630)):
            assert time.monotonic() < deadline
            assert mirror.failure is None
            time.sleep(0.1)
    assert mirror.failure is None
    found = values(bootstrap, f"{topic}.{topic}")
    assert set(found) == set(range(630))
    if exactly_once:
        assert len(found) == 630
