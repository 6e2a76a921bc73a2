"""Which quotas can be set, for whom, and who is told of which?"""

import math

import pytest

from bradbury.cluster.control.client_quota_control import AlterClientQuotas, QuotaChange
from bradbury.cluster.control.controller_request import DONE
from bradbury.cluster.metadata.concerned_nodes import concerned_nodes
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.quotas.quota_entity import entity_of
from bradbury.cluster.quotas.quota_filter import DEFAULT, EXACT, SPECIFIED, Component, QuotaFilter
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import InvalidRequest, KafkaError, UnsupportedVersion
from bradbury.tests.support.metadata import applied, cluster, decide

ALICE = entity_of({"user": "alice"})
PAIR = entity_of({"user": "alice", "client-id": "loader"})
EVERYBODY = entity_of({"user": None})
ADDRESS = entity_of({"ip": "10.0.0.7"})
RATE = {"producer_byte_rate": 1024.0}
IP_ALONE = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
OF_ADDRESSES = ": quotas of an address are connection_creation_rate"
OF_CLIENTS = (
    ": quotas of a user or client id are producer_byte_rate, consumer_byte_rate, "
    "request_percentage, controller_mutation_rate"
)
NO_IP_BESIDE = (
    "Invalid entity filter component combination. IP filter component should not be used with "
    "user or clientId filter component."
)


def asked(parts, **values: float | None) -> AlterClientQuotas:
    changes = tuple(QuotaChange(key, value) for key, value in values.items())
    return AlterClientQuotas(entries=((entity_of(parts), changes),))


def outcome(parts, image: MetadataImage | None = None, **values: float | None):
    records, (found,) = _decided(image or MetadataImage(), asked(parts, **values))
    return records, found


def _decided(image: MetadataImage, request: AlterClientQuotas):
    records, outcomes = decide(image, request)
    return records, tuple(outcomes.values())


def with_quotas(*parts) -> MetadataImage:
    image = cluster("a")
    for each in parts:
        key = "connection_creation_rate" if "ip" in each else "producer_byte_rate"
        image = applied(image, decide(image, asked(each, **{key: 1024.0}))[0])
    return image


def test_a_quota_is_set_changed_and_removed() -> None:
    image = with_quotas({"user": "alice"})
    assert image.client_quotas == {ALICE: RATE}
    records, done = outcome({"user": "alice"}, image, producer_byte_rate=2048.0)
    assert done == DONE
    image = applied(image, records)
    assert image.client_quotas == {ALICE: {"producer_byte_rate": 2048.0}}
    records, _ = outcome({"user": "alice"}, image, producer_byte_rate=None)
    assert applied(image, records).client_quotas == {}


def test_what_does_not_change_is_not_written() -> None:
    image = with_quotas({"user": "alice"})
    assert outcome({"user": "alice"}, image, producer_byte_rate=1024.0) == ([], DONE)
    assert outcome({"user": "alice"}, image, consumer_byte_rate=None) == ([], DONE)


def test_all_nodes_are_waited_for() -> None:
    image = cluster("a", "b")
    records, _ = outcome({"user": None}, image, request_percentage=50.0)
    assert concerned_nodes(records, image) == {1, 2}


def test_a_snapshot_has_them() -> None:
    image = with_quotas(
        {"user": "alice"},
        {"user": "alice", "client-id": "loader"},
        {"user": None},
        {"user": None, "client-id": None},
        {"client-id": "loader"},
        {"ip": None},
        {"ip": "10.0.0.7"},
    )
    assert len(image.client_quotas) == 7
    assert applied(MetadataImage(), image.to_records()).client_quotas == image.client_quotas


