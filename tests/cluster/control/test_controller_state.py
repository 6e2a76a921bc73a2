"""What does the controller decide about nodes? Requests and an image in, records out."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.config_control import BROKER, TOPIC
from bradbury.cluster.control.controller_state import NodeRegistration, Sessions
from bradbury.cluster.control.partition_control import CreatePartitions, NewPartitions
from bradbury.cluster.control.topic_control import DeleteTopics, TopicKey
from bradbury.cluster.metadata.metadata_image import NO_LEADER, MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    PartitionRecord,
    RegisterNodeRecord,
    decode_metadata_record,
)
from bradbury.protocol.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    KafkaError,
    StaleBrokerEpoch,
)
from tests.support.metadata import (
    TOPIC_ID,
    Refused,
    applied,
    cluster,
    create,
    decide,
    one_setting,
    registration,
)


def test_nodes_get_ids_from_one_upward_and_keep_them() -> None:
    image = cluster("a1", "b1")
    assert sorted(image.nodes) == [1, 2]
    node_id, _ = controller_state.register_node(image, registration("a1", incarnation="b"))
    assert node_id == 1


def test_a_restarted_leader_leads_in_a_new_epoch() -> None:
    image = cluster("a1")
    image = applied(image, create(image, "t", partitions=2))
    _, records = controller_state.register_node(image, registration("a1", incarnation="b"))
    image = applied(image, records)
    assert [p.leader_epoch for p in image.topics["t"].partitions] == [1, 1]
    assert [p.leader for p in image.topics["t"].partitions] == [1, 1]
    with pytest.raises(StaleBrokerEpoch):
        controller_state.check_session(image, 1, "a")
    assert controller_state.check_session(image, 1, "b").node_id == 1


def test_a_silent_node_loses_its_leaderships_and_gets_them_back_with_its_heartbeats() -> None:
    image = cluster("a1", "b1")
    image = applied(image, create(image, "t", partitions=2))
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


def test_a_controller_that_stood_still_fences_nobody_for_what_it_could_not_hear() -> None:
    image = cluster("a1")
    sessions = Sessions(timeout_ms=9_000)
    for now_ms in range(0, 4_001, 500):
        sessions.on_contact(1, now_ms=now_ms - now_ms % 2_000)
        assert sessions.expired(image, now_ms=now_ms) == []
    assert sessions.expired(image, now_ms=64_000) == []
    for now_ms in range(64_500, 73_001, 500):
        assert sessions.expired(image, now_ms=now_ms) == []
    assert sessions.expired(image, now_ms=73_500) == [1], "a full session of silence since then"


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
        st.sampled_from(
            [
                *("node", "topic", "delete", "partitions", "config", "unset"),
                *("fence", "unfence", "restart", "ids"),
            ]
        ),
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
                configs = {"retention.ms": "1"}
                records = create(image, f"t{number}", partitions=2, configs=configs)
            elif command == "delete" and topics:
                key = TopicKey(data.draw(st.sampled_from(topics)))
                records = decide(image, DeleteTopics(topics=(key,)))[0]
            elif command == "partitions" and topics:
                name = data.draw(st.sampled_from(topics))
                count = len(image.topics[name].partitions) + 1
                more = CreatePartitions(topics=(NewPartitions(name, count),))
                records = decide(image, more)[0]
            elif command in ("config", "unset") and (topics or nodes):
                resource = data.draw(
                    st.sampled_from(
                        [(TOPIC, name) for name in topics]
                        + [(BROKER, ""), *((BROKER, str(node)) for node in nodes)]
                    )
                )
                records = decide(image, one_setting(*resource, unset=command == "unset"))[0]
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
        except Refused:
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


def test_a_directory_that_was_lost_is_replaced_by_an_empty_one_of_the_same_name() -> None:
    image = cluster("a1", "b1")
    node_id, records = controller_state.register_node(image, named("old"))
    image = applied(image, records)
    with pytest.raises(DuplicateBrokerRegistration, match="its session is not over"):
        controller_state.register_node(image, named("new"))
    image = applied(image, controller_state.fence_node(image, node_id, fenced=True))
    again, records = controller_state.register_node(image, named("new"))
    assert again == node_id
    image = applied(image, records)
    assert image.nodes[node_id].directory_id == "new"


def test_replicas_of_a_directory_that_an_empty_one_replaces_are_in_sync_nowhere() -> None:
    image = cluster("a1", "b1")
    node_id, records = controller_state.register_node(image, named("old"))
    image = applied(image, records)
    image = applied(image, create(image, "t", assignments={0: (node_id, 1)}))
    image = applied(image, controller_state.fence_node(image, node_id, fenced=True))
    for directory in ("new", "old"):  # the old one comes back, but was another one meanwhile
        _, records = controller_state.register_node(image, named(directory))
        image = applied(image, records)
        [partition] = image.topics["t"].partitions
        assert (partition.isr, partition.elr, partition.leader) == ((1,), (), 1)
        image = applied(image, controller_state.fence_node(image, node_id, fenced=True))


def named(directory: str) -> NodeRegistration:
    return replace(registration(directory), machine="c", name="partitions/c/0")
