"""What is made of damaged metadata: what is known, what is found, and what neither says?"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from bradbury.cluster.metadata.metadata_image import NO_LEADER, MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EpochRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterNodeRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from bradbury.cluster.metadata.metadata_recovery import (
    FoundNode,
    FoundPartition,
    KnownMetadata,
    NewLog,
    RecoveredMetadata,
    recover_metadata,
)
from bradbury.cluster.metadata.user_records import DelegationTokenRecord
from bradbury.protocol.security.acl_binding import AclBinding

FLIGHTS, GATES = UUID(int=1), UUID(int=2)
NEW = NewLog(cluster_id="c", voters=("v",), epoch=9, offset=5_000)
NODES = (FoundNode(1, ("d1",)), FoundNode(2, ("d2",)))


def node(node_id: int) -> RegisterNodeRecord:
    return RegisterNodeRecord(
        node_id=node_id,
        directory_id=f"d{node_id}",
        incarnation="i",
        roles=("partition",),
        host="h",
        port=1,
        rack=None,
        epoch=10 + node_id,
    )


def partition(topic_id: UUID, index: int, replicas: tuple[int, ...]) -> PartitionRecord:
    return PartitionRecord(
        topic_id=str(topic_id),
        partition=index,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=4,
        partition_epoch=7,
    )


def found(topic: str, index: int, topic_id: UUID | None, **more: int) -> FoundPartition:
    values = {"node_id": 1, "leader_epoch": 4, "end_offset": 10, **more}
    return FoundPartition(topic, index, topic_id, **values)


def recover(
    records: list[MetadataRecord], partitions: list[FoundPartition], *, is_whole: bool = False
) -> RecoveredMetadata:
    known = KnownMetadata()
    known.apply(records)
    return recover_metadata(
        known,
        partitions,
        NODES,
        NEW,
        is_whole=is_whole,
        highest_producer_id=77,
        internal_configs=lambda name: {"cleanup.policy": "compact"} if name[0] == "_" else None,
    )


def test_without_any_record_a_topic_is_what_its_directories_are() -> None:
    image, notes = recover(
        [],
        [
            found("flights", 0, FLIGHTS, end_offset=10),
            found("flights", 0, FLIGHTS, node_id=2, end_offset=8),
            found("__consumer_offsets", 0, GATES),
        ],
    )
    flights = image.topics["flights"]
    assert flights.topic_id == FLIGHTS
    [state] = flights.partitions
    # Who has less is not in sync; who has all leads as soon as it is there, in a newer epoch.
    assert (state.replicas, state.isr, state.leader) == ((1, 2), (1,), NO_LEADER)
    assert state.leader_epoch == 5
    assert flights.configs == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert image.topics["__consumer_offsets"].configs == {"cleanup.policy": "compact"}
    assert [each for each in notes if "settings of topic flights are not known" in each]
    assert set(image.nodes) == {1, 2}
    assert all(each.fenced for each in image.nodes.values())
    assert image.next_producer_id > 77
    assert (image.epoch, image.offset, image.voters) == (9, 5_000, ("v",))


def test_what_is_known_stays_and_epochs_only_grow() -> None:
    records = [
        node(1),
        node(3),
        TopicRecord(topic_id=str(FLIGHTS), name="flights"),
        partition(FLIGHTS, 0, (1, 3)),
    ]
    image, notes = recover(records, [found("flights", 0, FLIGHTS, leader_epoch=6)], is_whole=True)
    [state] = image.topics["flights"].partitions
    assert (state.replicas, state.isr, state.leader_epoch) == ((1, 3), (1, 3), 7)
    assert state.partition_epoch == 8
    assert image.nodes[1].epoch == 11
    assert image.topics["flights"].configs == {}
    assert notes == []


def test_a_partition_without_a_directory_or_a_record_begins_again_and_is_named() -> None:
    image, notes = recover([], [found("flights", 2, FLIGHTS)])
    assert len(image.topics["flights"].partitions) == 3
    assert [each for each in notes if each.startswith("flights-0 was found nowhere")]


def test_a_topic_that_only_records_know_was_deleted_in_the_part_that_is_lost() -> None:
    records = [
        node(1),
        TopicRecord(topic_id=str(FLIGHTS), name="flights"),
        partition(FLIGHTS, 0, (1,)),
        TopicRecord(topic_id=str(GATES), name="gates"),
        partition(GATES, 0, (5,)),
    ]
    image, notes = recover(records, [])
    assert set(image.topics) == {"gates"}  # on a node that nobody has looked at
    assert [each for each in notes if "topic flights has no directory here" in each]


def test_of_two_topics_of_one_name_the_one_that_is_there_stays() -> None:
    records = [TopicRecord(topic_id=str(FLIGHTS), name="t"), partition(FLIGHTS, 0, (1,))]
    image, _ = recover(records, [found("t", 0, GATES)])
    assert image.topics["t"].topic_id == GATES
    image, notes = recover(records, [found("t", 0, GATES), found("t", 0, FLIGHTS, node_id=2)])
    assert image.topics["t"].topic_id == FLIGHTS
    assert [each for each in notes if f"{GATES} is left out" in each]


def test_a_directory_without_its_topic_id_is_its_siblings() -> None:
    image, _ = recover([], [found("t", 0, FLIGHTS), found("t", 1, None)])
    assert len(image.topics["t"].partitions) == 2
    image, notes = recover([], [found("t", 1, None)])
    assert image.topics == {}
    assert [each for each in notes if "does not say its topic id" in each]


def test_the_image_is_one_that_a_snapshot_can_hold() -> None:
    image, _ = recover([node(1)], [found("flights", 1, FLIGHTS)])
    again = MetadataImage().apply(image.to_records(), offset=image.offset)
    assert replace(again, epoch=image.epoch) == image


def test_a_topic_that_was_removed_leaves_nothing_to_the_next_one_of_its_name() -> None:
    known = KnownMetadata()
    known.apply(
        [
            TopicRecord(topic_id=str(FLIGHTS), name="flights"),
            partition(FLIGHTS, 0, (1,)),
            ConfigRecord(resource="topic", name="flights", key="retention.ms", value="1"),
            RemoveTopicRecord(topic_id=str(FLIGHTS)),
            RemoveTopicRecord(topic_id=str(GATES)),  # its own record is lost
            TopicRecord(topic_id=str(GATES), name="flights"),
            partition(GATES, 0, (1,)),
        ]
    )
    assert known.topics == {GATES: "flights"}
    assert list(known.partitions) == [(GATES, 0)]
    assert not known.configs.get(("topic", "flights"))


def test_settings_of_a_topic_are_never_those_of_another_one_of_its_name() -> None:
    """Of a former one, whose end is in what is lost; retention would delete by them."""
    old = [
        TopicRecord(topic_id=str(FLIGHTS), name="flights"),
        partition(FLIGHTS, 0, (1,)),
        ConfigRecord(resource="topic", name="flights", key="retention.ms", value="1"),
    ]
    image, _ = recover(old, [found("flights", 0, GATES)])
    assert image.topics["flights"].topic_id == GATES
    assert image.topics["flights"].configs == {"retention.ms": "-1", "retention.bytes": "-1"}
    new = [TopicRecord(topic_id=str(GATES), name="flights"), partition(GATES, 0, (1,))]
    image, _ = recover([*old, *new], [found("flights", 0, GATES), found("flights", 1, FLIGHTS)])
    assert image.topics["flights"].topic_id == GATES
    assert image.topics["flights"].configs == {}


def test_of_two_topics_of_one_name_the_known_one_stays_where_nothing_is_lost() -> None:
    """The other one was deleted while its node was away."""
    records = [TopicRecord(topic_id=str(FLIGHTS), name="t"), partition(FLIGHTS, 0, (1,))]
    image, notes = recover(records, [found("t", 0, GATES)], is_whole=True)
    assert image.topics["t"].topic_id == FLIGHTS
    assert [each for each in notes if f"{GATES} is left out" in each]


def test_producer_ids_that_a_log_has_are_not_given_out_again() -> None:
    image, _ = recover([], [], is_whole=True)
    assert image.next_producer_id == 78


def test_rules_of_access_credentials_tokens_and_quotas_stay_and_are_to_be_looked_through() -> None:
    rule = AccessControlEntryRecord.of("a1", AclBinding.of_numbers(2, "t", 3, "User:a", "*", 3, 2))
    quota = ClientQuotaRecord(entity=("user", "a"), key="producer_byte_rate", value=1e6)
    records = [
        EpochRecord(epoch=1, owner="c"),
        rule,
        replace(rule, id="a2", principal="User:b"),
        RemoveAccessControlEntryRecord(id="a2"),
        quota,
        replace(quota, key="consumer_byte_rate"),
        replace(quota, key="consumer_byte_rate", value=None),
        DelegationTokenRecord(
            token_id="t", owner="User:a", requester="User:a", renewers=(), issue_timestamp=1,
            max_timestamp=2, expiry_timestamp=2,
        ),
    ]  # fmt: skip
    expected = MetadataImage().apply(records, offset=0)
    for is_whole in (True, False):
        image, notes = recover(records, [], is_whole=is_whole)
        assert image.acls == expected.acls
        assert image.client_quotas == expected.client_quotas
        assert image.delegation_tokens == expected.delegation_tokens
        said = [each for each in notes if "may not be the latest" in each]
        assert bool(said) is not is_whole
    _, notes = recover([], [])
    assert [each for each in notes if "are lost, if there were any" in each]
    _, notes = recover([EpochRecord(epoch=1, owner="c")], [])
    assert [each for each in notes if "may not be the latest" in each], "the only ones may be lost"