@pytest.mark.parametrize(
    ("parts", "values", "words"),
    [
        ({}, RATE, "Invalid empty client quota entity"),
        ({"group": "g"}, RATE, "Unhandled client quota entity type: group"),
        ({"user": ""}, RATE, "Empty user not supported"),
        (
            {"ip": "10.0.0.7", "user": "alice"},
            RATE,
            IP_ALONE,
        ),
        ({"ip": "nowhere"}, {}, "nowhere is not a valid IP or resolvable host."),
        ({"ip": "10.0.0.7"}, RATE, f"Invalid configuration key producer_byte_rate{OF_ADDRESSES}"),
        (
            {"user": "alice"},
            {"connection_creation_rate": 1.0},
            f"Invalid configuration key connection_creation_rate{OF_CLIENTS}",
        ),
        ({"user": "alice"}, {"x": 1.0}, f"Invalid configuration key x{OF_CLIENTS}"),
        (
            {"user": "alice"},
            {"producer_byte_rate": 0.0},
            "Quota producer_byte_rate must be greater than 0",
        ),
        (
            {"user": "alice"},
            {"request_percentage": math.nan},
            "Quota request_percentage must be greater than 0",
        ),
        (
            {"user": "alice"},
            {"consumer_byte_rate": 1.5},
            "consumer_byte_rate cannot be a fractional value.",
        ),
        (
            {"user": "alice"},
            {"producer_byte_rate": 2.0**64},
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            {"ip": None},
            {"connection_creation_rate": 2.0**32},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_refused_in_kafkas_words(parts, values, words) -> None:
    records, (code, message) = outcome(parts, **values)
    assert (records, code, message) == ([], ErrorCode.INVALID_REQUEST, words)


def test_percentages_and_mutations_may_be_fractions() -> None:
    _, done = outcome({"user": None}, request_percentage=0.5, controller_mutation_rate=0.1)
    assert done == DONE


def test_one_bad_quota_keeps_the_entitys_others_out_and_no_other_entity() -> None:
    request = AlterClientQuotas(
        entries=(
            (ALICE, (QuotaChange("producer_byte_rate", 1.0), QuotaChange("x", 1.0))),
            (PAIR, (QuotaChange("producer_byte_rate", 2.0),)),
        )
    )
    records, (refused, done) = _decided(MetadataImage(), request)
    assert refused.code == ErrorCode.INVALID_REQUEST
    assert done == DONE
    assert applied(MetadataImage(), records).client_quotas == {PAIR: {"producer_byte_rate": 2.0}}


def test_an_entity_or_a_key_that_is_named_twice_is_refused() -> None:
    once = (QuotaChange("producer_byte_rate", 1.0),)
    words = "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    for entries in (((ALICE, once), (ALICE, once)), ((ALICE, once * 2),)):
        _, (refused,) = _decided(MetadataImage(), AlterClientQuotas(entries=entries))
        assert refused == (ErrorCode.INVALID_REQUEST, words)


ALL = (
    {"user": "alice"},
    {"user": "bob"},
    {"user": None},
    {"user": "alice", "client-id": "loader"},
    {"user": "alice", "client-id": None},
    {"client-id": "loader"},
    {"ip": "10.0.0.7"},
)


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, ALL),
        ([], True, ()),
        ([("user", EXACT, "alice")], False, (ALL[0], ALL[3], ALL[4])),
        ([("user", EXACT, "alice")], True, (ALL[0],)),
        ([("user", DEFAULT, None)], False, (ALL[2],)),
        ([("user", SPECIFIED, None)], True, ALL[:3]),
        ([("user", SPECIFIED, None)], False, ALL[:5]),
        ([("user", SPECIFIED, None), ("client-id", SPECIFIED, None)], False, ALL[3:5]),
        ([("user", EXACT, "alice"), ("client-id", DEFAULT, None)], True, (ALL[4],)),
        ([("ip", SPECIFIED, None)], False, (ALL[6],)),
        ([("ip", EXACT, "10.0.0.8")], False, ()),
    ],
)
def test_described_by_exact_name_default_or_any(components, strict, found) -> None:
    asked_for = QuotaFilter((Component(*each) for each in components), strict=strict)
    answer = asked_for.find(with_quotas(*ALL).client_quotas)
    assert [dict(entity) for entity, _ in answer] == list(found)


@pytest.mark.parametrize(
    ("components", "error", "words"),
    [
        ([("", EXACT, "a")], InvalidRequest, "Invalid empty entity type."),
        (
            [("user", EXACT, "a"), ("user", DEFAULT, None)],
            InvalidRequest,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("group", EXACT, "a")], UnsupportedVersion, "Unsupported entity type group"),
        (
            [("user", EXACT, None)],
            InvalidRequest,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", DEFAULT, "a")],
            InvalidRequest,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", SPECIFIED, "a")],
            InvalidRequest,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 7, None)], InvalidRequest, "Unknown match type 7"),
        (
            [("user", DEFAULT, None), ("ip", DEFAULT, None)],
            InvalidRequest,
            NO_IP_BESIDE,
        ),
    ],
)
def test_questions_that_make_no_sense(components, error: type[KafkaError], words: str) -> None:
    with pytest.raises(error) as refused:
        QuotaFilter((Component(*each) for each in components), strict=False)
    assert str(refused.value) == words
