"""Which topics can be made and deleted, where do their partitions go, and what can be added?"""

from dataclasses import replace
from uuid import UUID

import pytest

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.controller_request import DONE
from bradbury.cluster.control.partition_control import (
    PREFERRED,
    UNCLEAN,
    CreatePartitions,
    ElectLeaders,
    NewPartitions,
)
from bradbury.cluster.control.topic_control import (
    CreateTopics,
    DeleteTopics,
    TopicKey,
    TopicToCreate,
)
from bradbury.cluster.metadata.metadata_image import NO_LEADER
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import InvalidRequest, PolicyViolation
from tests.support.metadata import TOPIC_ID, Refused, applied, cluster, create, decide


def topic(name: str, **options) -> TopicToCreate:
    options.setdefault("topic_id", TOPIC_ID)
    return TopicToCreate(name=name, **options)


def code_of(image, request) -> ErrorCode:
    _, (outcome,) = decide(image, request)
    return ErrorCode(getattr(outcome, "outcome", outcome).code)


def test_partitions_alternate_over_racks_and_nodes() -> None:
    image = cluster("a1", "a2", "b1", "b2")
    image = applied(image, create(image, "t", partitions=8))
    leaders = [partition.leader for partition in image.topics["t"].partitions]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3, 4, 4]
    racks = [image.nodes[leader].rack for leader in leaders]
    assert all(left != right for left, right in zip(racks, racks[1:], strict=False))


def test_topics_of_one_partition_are_spread_too_also_within_one_request() -> None:
    image = cluster("a1", "b1")
    topics = tuple(topic(f"t{n}", topic_id=UUID(int=n), partitions=1) for n in range(4))
    records, _ = decide(image, CreateTopics(topics=topics))
    image = applied(image, records)
    leaders = [image.topics[f"t{n}"].partitions[0].leader for n in range(4)]
    assert sorted(leaders) == [1, 1, 2, 2]


def test_a_topic_without_numbers_gets_the_brokers_defaults() -> None:
    image = cluster("a1")
    image = applied(image, create(image, "t"))
    assert len(image.topics["t"].partitions) == 3
    assert image.topics["t"].partitions[0].isr == (1,)


