"""Two mirrors, one each way: does each record get across once, and is it told what does not?"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import bradbury
from bradbury.pipelines.mirrors import followed_topics, mirror_session
from bradbury.pipelines.mirrors.followed_topics import FollowedTopics
from bradbury.pipelines.mirrors.mirror_settings import MirrorFailed, MirrorProgress
from tests.pipelines.mirrors.mirror_scene import Continuous, send, values

SECONDS = 120


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_session, "TOPICS_SECONDS", 0.3)
    monkeypatch.setattr(followed_topics, "LEFT_OUT_SECONDS", 0.5)
    monkeypatch.setattr(followed_topics, "COLLISION_SECONDS", 3.0)


@pytest.fixture
def sides() -> Iterator[tuple[str, str]]:
    with bradbury.local() as here, bradbury.local() as there:
        yield here.bootstrap_servers, there.bootstrap_servers


def make(servers: str, topic: str) -> None:
    with bradbury.Admin(servers) as admin:
        admin.create_topic(topic, 3)


def topics_of(servers: str) -> set[str]:
    with bradbury.Admin(servers) as admin:
        return {name for name in admin.list_topics() if not name.endswith(".internal")}


class BothWays:
    """A continuous mirror each way, until the end of the block."""

    def __init__(self, sides: tuple[str, str], **options: Any) -> None:
        here, there = sides
        self.there = Continuous(".*", here, alias="here", bootstrap_servers=there, **options)
        self.here = Continuous(".*", there, alias="there", bootstrap_servers=here, **options)
        self._stack = ExitStack()

    @property
    def failures(self) -> list[Exception]:
        return [one.failure for one in (self.there, self.here) if one.failure is not None]

    def wait_for_failure(self) -> Exception:
        deadline = time.monotonic() + SECONDS
        while not self.failures:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return self.failures[0]

    def __enter__(self) -> "BothWays":
        self._stack.enter_context(self.there)
        self._stack.enter_context(self.here)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@pytest.fixture
def at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both say what they fill before one of them looks what the other one has said."""
    barrier = threading.Barrier(2)
    look = FollowedTopics._without_cycles
    turns: dict[FollowedTopics, int] = {}

    def together(topics: FollowedTopics, *arguments: Any) -> list[str]:
        turns[topics] = turns.get(topics, 0) + 1
        if turns[topics] <= 2:
            barrier.wait(SECONDS)
        left = look(topics, *arguments)
        if turns[topics] <= 2:
            barrier.wait(SECONDS)
        return left

    monkeypatch.setattr(FollowedTopics, "_without_cycles", together)


def test_with_the_policy_prefix_each_side_gets_what_the_other_one_has(
    sides: tuple[str, str],
) -> None:
    here, there = sides
    for servers, numbers in ((here, range(10)), (there, range(10, 20))):
        make(servers, "both")
        send(servers, "both", numbers)
    with BothWays(sides) as both:
        both.there.wait_for(10)
        both.here.wait_for(10)
        send(here, "both", range(20, 25))
        send(there, "both", range(25, 30))
        both.there.wait_for(15)
        both.here.wait_for(15)
    assert both.failures == []
    assert topics_of(here) == {"both", "there.both"}
    assert topics_of(there) == {"both", "here.both"}
    assert values(there, "here.both") == [*range(10), *range(20, 25)] == values(here, "both")
    assert values(here, "there.both") == [*range(10, 20), *range(25, 30)] == values(there, "both")


