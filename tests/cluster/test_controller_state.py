"""What does the controller decide? Requests and an image in, records out; nothing else happens."""

from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from bradbury.cluster import controller_state
from bradbury.cluster.controller_state import NewTopic, NodeRegistration, Sessions
from bradbury.cluster.metadata_image import NO_LEADER, MetadataImage
from bradbury.cluster.metadata_records import (
    ClusterRecord,
    PartitionRecord,
    RegisterNodeRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from bradbury.protocol.errors import (
    BrokerIdNotRegistered,
    InconsistentClusterId,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicException,
    KafkaError,
    StaleBrokerEpoch,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

TOPIC_ID = UUID(int=42)


def registration(name: str, *, roles: tuple[str, ...] = ("partition",), incarnation: str = "a"):
    return NodeRegistration(
        directory_id=name,
        incarnation=incarnation,
        roles=roles,
        host="127.0.0.1",
        port=9092,
        rack=name[:1],
    )


def applied(image: MetadataImage, records) -> MetadataImage:
    """Every record goes through its bytes, as on the voters' disks."""
    decoded = [decode_metadata_record(encode_metadata_record(record)) for record in records]
    assert decoded == list(records)
    return image.apply(decoded, offset=image.offset + len(decoded))


def cluster(*names: str) -> MetadataImage:
    image = applied(MetadataImage(), [ClusterRecord(cluster_id="c", voters=("v",))])
    for name in names:
        _, records = controller_state.register_node(image, registration(name))
        image = applied(image, records)
    return image


def create(image: MetadataImage, topic: NewTopic, *, start: int = 0, topic_id: UUID = TOPIC_ID):
    return controller_state.create_topic(
        image,
        topic,
        topic_id=topic_id,
        start=start,
        default_partitions=3,
        default_replication_factor=1,
    )


def test_nodes_get_ids_from_one_upward_and_keep_them() -> None:
    image = cluster("a1", "b1")
    assert sorted(image.nodes) == [1, 2]
    node_id, _ = controller_state.register_node(image, registration("a1", incarnation="b"))
    assert node_id == 1


def test_partitions_alternate_over_racks_and_nodes() -> None:
    image = cluster("a1", "a2", "b1", "b2")
    image = applied(image, create(image, NewTopic(name="t", partitions=8)))
    leaders = [partition.leader for partition in image.topics["t"].partitions]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3, 4, 4]
    racks = [image.nodes[leader].rack for leader in leaders]
    assert all(left != right for left, right in zip(racks, racks[1:], strict=False))


def test_a_topic_without_numbers_gets_the_brokers_defaults() -> None:
    image = cluster("a1")
    image = applied(image, create(image, NewTopic(name="t")))
    assert len(image.topics["t"].partitions) == 3
    assert image.topics["t"].partitions[0].isr == (1,)


def test_an_assignment_is_followed() -> None:
    image = cluster("a1", "b1")
    topic = NewTopic(name="t", assignments={0: (2,), 1: (1,), 2: (2,)})
    image = applied(image, create(image, topic))
    assert [partition.leader for partition in image.topics["t"].partitions] == [2, 1, 2]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic(name=""), InvalidTopicException),
        (NewTopic(name=".."), InvalidTopicException),
        (NewTopic(name="a" * 250), InvalidTopicException),
        (NewTopic(name="white space"), InvalidTopicException),
        (NewTopic(name="__cluster_metadata"), InvalidTopicException),
        (NewTopic(name="exists_already"), InvalidTopicException),
        (NewTopic(name="exists.already"), TopicAlreadyExists),
        (NewTopic(name="t", partitions=0), InvalidPartitions),
        (NewTopic(name="t", partitions=-2), InvalidPartitions),
        (NewTopic(name="t", partitions=100_001), InvalidPartitions),
        (NewTopic(name="t", replication_factor=0), InvalidReplicationFactor),
        (NewTopic(name="t", replication_factor=2), InvalidReplicationFactor),
        (NewTopic(name="t", assignments={1: (1,)}), InvalidReplicaAssignment),
        (NewTopic(name="t", assignments={0: ()}), InvalidReplicaAssignment),
        (NewTopic(name="t", assignments={0: (77,)}), InvalidReplicaAssignment),
        (NewTopic(name="t", assignments={0: (1, 2)}), InvalidReplicationFactor),
    ],
)
def test_a_topic_that_cannot_be_creates_nothing(topic: NewTopic, error: type[KafkaError]) -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, NewTopic(name="exists.already")))
    with pytest.raises(error):
        create(image, topic, topic_id=UUID(int=43))


def test_without_a_node_for_partitions_there_is_no_topic() -> None:
    with pytest.raises(InvalidReplicationFactor, match="no node"):
        create(cluster(), NewTopic(name="t"))


def test_topics_are_deleted_by_name_or_id() -> None:
    image = cluster("a1")
    image = applied(image, create(image, NewTopic(name="t")))
    by_name = controller_state.delete_topic(image, name="t")
    assert by_name == controller_state.delete_topic(image, topic_id=TOPIC_ID)
    image = applied(image, by_name)
    assert "t" not in image.topics
    assert image.topic_by_id(TOPIC_ID) is None
    with pytest.raises(UnknownTopicOrPartition):
        controller_state.delete_topic(image, name="t")
    with pytest.raises(UnknownTopicId):
        controller_state.delete_topic(image, topic_id=TOPIC_ID)


