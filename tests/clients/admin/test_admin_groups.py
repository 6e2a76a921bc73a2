"""Can groups be listed, described, measured, moved and ended from outside?"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition as Partition
from confluent_kafka.admin import AdminClient

import bradbury
from bradbury.clients.admin.group_offsets_admin import CommittedOffset
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import (
    ConnectionFailed,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    RequestTimedOut,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from bradbury.protocol.messages.api_versions import ApiVersionsRequest
from bradbury.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from bradbury.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from bradbury.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from bradbury.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from bradbury.tests.support.wire.scripted_broker import HANG_UP, ScriptedBroker

NewTopic = Callable[..., str]
_numbers = count(1)


@pytest.fixture
def group() -> str:
    return f"admin-group-{next(_numbers)}"


@contextmanager
def member(bootstrap: str, group: str, topic: str, **settings: object) -> Iterator[Consumer]:
    """A librdkafka consumer that has partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.subscribe([topic])
    try:
        while not consumer.assignment():
            consumer.poll(0.1)
        yield consumer
    finally:
        consumer.close()


def fill(bootstrap: str, topic: str, timestamps: dict[int, list[int]]) -> None:
    with bradbury.Producer(bootstrap) as producer:
        for partition, times in timestamps.items():
            for timestamp in times:
                producer.send(topic, b"x", partition=partition, timestamp_ms=timestamp).result()


