"""Would Java's assignors decide the same, from the very bytes that our members send?"""

import json
import random
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bradbury.clients.group.assignor import Assignment, withhold_owned
from bradbury.clients.group.assignors import ASSIGNORS
from bradbury.clients.group.consumer_protocol import (
    Member,
    encode_cooperative_data,
    encode_sticky_data,
    encode_subscription,
)
from bradbury.protocol.topic_partition import TopicPartition
from bradbury.tests.compatibility.support.kafka_jars import require_kafka, run_java

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).with_name("JavaAssignors.java")
TOPICS = ["a", "b", "c", "flights"]


def ask_java(asked: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One answer each; one Java machine for all of them."""
    require_kafka()
    lines = "\n".join(json.dumps(one) for one in asked)
    return [json.loads(line) for line in run_java(str(SOURCE), stdin=lines).stdout.splitlines()]


def subscription_of(member: Member) -> bytes:
    return encode_subscription(
        member.topics,
        member.owned,
        user_data=member.user_data,
        generation=member.generation,
        rack_id=member.rack_id,
    )


def question(strategy: str, members: Sequence[Member], counts: dict[str, int]) -> dict[str, Any]:
    return {
        "assignor": strategy,
        "counts": counts,
        "members": [
            {
                "id": member.member_id,
                "instance": member.instance_id,
                "subscription": b64encode(subscription_of(member)).decode(),
            }
            for member in members
        ],
    }


def answer_of(found: dict[str, Any]) -> Assignment:
    return {
        member_id: sorted(TopicPartition(topic, partition) for topic, partition in given)
        for member_id, given in found["assignment"].items()
    }


def draw_group(draw: random.Random, *, alike: bool) -> tuple[list[Member], dict[str, int]]:
    counts = {topic: draw.randrange(1, 13) for topic in TOPICS}
    everybody = draw.sample(TOPICS, draw.randrange(1, 5))
    members = []
    for number in draw.sample(range(20), draw.randrange(1, 9)):
        topics = everybody if alike else draw.sample(TOPICS, draw.randrange(1, 5))
        instance = f"i{draw.randrange(1000)}-{number}" if draw.random() < 0.3 else None
        members.append(Member(f"m{number}", tuple(topics), instance_id=instance))
    return members, counts


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_java_gives_everybody_the_same(strategy: str) -> None:
    draw = random.Random(strategy)
    groups = [draw_group(draw, alike=draw.random() < 0.5) for _ in range(200)]
    answers = ask_java([question(strategy, *group) for group in groups])
    for (members, counts), answer in zip(groups, answers, strict=True):
        ours = ASSIGNORS[strategy]().assign(members, counts)
        assert {one: sorted(given) for one, given in ours.items()} == answer_of(answer)


@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_java_is_as_even_and_as_sticky_and_reads_and_writes_the_same_bytes(strategy: str) -> None:
    draw = random.Random(strategy)
    groups = []
    for _ in range(200):
        members, counts = draw_group(draw, alike=True)
        had = ASSIGNORS[strategy]().assign(members, counts)
        stay = draw.sample(members, draw.randrange(1, len(members) + 1))
        reported = [_with_user_data(strategy, one, had[one.member_id]) for one in stay]
        new = [Member(f"n{number}", members[0].topics) for number in range(draw.randrange(4))]
        groups.append((reported + new, counts, had))
    answers = ask_java([question(strategy, members, counts) for members, counts, _ in groups])
    for (members, counts, had), answer in zip(groups, answers, strict=True):
        ours, theirs = ASSIGNORS[strategy]().assign(members, counts), answer_of(answer)
        if strategy == "cooperative-sticky":
            ours = withhold_owned(ours, members)
            # What moves is given in the rebalance after this; until then only its number is fixed.
            assert sum(map(len, ours.values())) == sum(map(len, theirs.values()))
        else:
            assert Counter(map(len, ours.values())) == Counter(map(len, theirs.values()))
        kept = [
            sum(len(set(had.get(one, ())) & set(given)) for one, given in found.items())
            for found in (ours, theirs)
        ]
        assert kept[0] == kept[1]
        for member in members:
            rewritten = answer["subscriptions"][member.member_id]
            assert b64decode(rewritten) == subscription_of(member)


def _with_user_data(strategy: str, member: Member, owned: list[TopicPartition]) -> Member:
    if strategy == "sticky":
        return replace(member, user_data=encode_sticky_data(owned, 4), generation=4, rack_id="r")
    return replace(member, owned=tuple(owned), generation=4, user_data=encode_cooperative_data(4))


def test_java_writes_the_same_user_data() -> None:
    owned = [["a", 0], ["a", 5], ["b", 2]]
    (answer,) = ask_java([{"sticky": owned, "generation": 7}])
    partitions = [TopicPartition(*one) for one in owned]
    assert b64decode(answer["sticky"]) == encode_sticky_data(partitions, 7)
    assert b64decode(answer["cooperative"]) == encode_cooperative_data(7)