def test_a_restarted_leader_leads_in_a_new_epoch() -> None:
    image = cluster("a1")
    image = applied(image, create(image, NewTopic(name="t", partitions=2)))
    _, records = controller_state.register_node(image, registration("a1", incarnation="b"))
    image = applied(image, records)
    assert [p.leader_epoch for p in image.topics["t"].partitions] == [1, 1]
    assert [p.leader for p in image.topics["t"].partitions] == [1, 1]
    with pytest.raises(StaleBrokerEpoch):
        controller_state.check_session(image, 1, "a")
    assert controller_state.check_session(image, 1, "b").node_id == 1


def test_a_silent_node_loses_the_lead_and_gets_it_back_when_heard_again() -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, NewTopic(name="t", partitions=2)))
    image = applied(image, controller_state.fence_node(image, 1, fenced=True))
    assert [p.leader for p in image.topics["t"].partitions] == [NO_LEADER, 2]
    assert [node.node_id for node in image.live_nodes()] == [2]
    assert controller_state.fence_node(image, 1, fenced=True) == []
    image = applied(image, controller_state.fence_node(image, 1, fenced=False))
    assert [p.leader for p in image.topics["t"].partitions] == [1, 2]
    assert image.topics["t"].partitions[0].leader_epoch == 2


def test_a_directory_of_another_cluster_is_refused() -> None:
    image = cluster("a1")
    foreign = NodeRegistration(
        directory_id="x",
        incarnation="a",
        roles=("partition",),
        host="h",
        port=1,
        rack=None,
        cluster_id="other",
    )
    with pytest.raises(InconsistentClusterId, match="belongs to cluster other"):
        controller_state.register_node(image, foreign)


def test_a_directory_that_is_newer_than_the_metadata_is_refused() -> None:
    image = cluster("a1")
    unknown = NodeRegistration(
        directory_id="x",
        incarnation="a",
        roles=("partition",),
        host="h",
        port=1,
        rack=None,
        node_id=9,
        cluster_id="c",
    )
    with pytest.raises(BrokerIdNotRegistered, match="older than the data"):
        controller_state.register_node(image, unknown)


def test_a_fresh_controller_fences_nobody_before_a_full_session() -> None:
    image = cluster("a1")
    sessions = Sessions(timeout_ms=100)
    assert sessions.expired(image, now_ms=5_000) == []
    assert sessions.expired(image, now_ms=5_100) == []
    assert sessions.expired(image, now_ms=5_101) == [1]
    sessions.on_contact(1, now_ms=5_101)
    assert sessions.expired(image, now_ms=5_150) == []


def test_producer_ids_are_never_given_twice() -> None:
    image = cluster("a1")
    blocks = []
    for _ in range(3):
        first, records = controller_state.allocate_producer_ids(image)
        blocks.append(range(first, first + controller_state.PRODUCER_ID_BLOCK))
        image = applied(image, records)
    everything = [number for block in blocks for number in block]
    assert len(set(everything)) == len(everything)


@given(
    commands=st.lists(
        st.sampled_from(["node", "topic", "delete", "fence", "unfence", "restart", "ids"]),
        max_size=25,
    ),
    data=st.data(),
)
def test_an_image_rebuilt_from_its_own_records_is_the_same(commands, data) -> None:
    """to_records() is what a joining node is sent instead of the whole log."""
    image = cluster()
    for number, command in enumerate(commands):
        nodes, topics = sorted(image.nodes), sorted(image.topics)
        try:
            if command == "node":
                records = controller_state.register_node(image, registration(f"n{number}"))[1]
            elif command == "topic":
                topic = NewTopic(name=f"t{number}", partitions=2, configs={"retention.ms": "1"})
                records = create(image, topic, topic_id=UUID(int=number))
            elif command == "delete" and topics:
                records = controller_state.delete_topic(
                    image, name=data.draw(st.sampled_from(topics))
                )
            elif command in ("fence", "unfence") and nodes:
                node_id = data.draw(st.sampled_from(nodes))
                records = controller_state.fence_node(image, node_id, fenced=command == "fence")
            elif command == "restart" and nodes:
                directory = image.nodes[data.draw(st.sampled_from(nodes))].directory_id
                records = controller_state.register_node(
                    image, registration(directory, incarnation=f"i{number}")
                )[1]
            else:
                records = controller_state.allocate_producer_ids(image)[1]
        except InvalidReplicationFactor:
            assert not image.live_nodes("partition")
            continue
        before = image
        image = applied(image, records)
        for name, topic_image in image.topics.items():
            for index, partition in enumerate(topic_image.partitions):
                old = before.partition(name, index)
                if old is not None and before.topics[name].topic_id == topic_image.topic_id:
                    assert partition.leader_epoch >= old.leader_epoch
                assert partition.leader in (NO_LEADER, *partition.isr)
    rebuilt = MetadataImage().apply(image.to_records(), offset=image.offset)
    assert rebuilt == image


def test_records_of_a_removed_topic_that_come_late_change_nothing() -> None:
    image = cluster("a1")
    late = PartitionRecord(
        topic_id=str(TOPIC_ID),
        partition=0,
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=3,
        partition_epoch=3,
    )
    assert applied(image, [late]).topics == {}


def test_a_record_of_unknown_type_is_an_error_and_an_unknown_field_is_not() -> None:
    with pytest.raises(KafkaError):
        decode_metadata_record(b'{"type":"FutureRecord"}')
    with pytest.raises(KafkaError):
        decode_metadata_record(b"\xff not json")
    record = decode_metadata_record(
        b'{"type":"RegisterNodeRecord","node_id":1,"directory_id":"d","incarnation":"i",'
        b'"roles":["broker"],"host":"h","port":1,"rack":null,"epoch":0,"from_the_future":7}'
    )
    assert isinstance(record, RegisterNodeRecord)
    assert record.roles == ("broker",)
