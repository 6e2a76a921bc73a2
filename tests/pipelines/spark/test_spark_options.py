"""Which options does format("bradbury") take, and what does it say to the others?"""

import logging
import pickle
from typing import Any

import pytest

from bradbury.pipelines.spark.options.spark_options import (
    EARLIEST,
    LATEST,
    Assign,
    AtEdge,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    ReadOptions,
    Subscribe,
    SubscribePattern,
    WriteOptions,
)
from bradbury.protocol.topic_partition import TopicPartition


def read(streaming: bool = False, **options: str) -> ReadOptions:
    given = {"subscribe": "t", **options}
    return ReadOptions.parse(
        {name.replace("_", "."): value for name, value in given.items() if value},
        streaming=streaming,
    )


def test_a_batch_runs_from_earliest_to_latest_and_a_stream_from_latest_without_end() -> None:
    assert (read().starting, read().ending) == (AtEdge(EARLIEST), AtEdge(LATEST))
    stream = read(streaming=True)
    assert (stream.starting, stream.ending) == (AtEdge(LATEST), None)


def test_names_do_not_mind_upper_and_lower_case() -> None:
    assert ReadOptions.parse(
        {"SUBSCRIBE": "t", "StartingOffsets": "Latest"}, streaming=True
    ) == ReadOptions.parse({"subscribe": "t", "startingoffsets": "latest"}, streaming=True)


def test_topics_are_named_in_one_of_three_ways() -> None:
    assert read(subscribe="b, a,b").subscription == Subscribe(("a", "b"))
    assert read(subscribe="", subscribePattern="logs-.*").subscription == SubscribePattern(
        "logs-.*"
    )
    assert read(subscribe="", assign='{"a":[1,0]}').subscription == Assign(
        (TopicPartition("a", 0), TopicPartition("a", 1))
    )


def test_an_offset_for_each_partition_may_also_be_earliest_or_latest() -> None:
    options = read(startingOffsets='{"t":{"10":5,"9":-2}}', endingOffsets='{"t":{"9":-1,"10":8}}')
    assert options.starting == AtOffsets(
        {TopicPartition("t", 9): EARLIEST, TopicPartition("t", 10): 5}
    )


def test_a_timestamp_goes_before_timestamps_by_partition_and_those_before_offsets() -> None:
    by_partition = '{"t":{"0":7}}'
    assert read(
        startingTimestamp="5", startingOffsetsByTimestamp=by_partition, startingOffsets="earliest"
    ).starting == AtTimestamp(5)
    assert read(
        endingOffsetsByTimestamp=by_partition, endingOffsets="latest"
    ).ending == AtTimestamps({TopicPartition("t", 0): 7})


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2026-07-01T12:00:00Z", 1_782_907_200_000),
        ("2026-07-01 12:00:00", 1_782_907_200_000),
        ("2026-07-01T14:00:00.250+02:00", 1_782_907_200_250),
        ("2026-07-01", 1_782_864_000_000),
        ("-10 minutes", 1_800_000_000_000 - 600_000),
        ("-1h", 1_800_000_000_000 - 3_600_000),
        ("-2 days", 1_800_000_000_000 - 172_800_000),
        ("-9999 weeks", 0),
    ],
)
def test_a_time_is_a_number_or_as_people_write_it(text: str, time_ms: int) -> None:
    options = {"subscribe": "t", "startingTimestamp": text, "endingTimestamp": text}
    found = ReadOptions.parse(options, streaming=False, now_ms=1_800_000_000_000)
    assert found.starting == found.ending == AtTimestamp(time_ms)


def test_offsets_are_committed_to_a_group_where_a_stream_asks_for_it() -> None:
    assert read(True, commitOffsets="true", kafka_group_id="g").commit_group == "g"
    assert read(True, commitOffsets="false", kafka_group_id="g").commit_group is None
    assert read(True, kafka_group_id="g").commit_group is None


def test_numbers_flags_and_durations_are_converted() -> None:
    options = read(
        failOnDataLoss="False",
        includeHeaders="TRUE",
        maxTriggerDelay="2h",
        minPartitions="7",
        maxRecordsPerPartition="100",
        batchRows="500",
        valueDecoder="JSON",
        kafkaConsumer_pollTimeoutMs="9",
        fetchOffset_numRetries="0",
    )
    assert (options.fail_on_data_loss, options.include_headers) == (False, True)
    assert options.max_trigger_delay_ms == 7_200_000
    assert (options.min_partitions, options.max_records_per_partition) == (7, 100)
    assert options.value_decoder == "json"
    assert (options.batch_rows, options.poll_timeout_ms, options.retry_count) == (500, 9, 0)


