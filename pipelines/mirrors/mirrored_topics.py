"""Topic filters and names of a mirror; creation of topics in the target, and their configs.

Names and filters are as in MirrorMaker 2 of Kafka 4.1: `topics` and `topics.exclude` are lists
of regular expressions that match whole names, DefaultReplicationPolicy puts the source's alias and
a dot before a name, IdentityReplicationPolicy keeps it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

from ...clients.admin.admin import Admin
from ...clients.admin.configs import ConfigEntry
from ...protocol.errors import InvalidPartitions, KafkaError, TopicAlreadyExists

logger = logging.getLogger(__name__)

Policy = Literal["prefix", "identity"]
EXCLUDE: Final = (r"mm2.*\.internal", r".*\.replica", "__.*")
"""Default of `exclude`: that of MirrorMaker 2's topics.exclude."""
INTERNAL: Final = (
    "__.*",
    r"mirror-offsets\..*\.internal",
    r".*\.checkpoints\.internal",
    r"replay-positions\.internal",
)
"""Topics that are never mirrored, whatever else is excluded: each cluster has its own."""
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_SET_ON_TOPIC: Final = 1
"""Config source DYNAMIC_TOPIC_CONFIG of DescribeConfigs: set on the topic itself."""
_NOT_COPIED: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",  # Kafka 4 has removed it
        "message.timestamp.type",  # otherwise the target might set its own timestamps
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
TIMESTAMP_BOUNDS: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
UNBOUNDED: Final = str(2**63 - 1)
"""Value of TIMESTAMP_BOUNDS. They are about what producers send: records that the source took are
copied when the target's clock may have left them far behind."""


class NameFilter:
    """Filter of names by wanted and excluded patterns. False if it has no wanted pattern.

    Raises ValueError for an invalid regular expression.
    """

    def __init__(self, wanted: str | Sequence[str], exclude: str | Sequence[str]) -> None:
        self._wanted = _patterns(wanted)
        self._excluded = _patterns(exclude)

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def of(self, names: Iterable[str]) -> list[str]:
        return sorted(
            name
            for name in names
            if any(one.fullmatch(name) for one in self._wanted)
            and not any(one.fullmatch(name) for one in self._excluded)
        )

    def named_and_excluded(self, by: Collection[str]) -> list[tuple[str, str]]:
        """Names that are wanted, not expressions, and excluded all the same.

        by: the excluded patterns that count. Each name comes with the one that excludes it.
        """
        return [
            (wanted.pattern, one.pattern)
            for wanted in self._wanted
            for one in self._excluded
            if _TOPIC_NAME.fullmatch(wanted.pattern)
            and one.pattern in by
            and one.fullmatch(wanted.pattern)
        ]


def texts_of(given: str | Sequence[str]) -> Sequence[str]:
    """A list, or one text with commas."""
    return given.split(",") if isinstance(given, str) else given


def _patterns(given: str | Sequence[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(text.strip()) for text in texts_of(given) if text.strip()]
    except re.error as error:
        raise ValueError(f"{error.pattern!r} is not a valid regular expression: {error}") from None


def target_name(topic: str, alias: str, policy: Policy) -> str:
    return topic if policy == "identity" else f"{alias}.{topic}"


def is_set_on_topic(entry: ConfigEntry | None) -> bool:
    """Whether a config is set on the topic itself, and no default."""
    return entry is not None and entry.source == _SET_ON_TOPIC


def set_configs(admin: Admin, topic: str) -> dict[str, str]:
    """Configs that are set on the topic itself, without defaults."""
    return {
        key: entry.value
        for key, entry in admin.describe_configs(topic).items()
        if is_set_on_topic(entry) and entry.value is not None
    }


def copied_configs(source: Admin, topic: str, without: frozenset[str]) -> dict[str, str]:
    """Configs that a topic of the target has of the source's, while records are copied into it.

    without: names that are not copied, besides those that never are.
    """
    return {
        key: UNBOUNDED if key in TIMESTAMP_BOUNDS else value
        for key, value in set_configs(source, topic).items()
        if key not in _NOT_COPIED and key not in without
    }


def make_topic(
    source: Admin,
    target: Admin,
    topic: str,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    without_configs: frozenset[str] = frozenset(),
) -> None:
    """Create the target's topic, or add partitions until it has as many as the source's.

    Raises:
        TopicAlreadyExists, InvalidPartitions, InvalidReplicationFactor, InvalidConfig: the target
            refused it.
    """
    if name not in target.list_topics(include_internal=True):
        configs = copied_configs(source, topic, without_configs)
        try:
            target.create_topic(name, partitions, replication_factor, configs=configs)
            logger.info("created %s with %d partitions for %s", name, partitions, topic)
        except TopicAlreadyExists:
            pass
    if len(target.describe_topics([name])[0].partitions) < partitions:
        try:
            target.create_partitions(name, partitions)
        except InvalidPartitions:  # another mirror into the same topic was first
            if len(target.describe_topics([name])[0].partitions) < partitions:
                raise


class FollowedConfigs:
    """Makes changes of the source's topic configs in the target, too. Used by one thread.

    As MirrorMaker 2 does (sync.topic.configs): at the start and every `interval_s` (0: never), and
    the source's value wins over one that was set in the target. Unlike there, a config that the
    source does not set is reset in the target only if the source's value was seen here, and the
    target still has it: others were set by hand, for this side.

    without: as of copied_configs.
    """

    def __init__(
        self, source: Admin, target: Admin, *, interval_s: float, without: frozenset[str]
    ) -> None:
        self._from = source
        self._to = target
        self._interval_s = interval_s
        self._without = without
        self._seen: dict[str, dict[str, str]] = {}
        self._look_at = 0.0

    def look(self, targets: Mapping[str, str]) -> None:
        """Make the changes, if it is time to.

        targets: topic of the target by that of the source. What a cluster refuses is logged.
        Raises ConnectionFailed: no broker answers.
        """
        if not self._interval_s or time.monotonic() < self._look_at:
            return
        for topic, name in targets.items():
            try:
                self._sync(topic, name)
            except KafkaError as error:
                logger.warning("configs of topic %s were not synced: %s", name, error)
        self._look_at = time.monotonic() + self._interval_s

    def _sync(self, topic: str, name: str) -> None:
        wanted = copied_configs(self._from, topic, self._without)
        seen = self._seen.get(topic, {})
        here = set_configs(self._to, name)
        changes = {key: value for key, value in wanted.items() if here.get(key) != value}
        unset = [key for key in seen if key not in wanted and here.get(key) == seen[key]]
        if changes or unset:
            self._to.alter_configs(name, changes, unset=unset)
            logger.info("configs of %s changed as in the source: %s", name, [*changes, *unset])
        self._seen[topic] = wanted
