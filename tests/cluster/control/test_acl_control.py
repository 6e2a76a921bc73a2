"""ACLs: made, refused, found and removed."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from bradbury.cluster.control.access import acl_control
from bradbury.cluster.control.access.acl_control import AclToCreate, CreateAcls, DeleteAcls
from bradbury.cluster.metadata.concerned_nodes import concerned_nodes
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import PolicyViolation
from bradbury.protocol.security.acl_binding import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from bradbury.tests.support.metadata import RULES, applied, cluster

READ = AclBinding(
    ResourceType.TOPIC,
    "flights",
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)


def create(image: MetadataImage, *bindings: AclBinding, first_id: int = 0):
    request = CreateAcls(
        acls=tuple(
            AclToCreate(acl_id=str(number), binding=binding)
            for number, binding in enumerate(bindings, first_id)
        )
    )
    records, outcomes = request.decide(image, RULES)
    return applied(image, records), [outcome.code for outcome in outcomes]


def test_a_rule_is_there_once_however_often_it_is_made() -> None:
    image, codes = create(cluster("a"), READ, READ)
    image, again = create(image, READ, first_id=7)
    assert codes + again == [0, 0, 0]
    assert list(image.acls.values()) == [READ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"resource_type": ResourceType.ANY}, "resourceType ANY"),
        ({"resource_type": ResourceType.of(99)}, "resourceType UNKNOWN"),
        ({"pattern": PatternType.MATCH}, "patternType MATCH"),
        ({"operation": AclOperation.ANY}, "operation ANY"),
        ({"operation": AclOperation.of(77)}, "operation UNKNOWN"),
        ({"permission": AclPermission.ANY}, "permissionType ANY"),
        ({"name": ""}, "should not be empty"),
        ({"resource_type": ResourceType.CLUSTER}, "kafka-cluster"),
        ({"principal": "alice"}, "no colon"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_and_the_others_are_made(
    change: dict[str, object], words: str
) -> None:
    request = CreateAcls(
        acls=(
            AclToCreate(acl_id="1", binding=READ._replace(**change)),
            AclToCreate(acl_id="2", binding=READ),
        )
    )
    records, (refused, made) = request.decide(cluster("a"), RULES)
    assert refused.code == ErrorCode.INVALID_REQUEST
    assert words in refused.message
    assert made.code == ErrorCode.NONE
    assert [record.id for record in records] == ["2"]


def test_filters_remove_what_they_match_once_and_say_all_of_it() -> None:
    other = READ._replace(principal="User:bob")
    image, _ = create(cluster("a"), READ, other)
    request = DeleteAcls(
        filters=(
            AclFilter(principal="User:alice"),
            AclFilter(resource_type=ResourceType.TOPIC),
            AclFilter(principal="User:nobody"),
            AclFilter(operation=AclOperation.UNKNOWN),
        )
    )
    records, answers = request.decide(image, RULES)
    assert [(outcome.code, set(found)) for outcome, found in answers] == [
        (0, {READ}),
        (0, {READ, other}),
        (0, set()),
        (ErrorCode.INVALID_REQUEST, set()),
    ]
    assert len(records) == 2
    assert applied(image, records).acls == {}


def test_a_request_makes_and_removes_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    image, _ = create(cluster("a"), *(READ._replace(name=str(number)) for number in range(4)))
    monkeypatch.setattr(acl_control, "MAX_RECORDS", 3)
    with pytest.raises(PolicyViolation):
        create(image, *(READ._replace(name=f"x{number}") for number in range(4)))
    records, (every, one) = DeleteAcls(filters=(AclFilter(), AclFilter(name="1"))).decide(
        image, RULES
    )
    assert every[0].code == ErrorCode.POLICY_VIOLATION
    assert one[0].code == ErrorCode.NONE
    assert len(records) == 1


def test_a_snapshot_has_the_rules() -> None:
    image, _ = create(cluster("a"), READ, READ._replace(name="x", pattern=PatternType.PREFIXED))
    assert applied(MetadataImage(), image.to_records()).acls == image.acls


def test_who_makes_a_rule_waits_until_every_node_goes_by_it() -> None:
    image = cluster("a", "b")
    records, _ = CreateAcls(acls=(AclToCreate(acl_id="1", binding=READ),)).decide(image, RULES)
    assert concerned_nodes(records, image) == {1, 2}


@given(
    st.sampled_from(list(PatternType)),
    st.none() | st.text("ab*", max_size=3),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.text("ab*", min_size=1, max_size=3),
)
def test_a_filter_of_names(
    pattern: PatternType, name: str | None, of_rule: PatternType, named: str
) -> None:
    binding = READ._replace(pattern=of_rule, name=named)
    is_pattern = pattern in (PatternType.ANY, PatternType.MATCH, of_rule)
    if name is None:
        expected = is_pattern
    elif pattern == PatternType.MATCH:
        expected = (
            name.startswith(named) if of_rule == PatternType.PREFIXED else named in (name, "*")
        )
    else:
        expected = is_pattern and name == named
    assert AclFilter(name=name, pattern=pattern).matches(binding) == expected