def test_kafka_settings_lose_their_prefix() -> None:
    options = read(
        kafka_bootstrap_servers="h:1",
        kafka_isolation_level="read_committed",
        kafka_max_partition_fetch_bytes="1024",
        kafka_security_protocol="PLAINTEXT",
    )
    assert options.bootstrap == "h:1"
    assert options.fetch.isolation_level == 1
    assert options.fetch.max_partition_fetch_bytes == 1024


def test_kafka_settings_without_effect_are_named_in_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        read(kafka_session_timeout_ms="1", startingOffset="earliest", path="x")
    assert "'kafka.session.timeout.ms' has no effect" in caplog.text
    assert "'startingoffset' has no effect" in caplog.text
    assert "did you mean 'startingoffsets'?" in caplog.text
    assert "path" not in caplog.text


def test_warnings_are_logged_once_for_a_query(caplog: pytest.LogCaptureFixture) -> None:
    """Spark asks for the columns before it knows whether it is a stream or a batch."""
    options = {"subscribe": "t", "madeUp": "1", "groupIdPrefix": "g", "maxTriggerDelay": "1s"}
    with caplog.at_level(logging.WARNING):
        ReadOptions.parse(options, streaming=True, check_mode=False)
    assert caplog.text == ""


def test_group_ids_and_made_up_options_are_accepted_as_by_sparks_kafka_connector(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = read()
    with caplog.at_level(logging.WARNING):
        assert read(group_id="a") == read(madeUp="1") == plain
        assert read(groupIdPrefix="p") == plain
        assert read(kafka_group_id="g") == plain
    assert "not recommended" in caplog.text
    caplog.clear()
    read(kafka_group_id="g", groupIdPrefix="p")
    assert "'groupIdPrefix' is ignored, as 'kafka.group.id' has been set" in caplog.text


def test_limits_of_a_trigger_are_ignored_in_a_batch_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = {"maxOffsetsPerTrigger": "9", "minOffsetsPerTrigger": "1", "maxTriggerDelay": "1s"}
    read(streaming=True, **limits)
    assert caplog.text == ""
    read(**limits)
    for name in limits:
        assert f"{name} option ignored in batch queries" in caplog.text


def test_options_travel_to_executors() -> None:
    options = read(kafka_bootstrap_servers="h:1", startingOffsets='{"t":{"0":1}}')
    assert pickle.loads(pickle.dumps(options)) == options


REFUSED_IN_ANY_READ = [
    ({"subscribe": ""}, "One of the following options must be specified"),
    ({"assign": '{"t":[0]}'}, "Only one of the following options"),
    ({"subscribe": " , "}, "No topics to subscribe"),
    ({"subscribe": "", "assign": "{}"}, "No topic partitions to assign"),
    ({"subscribe": "", "assign": '{"t":0}'}, "must be JSON"),
    ({"subscribe": "", "assign": "t"}, "must be JSON"),
    ({"subscribe": "", "subscribePattern": " "}, "Pattern to subscribe is empty"),
    ({"subscribe": "", "subscribePattern": "("}, "not a regular expression"),
    ({"kafka_auto_offset_reset": "latest"}, "startingOffsets"),
    ({"kafka_key_deserializer": "x"}, "DataFrame operations"),
    ({"kafka_value_deserializer": "x"}, "DataFrame operations"),
    ({"kafka_enable_auto_commit": "true"}, "never commits"),
    ({"kafka_interceptor_classes": "x"}, "not supported"),
    ({"kafka_security_protocol": "TLS"}, "kafka.security.protocol='TLS': use one of"),
    ({"kafka_sasl_mechanism": "PLAIN"}, "kafka.sasl.mechanism has no effect with"),
    (
        {"kafka_security_protocol": "SASL_SSL", "kafka_sasl_mechanism": "GSSAPI"},
        r"GSSAPI \(Kerberos\) is not there; SCRAM",
    ),
    (
        {"kafka_security_protocol": "SASL_SSL", "kafka_sasl_mechanism": "PLAIN"},
        "needs kafka.sasl.username and kafka.sasl.password",
    ),
    (
        {"kafka_security_protocol": "SSL", "kafka_ssl_truststore_type": "JKS"},
        "kafka.ssl.truststore.type=JKS: use PEM",
    ),
    (
        {"kafka_security_protocol": "SSL", "kafka_ssl_keystore_type": "PKCS12"},
        "kafka.ssl.keystore.type=PKCS12: use PEM",
    ),
    ({"kafka_ssl_truststore_password": "hunter2"}, "give PEM files to ssl.truststore.location"),
    ({"kafka_ssl_ca_location": "ca.pem"}, "use ssl.truststore.location"),
    ({"kafka_ssl_cipher_suites": "x"}, "'ssl.cipher.suites' is not supported: there are sasl"),
    ({"kafka_isolation_level": "serializable"}, "read_committed"),
    ({"kafka_bootstrap_servers": " "}, "host:port"),
    ({"commitOffsets": "true"}, "needs 'kafka.group.id'"),
    ({"commitOffsets": "yes"}, "'true' or 'false'"),
    ({"startingTimestamp": "yesterday"}, "milliseconds since 1970, a time such as"),
    ({"startingTimestamp": "-10 parsecs"}, "or one such as '-10 minutes', not '-10 parsecs'"),
    ({"minPartitions": "0"}, "at least 1"),
    ({"minPartitions": "many"}, "whole number"),
    ({"maxRecordsPerPartition": "0"}, "at least 1"),
    ({"batchRows": "0"}, "at least 1"),
    ({"valueDecoder": "avro"}, "must be 'raw', 'utf8', 'json', not 'avro'"),
    ({"failOnDataLoss": "maybe"}, "'true' or 'false'"),
    ({"maxTriggerDelay": "soon"}, "a duration such as '15m'"),
    ({"startingOffsets": "now"}, "must be JSON"),
    ({"startingOffsets": '{"t":{"0":-3}}'}, "must be JSON"),
    ({"startingOffsets": '{"t":{"x":1}}'}, "must be JSON"),
    ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "must be JSON"),
    ({"startingTimestamp": "-1"}, "at least 0"),
    ({"startingOffsetsByTimestampStrategy": "earliest"}, "'error' or 'latest'"),
    ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is higher than"),
    ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
]


