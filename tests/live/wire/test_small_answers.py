"""Answers that other people's programs noticed: codes, refusals and what clients guess from them."""

from uuid import UUID

import pytest

from bradbury.cluster.metadata.features import FEATURES
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from bradbury.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from bradbury.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from bradbury.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from bradbury.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from bradbury.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from bradbury.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from bradbury.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from bradbury.protocol.records.records import encode_records, iterate_records
from bradbury.tests.support.wire.raw_client import RawClient
from bradbury.tests.support.wire.raw_topics import make_topic

NOW = 1_700_000_000_000


def fetch(topic: str, *, isolation_level: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rules_of_access_are_answered_as_of_a_broker_without_an_authorizer(
    client: RawClient, version: int
) -> None:
    reported = client.call(DescribeAclsRequest(), DescribeAclsResponse, version)
    expected = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    assert (reported.error_code, reported.error_message) == expected
    create = CreateAclsRequest(creations=[AclCreation(), AclCreation()])
    made = client.call(create, CreateAclsResponse, version).results
    assert [(each.error_code, each.error_message) for each in made] == [expected] * 2
    delete = DeleteAclsRequest(filters=[DeleteAclsFilter()])
    gone = client.call(delete, DeleteAclsResponse, version).filter_results
    assert [(each.error_code, each.error_message) for each in gone] == [expected]


def test_sasl_on_a_listener_in_plain_text_is_refused_and_the_connection_stays(
    client: RawClient,
) -> None:
    for version in (0, 1):
        shaken = client.call(
            SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, version
        )
        assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    for version in (0, 1, 2):
        answer = client.call(
            SaslAuthenticateRequest(auth_bytes=b"x"), SaslAuthenticateResponse, version
        )
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.error_message


@pytest.mark.parametrize("version", [3, 4])
def test_features_are_listed_and_keep_their_level(client: RawClient, version: int) -> None:
    named = ApiVersionsRequest(client_software_name="raw", client_software_version="1.0")
    reported = client.call(named, ApiVersionsResponse, version)
    assert reported.finalized_features_epoch >= 0
    levels = {each.name: each.max_version_level for each in reported.finalized_features}
    assert levels == dict(FEATURES)
    ranges = {
        each.name: (each.min_version, each.max_version) for each in reported.supported_features
    }
    assert ranges.pop("transaction.version", None) == ((0, 2) if version >= 4 else None)
    assert all(each == (levels[name], levels[name]) for name, each in ranges.items())
    for feature, level, code in (
        ("metadata.version", levels["metadata.version"], ErrorCode.NONE),
        ("metadata.version", 7, ErrorCode.INVALID_UPDATE_VERSION),
        ("transaction.version", 2, ErrorCode.NONE),
        ("transaction.version", 1, ErrorCode.INVALID_UPDATE_VERSION),
        ("transaction.version", 0, ErrorCode.INVALID_UPDATE_VERSION),
        ("group.version", 1, ErrorCode.INVALID_UPDATE_VERSION),
    ):
        update = FeatureUpdateKey(feature=feature, max_version_level=level)
        request = UpdateFeaturesRequest(feature_updates=[update])
        for each in (0, 1, 2):
            answer = client.call(request, UpdateFeaturesResponse, each)
            assert answer.error_code == code
            assert (feature in (answer.error_message or feature)) is True


@pytest.mark.parametrize("level", [-128, -1, 2, 127])
def test_an_unknown_isolation_level_is_refused(client: RawClient, level: int) -> None:
    topic = make_topic(client)
    for version in (4, 12):
        answer = client.call(fetch(topic, isolation_level=level), FetchResponse, version)
        [part] = answer.responses[0].partitions
        assert part.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert answer.error_code == (ErrorCode.UNKNOWN_SERVER_ERROR if version >= 7 else 0)
    answer = client.call(fetch(topic, isolation_level=level), FetchResponse, 17)
    assert (answer.error_code, answer.responses) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        isolation_level=level, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    found = client.call(request, ListOffsetsResponse, 7).topics[0].partitions[0]
    assert (found.error_code, found.offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)


@pytest.mark.parametrize("copies", [2, 300])
def test_of_a_partition_that_is_twice_in_a_produce_the_last_batch_counts(
    client: RawClient, copies: int
) -> None:
    topic = make_topic(client)

    def part(value: bytes) -> PartitionProduceData:
        return PartitionProduceData(
            index=0, records=bytes(encode_records([(NOW, None, value, ())]))
        )

    parts = [part(b"%d" % number) for number in range(copies)]
    half = copies // 2
    request = ProduceRequest(
        acks=-1,
        timeout_ms=60_000,
        topic_data=[
            TopicProduceData(name=topic, topic_id=UUID(int=0), partition_data=some)
            for some in (parts[:half], parts[half:])
        ],
    )
    answer = client.call(request, ProduceResponse, 9)
    [reported] = answer.responses
    [one] = reported.partition_responses
    assert (one.error_code, one.base_offset) == (0, 0)
    found = client.call(fetch(topic), FetchResponse, 12).responses[0].partitions[0]
    assert found.high_watermark == 1
    assert [each.value for each in iterate_records(found.records)] == [b"%d" % (copies - 1)]