def test_an_assignment_is_followed() -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, "t", assignments={0: (2,), 1: (1,), 2: (2,)}))
    assert [partition.leader for partition in image.topics["t"].partitions] == [2, 1, 2]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("white space"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__cluster_metadata"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("exists_already"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("exists.already"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", assignments={1: (1,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={0: ()}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={0: (1, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={0: (77,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignments={0: (1, 2), 1: (1,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"segment.bytes": "x"}), ErrorCode.INVALID_CONFIG),
        (topic("t", configs={"preallocate": "true"}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_creates_nothing_and_hinders_no_other(
    wanted: TopicToCreate, error: ErrorCode
) -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, "exists.already"))
    other = topic("other", topic_id=UUID(int=7))
    records, (refused, made) = decide(image, CreateTopics(topics=(wanted, other)))
    assert ErrorCode(refused.outcome.code) is error
    assert made.outcome == DONE
    assert set(applied(image, records).topics) == {"exists.already", "other"}


def test_two_topics_of_one_request_cannot_collide_either() -> None:
    image = cluster("a1")
    both = (topic("a.b"), topic("a_b", topic_id=UUID(int=2)))
    _, (first, second) = decide(image, CreateTopics(topics=both))
    assert first.outcome == DONE
    assert second.outcome.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_request_that_is_repeated_made_the_topic_it_finds() -> None:
    image = cluster("a1")
    request = CreateTopics(topics=(topic("t", partitions=2),))
    records, answer = decide(image, request)
    again, same = decide(applied(image, records), request)
    assert (again, same) == ([], answer)


def test_without_a_node_for_partitions_there_is_no_topic() -> None:
    with pytest.raises(Refused, match="no node"):
        create(cluster(), "t")


def test_topics_are_deleted_by_name_or_id() -> None:
    image = cluster("a1")
    image = applied(image, create(image, "t", topic_id=TOPIC_ID))
    by_name, _ = decide(image, DeleteTopics(topics=(TopicKey("t"),)))
    by_id, (outcome,) = decide(image, DeleteTopics(topics=(TopicKey(None, TOPIC_ID),)))
    assert by_name == by_id
    assert (outcome.name, outcome.topic_id) == ("t", TOPIC_ID)
    image = applied(image, by_name)
    assert "t" not in image.topics
    assert image.topic_by_id(TOPIC_ID) is None
    gone = code_of(image, DeleteTopics(topics=(TopicKey("t"),)))
    assert gone is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    gone = code_of(image, DeleteTopics(topics=(TopicKey(None, TOPIC_ID),)))
    assert gone is ErrorCode.UNKNOWN_TOPIC_ID
    lost = DeleteTopics(topics=(TopicKey("t"),), is_repeated=True)
    assert code_of(image, lost) is ErrorCode.NONE


def test_a_topic_named_by_name_and_by_id_is_deleted_once() -> None:
    image = cluster("a1")
    image = applied(image, create(image, "t", topic_id=TOPIC_ID))
    both = (TopicKey("t"), TopicKey(None, TOPIC_ID))
    records, (first, second) = decide(image, DeleteTopics(topics=both))
    assert len(records) == 1
    assert (first.outcome, second.outcome.code) == (DONE, ErrorCode.INVALID_REQUEST)


def test_the_topic_of_committed_offsets_is_neither_deleted_nor_given_partitions() -> None:
    image = cluster("a1")
    records, _ = decide(image, CreateTopics(topics=(topic("t", partitions=1),)))
    image = applied(image, records)
    offsets = replace(image.topics["t"], name="__consumer_offsets")
    image = replace(
        image,
        topics={"__consumer_offsets": offsets},
        topic_names={TOPIC_ID: "__consumer_offsets"},
    )
    for key in (TopicKey("__consumer_offsets"), TopicKey(None, TOPIC_ID)):
        assert code_of(image, DeleteTopics(topics=(key,))) is ErrorCode.INVALID_REQUEST
    more = CreatePartitions(topics=(NewPartitions("__consumer_offsets", 5),))
    assert code_of(image, more) is ErrorCode.INVALID_PARTITIONS


def test_partitions_that_are_added_go_on_where_the_others_end() -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, "t", partitions=1))
    before = image.topics["t"].partitions
    records, outcomes = decide(image, CreatePartitions(topics=(NewPartitions("t", 5),)))
    image = applied(image, records)
    assert outcomes == (DONE,)
    assert image.topics["t"].partitions[:1] == before
    leaders = [partition.leader for partition in image.topics["t"].partitions]
    assert sorted(leaders[1:]) == [1, 1, 2, 2]


def test_an_assignment_of_added_partitions_is_followed() -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, "t", partitions=1))
    wanted = NewPartitions("t", 3, ((2,), (2,)))
    records, _ = decide(image, CreatePartitions(topics=(wanted,)))
    added = applied(image, records).topics["t"].partitions[1:]
    assert [partition.replicas for partition in added] == [(2,), (2,)]


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("none", 9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 4, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, ((9,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, ((1, 2),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added(wanted: NewPartitions, error: ErrorCode) -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, "t", partitions=2))
    request = CreatePartitions(topics=(wanted,))
    assert code_of(image, request) is error
    assert decide(image, request)[0] == []


def test_adding_that_is_repeated_finds_what_it_added() -> None:
    image = cluster("a1")
    image = applied(image, create(image, "t", partitions=2))
    lost = CreatePartitions(topics=(NewPartitions("t", 2),), is_repeated=True)
    assert decide(image, lost) == ([], (DONE,))


@pytest.mark.parametrize(
    ("election_type", "without_leader"),
    [
        (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_one_replica_leads_or_nobody_does(election_type: int, without_leader: ErrorCode) -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, "t", partitions=2))
    image = applied(image, controller_state.fence_node(image, 1, fenced=True))
    leaders = [partition.leader for partition in image.topics["t"].partitions]
    lost = leaders.index(NO_LEADER)
    asked = ElectLeaders(election_type=election_type, partitions=(("t", (lost, 1 - lost, 2)),))
    _, ((name, partitions),) = decide(image, asked)
    assert name == "t"
    assert [ErrorCode(each.outcome.code) for each in partitions] == [
        without_leader,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    _, ((_, everywhere),) = decide(
        image, ElectLeaders(election_type=election_type, partitions=None)
    )
    assert [each.partition for each in everywhere] == [lost]


def test_there_is_no_third_kind_of_election() -> None:
    with pytest.raises(InvalidRequest):
        decide(cluster("a1"), ElectLeaders(election_type=2, partitions=None))


def test_more_than_ten_thousand_partitions_are_too_many_for_one_request() -> None:
    for wanted in (
        [topic("a", partitions=10_001)],
        [topic("a", partitions=6_000), topic("b", partitions=4_001)],
    ):
        with pytest.raises(PolicyViolation, match="make 10000 at a time"):
            decide(cluster("a1"), CreateTopics(topics=tuple(wanted)))
    other = topic("b", partitions=4_000, topic_id=UUID(int=2))
    made = CreateTopics(topics=(topic("a", partitions=6_000), other))
    records, outcomes = decide(cluster("a1"), made)
    assert [each.partitions for each in outcomes] == [6_000, 4_000]
    image = applied(cluster("a1"), records)
    for wanted in (
        [NewPartitions(topic="a", total=16_001)],
        [NewPartitions(topic="a", total=12_000), NewPartitions(topic="b", total=8_001)],
    ):
        with pytest.raises(PolicyViolation):
            decide(image, CreatePartitions(topics=tuple(wanted)))
    more = CreatePartitions(topics=(NewPartitions(topic="a", total=16_000),))
    assert len(decide(image, more)[0]) == 10_000
