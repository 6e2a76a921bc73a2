"""Mirrors without transactions: nothing is missing, and what is there twice is said when and why."""

from __future__ import annotations

from typing import Any

import pytest

import bradbury
from bradbury.pipelines.mirrors import record_copier
from bradbury.protocol.errors import ProducerFenced
from bradbury.tests.support.killed_program import kill_at
from tests.pipelines.mirrors.mirror_scene import Continuous, rows, send, values

PROGRAM = """
import sys
import bradbury

topic, source, alias, target = sys.argv[1:]
bradbury.mirror(
    topic,
    source,
    alias=alias,
    bootstrap_servers=target,
    exactly_once=False,
    commit_records=500,
    on_progress=lambda progress: print(progress.records, flush=True),
)
print("done", flush=True)
"""


@pytest.fixture
def options(bootstrap: str, alias: str) -> dict[str, Any]:
    return {"alias": alias, "bootstrap_servers": bootstrap, "exactly_once": False}


def test_its_records_are_of_no_transaction_and_the_next_one_adds_what_is_new(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str, options: dict[str, Any]
) -> None:
    send(source.bootstrap_servers, topic, range(3_000))
    first = bradbury.mirror(topic, source.bootstrap_servers, **options, commit_records=200)
    assert (first.records, first.behind) == (3_000, 0)
    assert bradbury.mirror(topic, source.bootstrap_servers, **options).records == 0
    send(source.bootstrap_servers, topic, range(3_000, 3_100))
    assert bradbury.mirror(topic, source.bootstrap_servers, **options).records == 100
    assert rows(bootstrap, f"{alias}.{topic}") == rows(source.bootstrap_servers, topic)
    with bradbury.Admin(bootstrap) as admin:  # no markers: each offset is a record
        ends = admin.list_offsets([(f"{alias}.{topic}", partition) for partition in range(3)])
    assert sum(one.offset for one in ends.values()) == 3_100


def test_with_and_without_transactions_go_on_where_the_other_was(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str, options: dict[str, Any]
) -> None:
    for numbers, exactly_once in ((range(30), True), (range(30, 70), False), (range(70, 90), True)):
        send(source.bootstrap_servers, topic, numbers)
        chosen = options | {"exactly_once": exactly_once}
        assert bradbury.mirror(topic, source.bootstrap_servers, **chosen).records == len(numbers)
    assert values(bootstrap, f"{alias}.{topic}") == list(range(90))


def test_one_that_is_stopped_has_said_how_far_it_is(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str, options: dict[str, Any]
) -> None:
    with Continuous(topic, source.bootstrap_servers, **options) as mirror:
        for start in range(0, 300, 100):
            send(source.bootstrap_servers, topic, range(start, start + 100))
            mirror.wait_for(start + 100)
    assert mirror.failure is None
    assert bradbury.mirror(topic, source.bootstrap_servers, **options).records == 0
    assert rows(bootstrap, f"{alias}.{topic}") == rows(source.bootstrap_servers, topic)


def test_killed_again_and_again_nothing_is_missing(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str
) -> None:
    """What was copied since it last said how far it is comes again, and in its order."""
    send(source.bootstrap_servers, topic, range(20_000), batch_size=2_000)
    arguments = [topic, source.bootstrap_servers, alias, bootstrap]
    assert kill_at(PROGRAM, arguments, (3, 6, 1_000)) == 2
    seen: dict[tuple[int, Any], tuple[Any, ...]] = {}
    for row in rows(bootstrap, f"{alias}.{topic}"):
        seen.setdefault((row[0], row[3]), row)
    assert list(seen.values()) == rows(source.bootstrap_servers, topic)


def test_a_second_mirror_of_the_alias_ends_the_first_when_that_says_how_far_it_is(
    source: bradbury.LocalCluster,
    bootstrap: str,
    topic: str,
    alias: str,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_copier, "POSITIONS_SECONDS", 0.0)
    send(source.bootstrap_servers, topic, range(3_000), batch_size=2_000)

    def another(_: object) -> None:
        bradbury.mirror(topic, source.bootstrap_servers, **options)

    with pytest.raises(ProducerFenced, match="another mirror of this alias"):
        bradbury.mirror(
            topic, source.bootstrap_servers, **options, commit_records=100, on_progress=another
        )
    assert set(values(bootstrap, f"{alias}.{topic}")) == set(range(3_000))


def test_a_topic_made_again_is_copied_whole_behind_the_former_one(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, alias: str, options: dict[str, Any]
) -> None:
    """What was not said of the former one is not said of the new one."""
    chosen = options | {"fail_on_data_loss": False}
    with (
        source.admin() as admin,
        Continuous(topic, source.bootstrap_servers, **chosen) as mirror,
    ):
        send(source.bootstrap_servers, topic, range(300))
        mirror.wait_for(300)
        admin.delete_topic(topic)
        admin.create_topic(topic, 3)
        send(source.bootstrap_servers, topic, range(300, 360))
        mirror.wait_for(360)
    assert mirror.failure is None
    assert bradbury.mirror(topic, source.bootstrap_servers, **chosen).records == 0
    assert values(bootstrap, f"{alias}.{topic}") == list(range(360))
