"""The names of all options, and Kafka's own settings behind `kafka.`: what is known, what is not.

What always holds:
    A Kafka setting is taken, refused with what to use instead, or named in a warning as having no
    effect: none is dropped in silence.

Source: KafkaSourceProvider in apache/spark connector/kafka-0-10-sql.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

from ....clients.security.security_options import NAMES, ClientSecurity
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
"""What Spark itself puts among the options of a source or sink."""

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
    " decides where a query starts, and failOnDataLoss what happens when data is gone",
    "key.deserializer": _SERIALIZED,
    "value.deserializer": _SERIALIZED,
    "enable.auto.commit": "the source never commits offsets on its own; they are in the checkpoint",
    "interceptor.classes": "records are handed over as they are in the log",
}
REFUSED_WRITING: Final = {
    "key.serializer": _SERIALIZED,
    "value.serializer": _SERIALIZED,
    "transactional.id": "each task gets its own, made from the option sinkId; set that",
}
_SECURITY: Final = ("security.", "ssl.", "sasl.")
SECURITY_SETTINGS: Final = {name.replace("_", "."): name for name in sorted(NAMES)}
"""Kafka's names, and those of SecurityOptions."""
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
    """Settings given as `kafka.<name>`, by the names that `known` gives them.

    Raises:
        ValueError: one that contradicts how Spark reads or writes.
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
    """What `kafka.security.protocol`, `kafka.ssl.*` and `kafka.sasl.*` say; None: none is given.

    Raises:
        ValueError: one that this client does not have, or settings that cannot be together. The
            text names options and never what a secret one says.
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
    """What is said of `sasl_mechanism`, of the option `kafka.sasl.mechanism`."""
    names = "|".join(sorted(NAMES, key=len, reverse=True))
    return re.sub(names, lambda found: KAFKA_PREFIX + found[0].replace("_", "."), text)


def commit_group(options: Mapping[str, str], *, streaming: bool) -> str | None:
    """The group in which a stream's offsets are shown; None: in none.

    Raises:
        ValueError: commitOffsets without a group, or in a batch.
    """
    if not flag(options, COMMIT_OFFSETS, "commitOffsets", default=False):
        return None
    group = options.get(GROUP_ID, "").strip()
    if not group:
        raise ValueError(
            "option 'commitOffsets' needs 'kafka.group.id': the group in which offsets are shown"
        )
    if not streaming:
        raise ValueError(
            "option 'commitOffsets' is for streams: who reads a batch is not told when it is done"
        )
    return group


def refuse_commits(options: Mapping[str, str]) -> None:
    """Raise ValueError for commits of what is read, where nothing is."""
    if flag(options, COMMIT_OFFSETS, "commitOffsets", default=False):
        raise ValueError("option 'commitOffsets' is one of streams that read; a write has none.")


def refuse_sink_options(options: Mapping[str, str]) -> None:
    """Raise ValueError for what only a write has."""
    for lower, name in SINK_NAMES.items():
        if lower in options:
            raise ValueError(f"option '{name}' is one of writes; set it on the writer.")


def warn_unknown(
    options: Mapping[str, str], names: Collection[str], kafka_names: Collection[str]
) -> None:
    """Name what has no effect: as by Spark's Kafka connector it is taken, but not in silence.

    names, kafka_names: those that have one, the latter without `kafka.`.
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
    """Accept them with a warning, as Spark's connector does: neither changes what is read."""
    if GROUP_ID in options and COMMIT_OFFSETS in options:
        return
    if GROUP_ID in options:
        logger.warning(
            "option 'kafka.group.id' is not recommended: a query reads by its own offsets, "
            "takes no part in the group and commits nothing to it without commitOffsets"
        )
        if GROUP_ID_PREFIX in options:
            logger.warning("option 'groupIdPrefix' is ignored, as 'kafka.group.id' has been set")
    elif GROUP_ID_PREFIX in options:
        logger.warning("option 'groupIdPrefix' names groups that nothing is committed to")


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
    """Milliseconds of "15m", "30 seconds", "250ms", "1 day"; a bare number is milliseconds."""
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
    """Milliseconds since 1970, of the same; of an ISO 8601 time, in UTC if it says no zone; or of
    what is so long ago, "-10 minutes".

    Raises:
        ValueError: it is none of them, or before 1970.
    """
    ago_ms = _duration_ms(text, "")
    if text.strip().startswith("-") and ago_ms is not None:
        return max(0, now_ms + ago_ms)
    try:
        if text.strip().lstrip("-").isdecimal():
            time_is_ms = int(text)
        else:
            time = datetime.fromisoformat(text.strip())
            time_is_ms = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
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
