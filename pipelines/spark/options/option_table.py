"""Names of all options, and of Kafka's own settings with the prefix `kafka.`.

Invariants:
    A Kafka setting is applied, refused with a remedy, or named in a warning as having no effect:
    none is dropped silently.

Source: KafkaSourceProvider in apache/spark connector/kafka-0-10-sql.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Final, TypeVar

from ....clients.security.security_options import NAMES, ClientSecurity
from ....clients.wire.offset_lookup import timestamp_of
from ....protocol.errors import InvalidConfig

T = TypeVar("T")

logger = logging.getLogger(__name__)

KAFKA_PREFIX: Final = "kafka."
BOOTSTRAP: Final = "kafka.bootstrap.servers"
GROUP_ID: Final = "kafka.group.id"
GROUP_ID_PREFIX: Final = "groupidprefix"
TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"

ASSIGN: Final = "assign"
SUBSCRIBE: Final = "subscribe"
SUBSCRIBE_PATTERN: Final = "subscribepattern"
STRATEGIES: Final = (ASSIGN, SUBSCRIBE, SUBSCRIBE_PATTERN)

READ_NAMES: Final = {
    *STRATEGIES,
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    "endingoffsets",
    "endingtimestamp",
    "endingoffsetsbytimestamp",
    "failondataloss",
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "maxtriggerdelay",
    "minpartitions",
    "maxrecordsperpartition",
    "includeheaders",
    GROUP_ID_PREFIX,
    "kafkaconsumer.polltimeoutms",
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
    "batchrows",
    "localfiles",
    "valuedecoder",
}
WRITE_NAMES: Final = {"topic", "includeheaders"}
SPARK_NAMES: Final = {"path", "checkpointlocation", "queryname", "recursivefilelookup"}
"""Options that Spark itself adds to those of a source or sink."""

COMMIT_OFFSETS: Final = "commitoffsets"
SINK_NAMES: Final = {
    "deliveryguarantee": "deliveryGuarantee",
    "sinkid": "sinkId",
    "batchid": "batchId",
}
AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"

_SERIALIZED: Final = "keys and values are always binary; convert them with DataFrame operations"
REFUSED_READING: Final = {
    "auto.offset.reset": "use the option startingOffsets instead, 'earliest' or 'latest': it"
    " decides where a query starts, and failOnDataLoss what happens when data is lost",
    "key.deserializer": _SERIALIZED,
    "value.deserializer": _SERIALIZED,
    "enable.auto.commit": "the source never commits offsets on its own; they are in the checkpoint",
    "interceptor.classes": "records are delivered as they are in the log",
}
REFUSED_WRITING: Final = {
    "key.serializer": _SERIALIZED,
    "value.serializer": _SERIALIZED,
    "interceptor.classes": "classes of Java are not run here; convert the rows with DataFrame"
    " operations",
    "transactional.id": "each task has its own, derived from the option sinkId; set that",
}
_SECURITY: Final = ("security.", "ssl.", "sasl.")
SECURITY_SETTINGS: Final = {name.replace("_", "."): name for name in sorted(NAMES)}
"""Kafka's names of security settings -> names in SecurityOptions."""
_NO_JAVA_STORES: Final = (
    "Java's keystores are not read; give PEM files to ssl.truststore.location and "
    "ssl.keystore.location, and the password of the private key as ssl.key.password"
)
_NO_SUCH_SECURITY: Final = {
    "ssl.truststore.password": _NO_JAVA_STORES,
    "ssl.keystore.password": _NO_JAVA_STORES,
    "ssl.ca.location": "use ssl.truststore.location, a PEM file",
    "ssl.certificate.location": "use ssl.keystore.location, a PEM file with key and certificates",
    "ssl.key.location": "use ssl.keystore.location, a PEM file with key and certificates",
}

DURATION: Final = re.compile(r"\s*(-?\d+)\s*([a-z]*)\s*")
_DURATION_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
}


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """Options by their lower-case name: Spark's are case-insensitive."""
    return {name.lower(): value for name, value in options.items()}


def kafka_settings(
    options: Mapping[str, str], known: Mapping[str, str], refused: Mapping[str, str]
) -> dict[str, str]:
    """Settings given as `kafka.<name>`, by their names in the values of `known`.

    Raises:
        ValueError: a setting in `refused`, which contradicts how Spark reads or writes.
    """
    taken: dict[str, str] = {}
    for option, value in options.items():
        name = option.removeprefix(KAFKA_PREFIX)
        if name == option or option == BOOTSTRAP:
            continue
        if name in refused:
            raise ValueError(f"Kafka option '{name}' is not supported: {refused[name]}.")
        if name in known:
            taken[known[name]] = value
    return taken


def security(options: Mapping[str, str]) -> ClientSecurity | None:
    """Security from `kafka.security.protocol`, `kafka.ssl.*`, `kafka.sasl.*`; None: none given.

    Raises:
        ValueError: an unsupported setting, or a contradiction. The text names options, and never
            the value of a secret one.
    """
    given: dict[str, str] = {}
    for option, value in options.items():
        name = option.removeprefix(KAFKA_PREFIX)
        if name == option or not name.startswith(_SECURITY):
            continue
        if name not in SECURITY_SETTINGS:
            why = _NO_SUCH_SECURITY.get(name, f"there are {', '.join(SECURITY_SETTINGS)}")
            raise ValueError(f"Kafka option '{name}' is not supported: {why}.")
        given[SECURITY_SETTINGS[name]] = value
    if not given:
        return None
    try:
        return ClientSecurity.from_options(given)
    except InvalidConfig as error:
        raise ValueError(_by_options(str(error))) from None