SECURED = {
    "kafka.Security.Protocol": "SASL_SSL",
    "kafka.ssl.truststore.certificates": "-----BEGIN",
    "kafka.ssl.keystore.location": "own.pem",
    "kafka.ssl.key.password": "hunter2",
    "kafka.ssl.endpoint.identification.algorithm": "",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="hunter2";'
    ),
}


def test_security_goes_along_and_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    reading = ReadOptions.parse({"subscribe": "t", **SECURED}, streaming=False)
    writing = WriteOptions.parse({"topic": "t", **SECURED}, streaming=True)
    for options, security in ((reading, reading.fetch.security), (writing, writing.security)):
        assert security is not None
        assert (security.is_tls, security.is_sasl, security.mechanism) == (
            True,
            True,
            "SCRAM-SHA-512",
        )
        assert "hunter2" not in repr(options)
        assert pickle.loads(pickle.dumps(options)) == options
    assert writing.fetch.security == writing.security
    assert writing.producer_settings["ssl_key_password"] == "hunter2"
    assert not caplog.records


def test_without_such_options_the_environment_of_a_task_says_how_it_is_secured() -> None:
    assert read().fetch.security is None
    assert write().producer_settings == write().producer
    assert read(kafka_security_protocol="PLAINTEXT").fetch.security is not None


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.sasl.jaas.config": 'Module required password="hunter2'},
        {"kafka.sasl.jaas.config": 'Other required username="a" password="hunter2";'},
        {"kafka.sasl.password": "hunter2"},
    ],
)
def test_a_refusal_names_no_password(options: dict[str, str]) -> None:
    given = {
        "subscribe": "t",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
    }
    with pytest.raises(ValueError, match=r"kafka\.sasl|JAAS|jaas") as caught:
        ReadOptions.parse({**given, **options}, streaming=False)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("options", "said"), REFUSED_IN_ANY_READ)
