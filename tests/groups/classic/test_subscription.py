"""Does the coordinator read the topics of every client's metadata, and nothing but that from garbage?"""

import struct

import pytest
from hypothesis import given, strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from bradbury.groups.classic.consumer_subscription import subscribed_topics
from bradbury.tests.support.groups.group_driver import subscription

topics = st.lists(st.text(min_size=1, max_size=20), max_size=5, unique=True)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_metadata_that_kafka_python_writes(version: int) -> None:
    names = ["orders", "größen"]
    written = ConsumerProtocolSubscription(version=version, topics=names, user_data=b"mine")
    assert subscribed_topics(written.encode()) == frozenset(names)


@given(names=topics, rest=st.binary(max_size=40))
def test_whatever_follows_the_topics_is_left_alone(names: list[str], rest: bytes) -> None:
    assert subscribed_topics(subscription(*names) + rest) == frozenset(names)


@given(names=topics, cut=st.integers(1, 12))
def test_metadata_that_is_cut_off_in_its_topics_is_none(names: list[str], cut: int) -> None:
    whole = subscription(*names)[:-8]
    assert subscribed_topics(whole[:-cut]) is None or cut > len(whole)


@given(garbage=st.binary(max_size=60))
def test_garbage_is_topics_or_none(garbage: bytes) -> None:
    found = subscribed_topics(garbage)
    assert found is None or all(isinstance(name, str) for name in found)


def test_a_count_that_no_metadata_could_hold_costs_nothing() -> None:
    assert subscribed_topics(struct.pack(">hi", 0, 2**31 - 1) + bytes(10)) is None