def _by_options(text: str) -> str:
    """Error text with option names: `kafka.sasl.mechanism` for `sasl_mechanism`."""
    names = "|".join(sorted(NAMES, key=len, reverse=True))
    return re.sub(names, lambda found: KAFKA_PREFIX + found[0].replace("_", "."), text)


def commit_group(options: Mapping[str, str], *, streaming: bool) -> str | None:
    """Group to which a stream commits its offsets; None: it does not commit.

    Raises:
        ValueError: commitOffsets without a group, or in a batch query.
    """
    if not flag(options, COMMIT_OFFSETS, "commitOffsets", default=False):
        return None
    group = options.get(GROUP_ID, "").strip()
    if not group:
        raise ValueError(
            "option 'commitOffsets' needs 'kafka.group.id': the group to commit offsets to"
        )
    if not streaming:
        raise ValueError(
            "option 'commitOffsets' is for streams: a batch query cannot tell when it is done"
        )
    return group


def refuse_commits(options: Mapping[str, str]) -> None:
    """Raise ValueError for commitOffsets in a write."""
    if flag(options, COMMIT_OFFSETS, "commitOffsets", default=False):
        raise ValueError("option 'commitOffsets' is for reading streams; remove it from the write.")


def refuse_sink_options(options: Mapping[str, str]) -> None:
    """Raise ValueError for an option that only writes have."""
    for lower, name in SINK_NAMES.items():
        if lower in options:
            raise ValueError(f"option '{name}' is for writes; set it on the writer.")


def warn_unknown(
    options: Mapping[str, str], names: Collection[str], kafka_names: Collection[str]
) -> None:
    """Log a warning for each option without effect; Spark's Kafka connector ignores them silently.

    names, kafka_names: options that have an effect, the latter without `kafka.`.
    """
    known = {
        *names,
        *SPARK_NAMES,
        COMMIT_OFFSETS,
        *SINK_NAMES,
        BOOTSTRAP,
        *(KAFKA_PREFIX + name for name in (*SECURITY_SETTINGS, *kafka_names)),
    }
    for name in sorted(options.keys() - known):
        near = difflib.get_close_matches(name, known, 1, 0.85)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        logger.warning("option '%s' has no effect on format 'bradbury'%s", name, hint)


def warn_group(options: Mapping[str, str]) -> None:
    """Log warnings for group options, as Spark's connector does: they do not affect reading."""
    if GROUP_ID in options and COMMIT_OFFSETS in options:
        return
    if GROUP_ID in options:
        logger.warning(
            "option 'kafka.group.id' is not recommended: a query reads by its own offsets, "
            "does not join the group and commits nothing to it without commitOffsets"
        )
        if GROUP_ID_PREFIX in options:
            logger.warning("option 'groupIdPrefix' is ignored, as 'kafka.group.id' has been set")
    elif GROUP_ID_PREFIX in options:
        logger.warning("option 'groupIdPrefix' has no effect: nothing is committed to such groups")


def number(options: Mapping[str, str], name: str, shown: str, lowest: int) -> int | None:
    """A whole number of at least `lowest`; None if the option is not given."""
    text = options.get(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"option '{shown}' must be a whole number, not {text!r}") from None
    if value < lowest:
        raise ValueError(f"option '{shown}' must be at least {lowest}, not {value}")
    return value


def flag(options: Mapping[str, str], name: str, shown: str, *, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f"option '{shown}' must be 'true' or 'false', not {text!r}")
    return text.lower() == "true"


def duration_ms(text: str, shown: str) -> int:
    """Milliseconds of "15m", "30 seconds", "250ms", "1 day"; without unit: milliseconds."""
    duration = _duration_ms(text, "ms")
    if duration is None:
        raise ValueError(f"option '{shown}' must be a duration such as '15m', not {text!r}")
    return duration


def _duration_ms(text: str, bare_unit: str) -> int | None:
    match = DURATION.fullmatch(text.lower())
    if match is None:
        return None
    name = match[2] or bare_unit
    unit = _DURATION_MS.get(name) or _DURATION_MS.get(name.removesuffix("s"))
    return None if unit is None else int(match[1]) * unit


def time_ms(text: str, shown: str, now_ms: int) -> int:
    """Milliseconds since 1970 of a time.

    text: milliseconds since 1970, an ISO 8601 time (UTC without a zone), or a time ago: "-10
    minutes".

    Raises:
        ValueError: it is none of these, or before 1970.
    """
    ago_ms = _duration_ms(text, "")
    if text.strip().startswith("-") and ago_ms is not None:
        return max(0, now_ms + ago_ms)
    try:
        if text.strip().lstrip("-").isdecimal():
            time_is_ms = int(text)
        else:
            time_is_ms = timestamp_of(datetime.fromisoformat(text.strip()))
    except ValueError:
        raise ValueError(
            f"option '{shown}' must be milliseconds since 1970, a time such as "
            f"'2026-07-01T12:00:00Z', or one such as '-10 minutes', not {text!r}"
        ) from None
    if time_is_ms < 0:
        raise ValueError(f"option '{shown}' must be at least 0, not {text.strip()}")
    return time_is_ms


def parsed(value: str, convert: Callable[[str], T], shown: str, wanted: str) -> T:
    try:
        return convert(value)
    except ValueError:
        raise ValueError(f"option '{shown}' must be {wanted}, not {value!r}") from None