@pytest.mark.parametrize("rival", [None, "at_one_moment"])
def test_with_the_policy_identity_a_topic_that_both_sides_fill_is_refused(
    sides: tuple[str, str], rival: str | None, request: pytest.FixtureRequest
) -> None:
    if rival is not None:
        request.getfixturevalue(rival)
    here, there = sides
    for servers, numbers in ((here, range(10)), (there, range(10, 20))):
        make(servers, "both")
        send(servers, "both", numbers)
    with BothWays(sides, policy="identity") as both:
        error = both.wait_for_failure()
        goes_on = both.there if both.there.failure is None else both.here
        goes_on.wait_for(10)
    assert len(both.failures) == 1
    assert isinstance(error, MirrorFailed)
    assert "topic 'both'" in str(error)
    assert "policy prefix" in str(error)
    assert "--exclude" in str(error)
    assert sorted([len(values(here, "both")), len(values(there, "both"))]) == [10, 20]


class OneWay:
    """`topic` of here is in there, by a mirror that keeps its name; 30 records."""

    def __init__(self, sides: tuple[str, str], **options: Any) -> None:
        here, self.there = sides
        self.back: dict[str, Any] = {
            "source": self.there,
            "alias": "there",
            "bootstrap_servers": here,
            "policy": "identity",
        }
        make(here, "flights")
        send(here, "flights", range(30))
        bradbury.mirror(
            "flights",
            here,
            alias="here",
            policy="identity",
            bootstrap_servers=self.there,
            **options,
        )

    def go_back(self) -> MirrorProgress:
        return bradbury.mirror(".*", **self.back)


def test_records_that_come_later_to_a_topic_that_is_left_out_end_the_mirror(
    sides: tuple[str, str],
) -> None:
    one_way = OneWay(sides)
    here, there = sides
    with pytest.raises(MirrorFailed, match="cycle"):
        one_way.go_back()
    make(there, "arrivals")
    send(there, "arrivals", range(5))
    assert one_way.go_back().left_out == ("flights",)
    with Continuous(".*", there, alias="there", policy="identity", bootstrap_servers=here) as back:
        send(there, "arrivals", range(5, 10))
        back.wait_for(5)
        with bradbury.Producer(there, transactional_id="another") as producer:
            producer.begin()
            producer.send("flights", b"aborted", partition=0).result(60)
            producer.abort()
        send(there, "arrivals", range(10, 15))
        back.wait_for(10)
        assert back.failure is None
        send(there, "flights", range(30, 33))
        back.wait_for_its_end()
    assert isinstance(back.failure, MirrorFailed)
    assert "topic 'flights'" in str(back.failure)
    assert values(here, "flights") == list(range(30))
    assert values(here, "arrivals") == list(range(15))
    one = bradbury.mirror(".*", **one_way.back, exclude="flights")
    assert (one.records, one.left_out) == (0, ())


def test_what_was_sent_before_a_mirror_is_refused_too(sides: tuple[str, str]) -> None:
    _, there = sides
    make(there, "flights")
    send(there, "flights", range(100, 103))
    one_way = OneWay(sides)
    with pytest.raises(MirrorFailed, match="the first at offset 0 of partition"):
        one_way.go_back()


def test_of_a_mirror_without_transactions_it_cannot_be_told(sides: tuple[str, str]) -> None:
    """Its records may be there twice, and the first time in no position."""
    one_way = OneWay(sides, exactly_once=False)
    make(one_way.there, "arrivals")
    send(one_way.there, "flights", range(30, 33))
    assert one_way.go_back().left_out == ("flights",)


def test_a_topic_is_taken_in_when_nobody_fills_it_any_more(sides: tuple[str, str]) -> None:
    OneWay(sides)
    here, there = sides
    make(there, "arrivals")
    seen: list[tuple[str, ...]] = []
    with Continuous(
        ".*",
        there,
        alias="there",
        policy="identity",
        bootstrap_servers=here,
        watch=lambda progress: seen.append(progress.left_out),
    ) as back:
        send(there, "arrivals", range(5))
        back.wait_for(5)
        with bradbury.Admin(there) as admin:
            admin.delete_topic("mirror-offsets.here.internal")
        back.wait_for(35)
    assert back.failure is None
    assert seen[0] == ("flights",)
    assert seen[-1] == ()