@pytest.mark.parametrize("streaming", [False, True])
def test_refused_in_any_read(options: dict[str, Any], said: str, streaming: bool) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        read(streaming, **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest"}, "can't be latest for batch"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "t-0 can't be latest for batch"),
        ({"endingOffsets": "earliest"}, "can't be earliest for batch"),
        ({"commitOffsets": "true", "kafka_group_id": "g"}, "is for streams"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "t-0 can't be earliest for batch"),
        (
            {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"0":2,"1":2}}'},
            "must name the same partitions",
        ),
    ],
)
def test_refused_in_a_batch(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"endingOffsets": "latest"},
        {"endingTimestamp": "5"},
        {"endingOffsetsByTimestamp": '{"t":{"0":1}}'},
    ],
)
def test_a_stream_has_no_end(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not valid in streaming"):
        read(streaming=True, **options)


def write(*, streaming: bool = False, **options: str) -> WriteOptions:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return WriteOptions.parse(given, streaming=streaming)


def test_producer_settings_become_the_producers_arguments() -> None:
    options = write(
        topic="t",
        kafka_acks="1",
        kafka_linger_ms="7",
        kafka_compression_type="zstd",
        kafka_enable_idempotence="false",
        kafka_max_in_flight_requests_per_connection="2",
        kafka_allow_auto_create_topics="true",
    )
    assert options.topic == "t"
    assert options.producer == {
        "client_id": "bradbury-spark",
        "acks": 1,
        "linger_ms": 7,
        "compression_type": "zstd",
        "enable_idempotence": False,
        "max_in_flight": 2,
        "allow_auto_create_topics": True,
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": " "}, "must name a topic"),
        ({"kafka_acks": "2"}, "kafka.acks"),
        ({"kafka_linger_ms": "x"}, "kafka.linger.ms"),
        ({"kafka_value_serializer": "x"}, "DataFrame operations"),
        ({"kafka_key_serializer": "x"}, "DataFrame operations"),
        ({"kafka_interceptor_classes": "x"}, "classes of Java are not run here"),
        ({"kafka_transactional_id": "x"}, "derived from the option sinkId"),
        ({"kafka_allow_auto_create_topics": "maybe"}, "'true' or 'false'"),
        ({"kafka_ssl_truststore_location": "x"}, "has no effect with kafka.security.protocol"),
        ({"deliveryGuarantee": "twice"}, "'exactly-once' or 'at-least-once', not 'twice'"),
        ({"deliveryGuarantee": "exactly-once", "kafka_acks": "1"}, "deliveryGuarantee=at-least"),
        ({"sinkId": "a", "kafka_enable_idempotence": "false"}, "by default; omit it"),
        ({"sinkId": "a", "deliveryGuarantee": "at-least-once"}, "'sinkId' needs delivery"),
        ({"sinkId": " "}, "a name of 1 to 200 characters"),
        ({"batchId": "1"}, "needs a sinkId"),
        ({"sinkId": "a", "batchId": "-1"}, "at least 0"),
        ({"kafka_transaction_timeout_ms": "1000"}, "needs deliveryGuarantee=exactly-once"),
        ({"commitOffsets": "true"}, "for reading streams"),
    ],
)
def test_refused_in_a_write(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        write(**options)


@pytest.mark.parametrize(
    "name",
    ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit"],
)
def test_settings_of_consumers_are_only_warned_of_in_a_write(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As Spark's connector does not refuse them (test_spark_sources_agree)."""
    options = {"topic": "t", f"kafka.{name}": "x"}
    assert "x" not in WriteOptions.parse(options, streaming=False).producer.values()
    assert f"option 'kafka.{name}' has no effect" in caplog.text


def test_streams_and_named_sinks_write_exactly_once_unless_told() -> None:
    assert write(streaming=True).exactly_once
    assert write(sinkId="a", batchId="7").exactly_once
    assert write(deliveryGuarantee="Exactly-Once").exactly_once
    assert not write().exactly_once
    assert not write(streaming=True, deliveryGuarantee="at-least-once").exactly_once
    assert not write(deliveryGuarantee="at-least-once", kafka_acks="1").exactly_once


def test_what_a_stream_cannot_have_with_exactly_once_is_refused() -> None:
    for weaker in (
        {"kafka_acks": "1"},
        {"kafka_enable_idempotence": "false"},
        {"kafka_max_in_flight_requests_per_connection": "6"},
    ):
        with pytest.raises(ValueError, match="set deliveryGuarantee=at-least-once"):
            write(streaming=True, **weaker)
    with pytest.raises(ValueError, match="a stream has its own ids"):
        write(streaming=True, sinkId="a", batchId="1")


def test_the_time_a_transaction_may_take_is_an_option() -> None:
    assert write(streaming=True).transaction_timeout_ms == 900_000
    options = {"kafka_transaction_timeout_ms": "5000"}
    assert write(streaming=True, **options).transaction_timeout_ms == 5_000
