"""Validated options of format("bradbury"), those of Spark's Kafka connector.

Names are case-insensitive, values are text; `ReadOptions.parse` and `WriteOptions.parse` give typed
values or one sentence on what is wrong. Precedence: startingTimestamp, startingOffsetsByTimestamp,
startingOffsets; the same for ending. In addition: batchRows, localFiles, valueDecoder.

Invariants:
    both contain no objects of pyspark, and are pickled for executors.
    Neither shows a password in its repr.

Source: KafkaSourceProvider and the Kafka integration guide in apache/spark.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from ....clients.security.security_options import ClientSecurity, as_given
from ....protocol.topic_partition import TopicPartition
from ...ranges.fetch_options import FetchOptions
from ...ranges.partition_range import ReadLimits
from . import option_table as table
from .option_table import flag, number

logger = logging.getLogger(__name__)

EARLIEST: Final = -2
LATEST: Final = -1
DEFAULT_BATCH_ROWS: Final = 20_000
VALUE_DECODERS: Final = ("raw", "utf8", "json")
NETWORK_TIMEOUT_MS: Final = 120_000
DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Brokers' default maximum (transaction.max.timeout.ms): a task computes while it writes."""
MAX_SINK_ID: Final = 200


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    pattern: str


@dataclass(frozen=True, slots=True)
class AtEdge:
    """EARLIEST or LATEST, for every partition."""

    edge: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; EARLIEST and LATEST may be among them."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first offset whose timestamp (ms since 1970) is not before this."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    timestamps_ms: Mapping[TopicPartition, int]


Subscription = Assign | Subscribe | SubscribePattern
Position = AtEdge | AtOffsets | AtTimestamp | AtTimestamps


SPARK_FETCH: Final = FetchOptions(client_id="bradbury-spark")

_FETCH_SETTINGS: Final = {
    "max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "fetch.max.wait.ms": "fetch_max_wait_ms",
    "isolation.level": "isolation_level",
    "check.crcs": "check_crcs",
    "request.timeout.ms": "request_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "client.id": "client_id",
}