def test_a_group_is_listed_with_its_state(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    with member(bootstrap, group, new_topic()):
        (found,) = [one for one in admin.list_groups() if one.group_id == group]
        assert (found.protocol_type, found.state, found.type) == ("consumer", "Stable", "classic")
        assert found in admin.list_groups(states=["STABLE"], types=["Classic"])
        assert found not in admin.list_groups(states=["Empty"])
        assert found not in admin.list_groups(types=["consumer"])


def test_a_description_is_what_another_client_sees(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(3)
    with member(bootstrap, group, topic, **{"client.id": "me", "group.instance.id": "one"}):
        (mine,) = admin.describe_groups([group])
        their_admin = AdminClient({"bootstrap.servers": bootstrap})
        other = their_admin.describe_consumer_groups([group])[group].result(60)
    assert mine.state == "Stable"
    assert mine.protocol == other.partition_assignor == "range"
    assert str(mine.coordinator) == f"{other.coordinator.host}:{other.coordinator.port}"
    (one,) = mine.members
    (same,) = other.members
    assert (one.member_id, one.client_id, one.host) == (same.member_id, "me", same.host)
    assert one.instance_id == same.group_instance_id == "one"
    assert one.topics == (topic,)
    assert one.assignment == tuple((topic, number) for number in range(3))


def test_a_group_that_is_not_there_is_an_error_that_says_so(
    admin: bradbury.Admin, group: str
) -> None:
    for ask in (
        lambda: admin.describe_groups([group]),
        lambda: admin.delete_groups([group]),
        lambda: admin.lag(group),
        lambda: admin.delete_group_offsets(group, [("any", 0)]),
        lambda: admin.remove_members(group),
    ):
        with pytest.raises(GroupIdNotFound, match=rf"'{group}' does not exist; .*groups list"):
            ask()
    assert admin.group_offsets(group) == {}


def test_offsets_are_set_read_and_forgotten(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(3)
    wanted = {(topic, 0): 5, (topic, 2): CommittedOffset(7, leader_epoch=0, metadata="a note")}
    admin.alter_group_offsets(group, wanted)
    assert admin.group_offsets(group) == {
        (topic, 0): CommittedOffset(5),
        (topic, 2): CommittedOffset(7, 0, "a note"),
    }
    their_admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [ConsumerGroupTopicPartitions(group)]
    found = their_admin.list_consumer_group_offsets(asked)[group].result(60).topic_partitions
    assert {(one.partition, one.offset) for one in found} == {(0, 5), (2, 7)}
    admin.delete_group_offsets(group, [(topic, 0), (topic, 1)])
    assert list(admin.group_offsets(group)) == [(topic, 2)]
    admin.delete_groups([group])
    assert admin.group_offsets(group) == {}


def test_offsets_that_cannot_be_are_refused(
    admin: bradbury.Admin, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    with pytest.raises(UnknownTopicOrPartition, match=f"{topic}-1: there is no such partition"):
        admin.alter_group_offsets(group, {(topic, 1): 0})
    with pytest.raises(ValueError, match="below 0"):
        admin.alter_group_offsets(group, {(topic, 0): -1})
    with pytest.raises(OffsetMetadataTooLarge):
        admin.alter_group_offsets(group, {(topic, 0): CommittedOffset(0, metadata="x" * 5000)})


def test_a_group_with_members_is_left_alone(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic, other = new_topic(), new_topic()
    with member(bootstrap, group, topic) as consumer:
        consumer.commit(
            offsets=[Partition(topic, 0, 3), Partition(other, 0, 1)], asynchronous=False
        )
        with pytest.raises(NonEmptyGroup, match="has members; stop them"):
            admin.alter_group_offsets(group, {(topic, 0): 0})
        with pytest.raises(NonEmptyGroup, match="has members; stop them"):
            admin.delete_groups([group])
        with pytest.raises(GroupSubscribedToTopic, match="a live member"):
            admin.delete_group_offsets(group, [(topic, 0)])
        admin.delete_group_offsets(group, [(other, 0)])
        assert admin.group_offsets(group) == {(topic, 0): CommittedOffset(3)}
    admin.delete_groups([group])


def test_the_first_refusal_is_raised_after_all_groups_were_tried(
    admin: bradbury.Admin, new_topic: NewTopic, group: str
) -> None:
    admin.alter_group_offsets(group, {(new_topic(), 0): 1})
    with pytest.raises(GroupIdNotFound, match="'absent'"):
        admin.delete_groups(["absent", group])
    assert group not in {one.group_id for one in admin.list_groups()}


def test_members_are_sent_away_by_instance_by_id_or_all(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    left_behind = {"group.instance.id": "gone", "session.timeout.ms": 60_000}
    with member(bootstrap, group, topic, **left_behind):
        pass  # a static member does not leave when it closes
    (one,) = admin.describe_groups([group])[0].members
    with pytest.raises(UnknownMemberId, match="member 'nobody'"):
        admin.remove_members(group, instance_ids=["nobody"])
    assert admin.remove_members(group, instance_ids=["gone"], reason="its host is lost") == ["gone"]
    assert admin.describe_groups([group])[0].members == ()
    assert admin.remove_members(group) == []
    with member(bootstrap, group, topic, **left_behind):
        pass
    assert admin.remove_members(group) == [one.instance_id]
    with member(bootstrap, group, topic):
        (dynamic,) = admin.describe_groups([group])[0].members
        assert admin.remove_members(group, member_ids=[dynamic.member_id]) == [dynamic.member_id]


def test_lag_is_in_records_and_by_the_time_of_the_first_unread_one(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(4)
    fill(bootstrap, topic, {0: [1_000, 2_000, 3_000], 1: [5_000], 2: [7_000, 8_000]})
    admin.alter_group_offsets(group, {(topic, 0): 1, (topic, 1): 1, (topic, 2): 0, (topic, 3): 0})
    found = admin.lag(group)
    assert [(one.partition, one.lag, one.first_unread_timestamp) for one in found] == [
        (0, 2, 2_000),
        (1, 0, None),
        (2, 2, 7_000),
        (3, 0, None),
    ]
    assert [one.age_ms(10_000) for one in found] == [8_000, 0, 3_000, 0]
    assert (found.records, len(found), found[1].lag_s) == (4, 4, 0)
    assert found.seconds == found[0].lag_s == (found[0].looked_at_ms - 2_000) / 1000
    assert admin.lag(group, times=False).seconds is None
    assert [one.lag for one in admin.group_lag(group)] == [one.lag for one in found]
    assert [one.age_ms(10_000) for one in admin.lag(group, times=False)] == [None, 0, None, 0]


def test_the_first_unread_record_may_lie_inside_a_large_compressed_batch(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(3)
    value = bytes(range(256)) * 200
    with bradbury.Producer(bootstrap, compression_type="zstd", linger_ms=200) as producer:
        for number in range(15):
            for partition in range(3):
                producer.send(topic, value, partition=partition, timestamp_ms=1_000 + number)
    admin.alter_group_offsets(group, {(topic, number): 7 for number in range(3)})
    found = admin.lag(group)
    assert [one.first_unread_timestamp for one in found] == [1_007] * 3


def test_batches_larger_than_the_request_are_fetched_one_after_the_other(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(4)
    with bradbury.Producer(bootstrap) as producer:
        for partition in range(4):
            producer.send(topic, b"x" * 100_000, partition=partition, timestamp_ms=5_000)
    admin.alter_group_offsets(group, {(topic, number): 0 for number in range(4)})
    assert [one.first_unread_timestamp for one in admin.lag(group)] == [5_000] * 4


def test_lag_of_deleted_records_and_of_topics_that_are_gone(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic, gone = new_topic(), new_topic()
    fill(bootstrap, topic, {0: [1_000, 2_000, 3_000]})
    admin.alter_group_offsets(group, {(topic, 0): 0, (gone, 0): 0})
    admin.delete_records({(topic, 0): 2})
    admin.delete_topic(gone)
    found = {one.topic: one for one in admin.lag(group)}
    assert (found[topic].lag, found[topic].first_unread_timestamp) == (3, 3_000)
    assert found[topic].log_start_offset == 2
    if gone in found:  # the coordinator may have forgotten it with its topic
        assert (found[gone].lag, found[gone].log_end_offset) == (None, None)


@pytest.mark.slow
@pytest.mark.usefixtures("unknown_soon")
def test_a_topic_that_this_client_still_knows_may_be_gone(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic, gone = new_topic(), new_topic()
    with member(bootstrap, group, gone):
        admin.list_offsets([(topic, 0), (gone, 0)])  # so it knows where they are led
        with bradbury.Admin(bootstrap) as other:
            other.delete_topic(gone)
        (found,) = admin.lag(group)  # the member goes on having it assigned, for a while
        assert (found.topic, found.log_end_offset) == (gone, None)
        with pytest.raises(UnknownTopicOrPartition, match=gone):
            admin.list_offsets([(topic, 0), (gone, 0)])


def test_a_member_shows_beside_what_it_reads(
    admin: bradbury.Admin, bootstrap: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    with member(bootstrap, group, topic, **{"client.id": "reader"}):
        lag = admin.lag(group)
    assert (len(lag), lag.records, lag.seconds) == (1, None, None), "nothing is committed"
    (found,) = lag
    assert found.member is not None
    assert found.member.client_id == "reader"
    assert (found.committed, found.lag, found.age_ms(0)) == (None, None, None)


SPOKEN = [
    ApiVersionsRequest,
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    MetadataRequest,
]


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A coordinator of every group, of an offsets topic with one partition."""
    with ScriptedBroker({"__consumer_offsets": 1}, SPOKEN) as broker:

        def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            return FindCoordinatorResponse(
                coordinators=[
                    Coordinator(key=key, node_id=0, host="127.0.0.1", port=broker.port)
                    for key in request.coordinator_keys
                ]
            )

        broker.on(FindCoordinatorRequest, find)
        yield broker


def test_a_deletion_whose_answer_is_lost_is_not_repeated(broker: ScriptedBroker) -> None:
    broker.on(DeleteGroupsRequest, HANG_UP)
    with bradbury.Admin(broker.address, timeout_ms=5_000) as admin:
        with pytest.raises(ConnectionFailed, match="may have been made"):
            admin.delete_groups(["g"])
    assert len(broker.wait_for(DeleteGroupsRequest)) == 1


def test_a_coordinator_that_moves_is_looked_up_again(broker: ScriptedBroker) -> None:
    def answer(code: int) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeletableGroupResult("g", code)])

    moved = answer(ErrorCode.NOT_COORDINATOR)
    loading = answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    broker.on(DeleteGroupsRequest, moved, loading, answer(0))
    with bradbury.Admin(broker.address, timeout_ms=5_000) as admin:
        admin.delete_groups(["g"])
    assert len(broker.wait_for(FindCoordinatorRequest)) == 3


def test_a_coordinator_that_never_gets_ready_is_reported_with_its_reason(
    broker: ScriptedBroker,
) -> None:
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    broker.on(ListGroupsRequest, loading)
    with bradbury.Admin(broker.address, timeout_ms=500) as admin:
        with pytest.raises(RequestTimedOut):
            admin.list_groups()


def test_no_list_is_given_while_a_coordinator_is_missing(broker: ScriptedBroker) -> None:
    """Its groups would seem to be gone."""
    here = MetadataResponsePartition(partition_index=0, leader_id=0)
    nowhere = MetadataResponsePartition(partition_index=0, leader_id=-1)
    described = [
        MetadataResponse(
            brokers=[MetadataResponseBroker(0, "127.0.0.1", broker.port)],
            topics=[MetadataResponseTopic(name="__consumer_offsets", partitions=[partition])],
        )
        for partition in (nowhere, nowhere, here)
    ]
    broker.on(MetadataRequest, *described)
    broker.on(ListGroupsRequest, ListGroupsResponse(), ListGroupsResponse(), OF_ONE_GROUP)
    with bradbury.Admin(broker.address, timeout_ms=5_000) as admin:
        assert [one.group_id for one in admin.list_groups()] == ["late"]


OF_ONE_GROUP = ListGroupsResponse(groups=[ListedGroup("late", "consumer", "Stable", "classic")])
