"""How do settings change while a cluster runs, and which changes are refused?"""

import pytest
from hypothesis import given, strategies as st

from bradbury.cluster.control.config_control import (
    BROKER,
    TOPIC,
    AlterConfigs,
    ConfigChange,
    Operation,
    ResourceChanges,
)
from bradbury.cluster.control.controller_request import DONE
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.protocol.config_key import split_list
from bradbury.protocol.error_code import ErrorCode
from tests.support.metadata import applied, cluster, create, decide

SET, DELETE, APPEND, SUBTRACT = Operation


def with_topic(**configs: str) -> MetadataImage:
    image = cluster("a1", "b1")
    given = {name.replace("_", "."): value for name, value in configs.items()}
    return applied(image, create(image, "t", partitions=1, configs=given))


def change(image, resource_type: int, name: str, *changes, replaces: bool = False):
    """(the image afterwards, the outcome)."""
    resource = ResourceChanges(
        resource_type=resource_type,
        name=name,
        changes=tuple(ConfigChange(*each) for each in changes),
        replaces=replaces,
    )
    records, (outcome,) = decide(image, AlterConfigs(resources=(resource,)))
    return applied(image, records), outcome


def test_one_setting_changes_and_the_others_stay() -> None:
    image = with_topic(retention_ms="1", segment_bytes="100")
    image, outcome = change(image, TOPIC, "t", ("retention.ms", SET, "2"))
    assert outcome == DONE
    assert image.topics["t"].configs == {"retention.ms": "2", "segment.bytes": "100"}
    image, _ = change(image, TOPIC, "t", ("retention.ms", DELETE, None))
    assert image.topics["t"].configs == {"segment.bytes": "100"}


def test_replacing_unsets_what_is_not_named() -> None:
    image = with_topic(retention_ms="1", segment_bytes="100")
    image, _ = change(image, TOPIC, "t", ("retention.ms", SET, "3"), replaces=True)
    assert image.topics["t"].configs == {"retention.ms": "3"}
    image, _ = change(image, TOPIC, "t", replaces=True)
    assert image.topics["t"].configs == {}


def test_a_list_that_was_not_set_is_added_to_from_its_default() -> None:
    image, _ = change(with_topic(), TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert image.topics["t"].configs == {"cleanup.policy": "delete,compact"}
    image, _ = change(image, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    assert image.topics["t"].configs == {"cleanup.policy": "compact"}


def test_the_default_of_a_list_may_come_from_the_brokers() -> None:
    image, _ = change(with_topic(), BROKER, "", ("log.cleanup.policy", SET, "compact"))
    image, _ = change(image, TOPIC, "t", ("cleanup.policy", APPEND, "delete"))
    assert image.topics["t"].configs == {"cleanup.policy": "compact,delete"}


@given(
    present=st.sampled_from(["delete", "compact", "delete,compact", "compact,delete"]),
    words=st.lists(st.sampled_from(["delete", "compact"]), min_size=1, max_size=3),
    operation=st.sampled_from([APPEND, SUBTRACT]),
)
def test_lists_grow_and_shrink_like_sets_in_order(present, words, operation) -> None:
    image = with_topic(cleanup_policy=present)
    image, outcome = change(image, TOPIC, "t", ("cleanup.policy", operation, ",".join(words)))
    before, after = split_list(present), split_list(image.topics["t"].configs["cleanup.policy"])
    if operation == APPEND:
        assert after == before + [word for word in dict.fromkeys(words) if word not in before]
    else:
        assert outcome.code == 0  # also if nothing is left: then nothing is ever deleted
        assert after == [word for word in before if word not in words]


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        (("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("segment.bytes", SET, "big"), ErrorCode.INVALID_CONFIG),
        (("segment.bytes", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("segment.jitter.ms", SET, "6"), ErrorCode.INVALID_CONFIG),
        (("preallocate", SET, "true"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("no.such", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", APPEND, "archive"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_is_refused_changes_nothing_of_its_topic(changed, error) -> None:
    image = with_topic(segment_ms="5")
    after, outcome = change(image, TOPIC, "t", ("retention.ms", SET, "1"), changed)
    assert ErrorCode(outcome.code) is error
    assert after.topics["t"].configs == {"segment.ms": "5"}


def test_resources_of_one_request_do_not_depend_on_each_other() -> None:
    image = with_topic()
    good = ConfigChange("retention.ms", SET, "1")
    request = AlterConfigs(
        resources=(
            ResourceChanges(resource_type=TOPIC, name="gone", changes=(good,)),
            ResourceChanges(resource_type=TOPIC, name="t", changes=(good,)),
            ResourceChanges(resource_type=64, name="thing", changes=(good,)),
            ResourceChanges(resource_type=BROKER, name="77", changes=()),
            ResourceChanges(resource_type=BROKER, name="one", changes=()),
        )
    )
    records, outcomes = decide(image, request)
    assert applied(image, records).topics["t"].configs == {"retention.ms": "1"}
    assert [ErrorCode(outcome.code) for outcome in outcomes] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    ]


def test_a_setting_that_keeps_its_value_leaves_no_record() -> None:
    image = with_topic(retention_ms="1")
    change_nothing = ConfigChange("retention.ms", SET, "1")
    resource = ResourceChanges(resource_type=TOPIC, name="t", changes=(change_nothing,))
    assert decide(image, AlterConfigs(resources=(resource,))) == ([], (DONE,))


def test_brokers_are_set_all_or_one_by_one() -> None:
    image, _ = change(cluster("a1"), BROKER, "", ("log.segment.bytes", SET, "100"))
    image, _ = change(image, BROKER, "1", ("log.segment.bytes", SET, "200"))
    assert image.broker_configs == {
        "": {"log.segment.bytes": "100"},
        "1": {"log.segment.bytes": "200"},
    }
    image, _ = change(image, BROKER, "1", ("log.segment.bytes", DELETE, None))
    assert image.broker_configs == {"": {"log.segment.bytes": "100"}}


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("num.partitions", "4", ErrorCode.INVALID_REQUEST, "cannot be changed while brokers run"),
        ("log.retention.hours", "4", ErrorCode.INVALID_REQUEST, "cannot be changed while"),
        ("log.segment.bytes", "x", ErrorCode.INVALID_REQUEST, "must be an integer"),
        ("no.such", "1", ErrorCode.INVALID_CONFIG, "unknown broker config"),
        ("ssl.key.password", "1", ErrorCode.INVALID_REQUEST, "cannot be changed while"),
        ("ssl.cipher.suites", "x", ErrorCode.INVALID_CONFIG, "docs/security.md says what is"),
        ("retention.ms", "1", ErrorCode.INVALID_CONFIG, "unknown broker config"),
    ],
)
def test_what_brokers_cannot_change_while_they_run(name, value, error, text) -> None:
    image, outcome = change(cluster("a1"), BROKER, "", (name, SET, value))
    assert ErrorCode(outcome.code) is error
    assert text in outcome.message
    assert image.broker_configs == {}


def test_a_default_that_contradicts_a_topic_is_refused_and_the_topic_named() -> None:
    image = with_topic(segment_jitter_ms="1000")
    image, outcome = change(image, BROKER, "", ("log.roll.ms", SET, "10"))
    assert outcome.code == ErrorCode.INVALID_REQUEST
    assert "the settings of topic 't': segment.jitter.ms, 1000, is more" in outcome.message
    assert image.broker_configs == {}