_MODE_NAMES: Final = {
    name
    for name in table.READ_NAMES
    if name.startswith(("starting", "ending")) and name != "startingoffsetsbytimestampstrategy"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Validated options of a read.

    bootstrap: "host:port,..."; None: found as by all clients.
    ending: None in a stream, which has no end.
    max_trigger_delay_ms: most milliseconds that min_offsets_per_trigger may delay a batch.
    commit_group: group to which a stream commits its offsets; None: it does not commit.
    batch_rows: most rows of one Arrow batch.
    value_decoder: one of VALUE_DECODERS: values stay as they are, or become text or structs.
    """

    bootstrap: str | None
    subscription: Subscription
    starting: Position
    ending: Position | None
    latest_without_match: bool = False
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    commit_group: str | None = None
    include_headers: bool = False
    poll_timeout_ms: int = NETWORK_TIMEOUT_MS
    retry_count: int = 3
    retry_interval_ms: int = 10
    batch_rows: int = DEFAULT_BATCH_ROWS
    value_decoder: str = VALUE_DECODERS[0]
    fetch: FetchOptions = SPARK_FETCH

    @property
    def limits(self) -> ReadLimits:
        return ReadLimits(
            fetch=self.fetch,
            poll_timeout_ms=self.poll_timeout_ms,
            poll_timeout_name="Option kafkaConsumer.pollTimeoutMs",
            fail_on_data_loss=self.fail_on_data_loss,
            allow_data_loss="set the option failOnDataLoss to false",
        )

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        *,
        streaming: bool,
        check_mode: bool = True,
        now_ms: int | None = None,
    ) -> Self:
        """Parse and validate options.

        now_ms: milliseconds since 1970, for times such as "-10 minutes"; None: the clock's.
        check_mode: False if it is not known yet whether this is a stream or a batch: options of
            only one of them are not checked, and no warnings are logged.

        Raises:
            ValueError: one sentence on the first invalid option.
        """
        given = table.lowered(options)
        if not check_mode:
            given = {name: value for name, value in given.items() if name not in _MODE_NAMES}
        group = table.commit_group(given, streaming=streaming or not check_mode)
        table.refuse_sink_options(given)
        now = int(time.time() * 1000) if now_ms is None else now_ms
        most = number(given, "maxoffsetspertrigger", "maxOffsetsPerTrigger", 1)
        least = number(given, "minoffsetspertrigger", "minOffsetsPerTrigger", 1)
        if most is not None and least is not None and least > most:
            raise ValueError(
                f"The value of minOffsetsPerTrigger({least}) is higher than the value of "
                f"maxOffsetsPerTrigger({most})."
            )
        strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
        if strategy not in ("error", "latest"):
            raise ValueError(
                "option 'startingOffsetsByTimestampStrategy' must be 'error' or 'latest', "
                f"not {strategy!r}"
            )
        subscription = _subscription(given)
        ending = _ending(given, now, streaming=streaming)
        starting = _starting(given, now, streaming=streaming)
        _check_same_partitions(starting, ending)
        is_local = flag(given, "localfiles", "localFiles", default=False)
        fetch = replace(_fetch_options(given), local_files=is_local, security=table.security(given))
        if check_mode:
            _warn_reading(given, streaming=streaming)
        return cls(
            bootstrap=_bootstrap(given),
            subscription=subscription,
            starting=starting,
            ending=ending,
            latest_without_match=strategy == "latest",
            fail_on_data_loss=flag(given, "failondataloss", "failOnDataLoss", default=True),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_ms=table.duration_ms(
                given.get("maxtriggerdelay", "15m"), "maxTriggerDelay"
            ),
            min_partitions=number(given, "minpartitions", "minPartitions", 1),
            max_records_per_partition=number(
                given, "maxrecordsperpartition", "maxRecordsPerPartition", 1
            ),
            commit_group=group,
            include_headers=flag(given, "includeheaders", "includeHeaders", default=False),
            poll_timeout_ms=number(
                given, "kafkaconsumer.polltimeoutms", "kafkaConsumer.pollTimeoutMs", 1
            )
            or NETWORK_TIMEOUT_MS,
            retry_count=_or(
                number(given, "fetchoffset.numretries", "fetchOffset.numRetries", 0), 3
            ),
            retry_interval_ms=_or(
                number(given, "fetchoffset.retryintervalms", "fetchOffset.retryIntervalMs", 0), 10
            ),
            batch_rows=number(given, "batchrows", "batchRows", 1) or DEFAULT_BATCH_ROWS,
            value_decoder=_value_decoder(given),
            fetch=fetch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Validated options of a write.

    topic: None: taken from the column `topic`.
    producer: keyword arguments of bradbury.Producer, without security.
    exactly_once: each task writes in a transaction.
    sink_id: None: the streaming query's id, or one made for the job.
    batch_id: None: the streaming query's.
    transaction_timeout_ms: brokers abort transactions that are open for longer.
    """

    bootstrap: str | None
    topic: str | None
    producer: Mapping[str, Any]
    security: ClientSecurity | None = None
    exactly_once: bool = False
    sink_id: str | None = None
    batch_id: int | None = None
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS

    @property
    def fetch(self) -> FetchOptions:
        """Settings of the client for requests that producers do not send."""
        return replace(SPARK_FETCH, security=self.security)

    @property
    def producer_settings(self) -> dict[str, Any]:
        """Settings of the producer with security. They contain secrets: do not log them."""
        return {**self.producer, **as_given(self.security)}

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> Self:
        """Parse and validate options. Raises ValueError: one sentence on the first invalid one."""
        given = table.lowered(options)
        table.refuse_commits(given)
        producer = _producer_settings(given)
        table.warn_unknown(
            given, table.WRITE_NAMES, (*_PRODUCER_SETTINGS, table.TRANSACTION_TIMEOUT)
        )
        topic = given.get("topic", "").strip() or None
        if "topic" in given and topic is None:
            raise ValueError("option 'topic' must name a topic")
        sink_id = _sink_id(given)
        batch_id = number(given, "batchid", "batchId", 0)
        if batch_id is not None and streaming:
            raise ValueError("option 'batchId' is for batch writes: a stream has its own ids")
        if batch_id is not None and sink_id is None:
            raise ValueError("option 'batchId' needs a sinkId: the name for its batches")
        exactly_once = _is_exactly_once(given, producer, default=streaming or sink_id is not None)
        option = table.KAFKA_PREFIX + table.TRANSACTION_TIMEOUT
        timeout_ms = number(given, option, option, 1)
        if not exactly_once:
            for name, value in ((option, timeout_ms), ("sinkId", sink_id)):
                if value is not None:
                    raise ValueError(
                        f"option '{name}' needs deliveryGuarantee={table.EXACTLY_ONCE}: there are "
                        "no transactions otherwise"
                    )
        return cls(
            bootstrap=_bootstrap(given),
            topic=topic,
            producer=producer,
            security=table.security(given),
            exactly_once=exactly_once,
            sink_id=sink_id,
            batch_id=batch_id,
            transaction_timeout_ms=timeout_ms or DEFAULT_TRANSACTION_TIMEOUT_MS,
        )


def _sink_id(given: Mapping[str, str]) -> str | None:
    sink_id = given.get("sinkid")
    if sink_id is not None and not 0 < len(sink_id.strip()) <= MAX_SINK_ID:
        raise ValueError(f"option 'sinkId' must be a name of 1 to {MAX_SINK_ID} characters")
    return None if sink_id is None else sink_id.strip()


def _is_exactly_once(
    given: Mapping[str, str], producer: Mapping[str, Any], *, default: bool
) -> bool:
    named = given.get("deliveryguarantee")
    if named is not None and named.lower() not in (table.AT_LEAST_ONCE, table.EXACTLY_ONCE):
        raise ValueError(
            f"option 'deliveryGuarantee' must be '{table.EXACTLY_ONCE}' or "
            f"'{table.AT_LEAST_ONCE}', not {named!r}"
        )
    if not (default if named is None else named.lower() == table.EXACTLY_ONCE):
        return False
    for option, is_weaker in (
        ("kafka.acks", producer.get("acks", "all") != "all"),
        ("kafka.enable.idempotence", not producer.get("enable_idempotence", True)),
        ("kafka.max.in.flight.requests.per.connection", producer.get("max_in_flight", 1) > 5),
    ):
        if is_weaker:
            why = "" if named else ", which streams and writes with a sinkId have by default"
            raise ValueError(
                f"option '{option}={given[option]}' cannot be with deliveryGuarantee="
                f"{table.EXACTLY_ONCE}{why}; omit it, or set deliveryGuarantee="
                f"{table.AT_LEAST_ONCE}"
            )
    return True


_PRODUCER_INTEGERS: Final = {
    "batch.size": "batch_size",
    "buffer.memory": "buffer_memory",
    "max.block.ms": "max_block_ms",
    "max.request.size": "max_request_size",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "request.timeout.ms": "request_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "max.in.flight.requests.per.connection": "max_in_flight",
    "linger.ms": "linger_ms",
}
_PRODUCER_SETTINGS: Final = {
    **_PRODUCER_INTEGERS,
    "acks": "acks",
    "enable.idempotence": "enable_idempotence",
    "compression.type": "compression_type",
    "client.id": "client_id",
    "allow.auto.create.topics": "allow_auto_create_topics",
}
_PRODUCER_FLAGS: Final = ("enable.idempotence", "allow.auto.create.topics")


def _producer_settings(given: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {"client_id": "bradbury-spark"}
    settings.update(table.kafka_settings(given, _PRODUCER_SETTINGS, table.REFUSED_WRITING))
    for name, keyword in _PRODUCER_INTEGERS.items():
        if keyword in settings:
            settings[keyword] = table.parsed(
                settings[keyword], int, f"kafka.{name}", "a whole number"
            )
    for name in _PRODUCER_FLAGS:
        option = table.KAFKA_PREFIX + name
        if option in given:
            settings[_PRODUCER_SETTINGS[name]] = flag(given, option, option, default=True)
    if "acks" in settings:
        acks = str(settings["acks"]).lower()
        if acks not in ("all", "-1", "1", "0"):
            raise ValueError(f"option 'kafka.acks' must be 'all', '1' or '0', not {acks!r}")
        settings["acks"] = "all" if acks in ("all", "-1") else int(acks)
    return settings


def _warn_reading(given: Mapping[str, str], *, streaming: bool) -> None:
    table.warn_unknown(given, table.READ_NAMES, (*_FETCH_SETTINGS, "group.id"))
    table.warn_group(given)
    if not streaming:
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
            if name.lower() in given:
                logger.warning("%s option ignored in batch queries", name)


def _fetch_options(given: Mapping[str, str]) -> FetchOptions:
    settings: dict[str, Any] = {}
    for keyword, value in table.kafka_settings(
        given, _FETCH_SETTINGS, table.REFUSED_READING
    ).items():
        shown = f"kafka.{keyword.replace('_', '.')}"
        if keyword == "client_id":
            settings[keyword] = value
        elif keyword == "isolation_level":
            levels = {"read_uncommitted": 0, "read_committed": 1}
            if value.lower() not in levels:
                raise ValueError(f"option '{shown}' must be one of {', '.join(levels)}")
            settings[keyword] = levels[value.lower()]
        elif keyword == "check_crcs":
            settings[keyword] = flag({keyword: value}, keyword, shown, default=True)
        else:
            settings[keyword] = number({keyword: value}, keyword, shown, 1)
    return replace(SPARK_FETCH, **settings)


def _bootstrap(given: Mapping[str, str]) -> str | None:
    servers = given.get(table.BOOTSTRAP)
    if servers is not None and not servers.strip():
        raise ValueError(
            f"Option '{table.BOOTSTRAP}' must be specified as 'host:port,...', or omitted to find "
            "the cluster as all clients do"
        )
    return servers


def _subscription(given: Mapping[str, str]) -> Subscription:
    chosen = [name for name in table.STRATEGIES if name in given]
    if not chosen:
        raise ValueError(
            "One of the following options must be specified for the source: "
            "subscribe, subscribePattern, assign."
        )
    if len(chosen) > 1:
        raise ValueError(
            "Only one of the following options can be specified for the source: "
            "subscribe, subscribePattern, assign."
        )
    value = given[chosen[0]]
    if chosen[0] == table.SUBSCRIBE:
        topics = tuple(filter(None, (topic.strip() for topic in value.split(","))))
        if not topics:
            raise ValueError(
                f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'"
            )
        return Subscribe(tuple(sorted(set(topics))))
    if chosen[0] == table.SUBSCRIBE_PATTERN:
        if not value.strip():
            raise ValueError(
                f"Pattern to subscribe is empty as specified value for option 'subscribePattern' "
                f"is '{value}'"
            )
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(
                f"option 'subscribePattern' is not a regular expression: {error}"
            ) from None
        return SubscribePattern(value.strip())
    partitions = _parse_assign(value)
    if not partitions:
        raise ValueError(
            f"No topic partitions to assign as specified value for option 'assign' is '{value}'"
        )
    return Assign(partitions)


def _parse_assign(value: str) -> tuple[TopicPartition, ...]:
    wanted = 'option \'assign\' must be JSON such as {"topicA":[0,1],"topicB":[2,4]}, not '
    try:
        parsed = json.loads(value)
    except ValueError:
        raise ValueError(f"{wanted}{value!r}") from None
    if not isinstance(parsed, dict) or not all(
        isinstance(numbers, list) and all(_is_partition(one) for one in numbers)
        for numbers in parsed.values()
    ):
        raise ValueError(f"{wanted}{value!r}")
    return tuple(
        sorted({TopicPartition(topic, one) for topic, numbers in parsed.items() for one in numbers})
    )


def _starting(given: Mapping[str, str], now_ms: int, *, streaming: bool) -> Position:
    position = _position(
        given, now_ms, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"
    )
    if position is None:
        return AtEdge(LATEST if streaming else EARLIEST)
    if not streaming:
        if position == AtEdge(LATEST):
            raise ValueError("starting offset can't be latest for batch queries")
        if isinstance(position, AtOffsets):
            _refuse(position, LATEST, "startingOffsets for {} can't be latest for batch queries")
    return position


def _ending(given: Mapping[str, str], now_ms: int, *, streaming: bool) -> Position | None:
    names = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
    if streaming:
        for name in names:
            if name.lower() in given:
                what = "offset" if name == "endingOffsets" else "timestamp"
                raise ValueError(
                    f"ending {what} not valid in streaming queries: omit {name}, or read a "
                    "batch with spark.read"
                )
        return None
    position = _position(given, now_ms, *names)
    if position is None:
        return AtEdge(LATEST)
    if position == AtEdge(EARLIEST):
        raise ValueError("ending offset can't be earliest for batch queries")
    if isinstance(position, AtOffsets):
        _refuse(position, EARLIEST, "ending offset for {} can't be earliest for batch queries")
    return position


def _position(
    given: Mapping[str, str], now_ms: int, timestamp: str, by_timestamp: str, offsets: str
) -> Position | None:
    at = given.get(timestamp.lower())
    if at is not None:
        return AtTimestamp(table.time_ms(at, timestamp, now_ms))
    if by_timestamp.lower() in given:
        return AtTimestamps(_parse_offsets(given[by_timestamp.lower()], by_timestamp, lowest=0))
    text = given.get(offsets.lower())
    if text is None:
        return None
    edge: Mapping[str, int] = {"earliest": EARLIEST, "latest": LATEST}
    if text.strip().lower() in edge:
        return AtEdge(edge[text.strip().lower()])
    return AtOffsets(_parse_offsets(text, offsets, lowest=EARLIEST))


def _parse_offsets(text: str, shown: str, *, lowest: int) -> dict[TopicPartition, int]:
    try:
        parsed = json.loads(text)
        offsets = {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in parsed.items()
            for partition, offset in partitions.items()
        }
        if not offsets or not all(_is_integer(one) and one >= lowest for one in offsets.values()):
            raise ValueError
    except (ValueError, AttributeError):
        raise ValueError(
            f'option \'{shown}\' must be JSON such as {{"topicA":{{"0":23,"1":-1}}}}, not {text!r}'
        ) from None
    return dict(sorted(offsets.items()))


def _check_same_partitions(starting: Position, ending: Position | None) -> None:
    if not (isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets)):
        return
    if starting.offsets.keys() != ending.offsets.keys():
        raise ValueError(
            "startingOffsets and endingOffsets must name the same partitions: "
            f"{_names(starting.offsets)} and {_names(ending.offsets)}"
        )


def _refuse(position: AtOffsets, edge: int, message: str) -> None:
    for key, offset in position.offsets.items():
        if offset == edge:
            raise ValueError(message.format(key))


def _names(partitions: Mapping[TopicPartition, int]) -> str:
    return ", ".join(str(key) for key in sorted(partitions))


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_partition(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _value_decoder(given: Mapping[str, str]) -> str:
    name = given.get("valuedecoder", VALUE_DECODERS[0]).strip().lower()
    if name not in VALUE_DECODERS:
        raise ValueError(
            f"option 'valueDecoder' must be {', '.join(map(repr, VALUE_DECODERS))}, not {name!r}"
        )
    return name


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
