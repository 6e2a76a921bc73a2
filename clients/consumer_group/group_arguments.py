"""Arguments of a group of actors, or of Ray Serve replicas, checked before anything starts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...protocol.errors import InvalidConfig
from ...protocol.topic_partition import TopicPartition
from ..admin.admin import Admin
from ..consumer.consumer import Consumer
from ..producer.producer import Producer
from ..security.security_options import NAMES, refuse_secrets_for_actors, security_of
from .lag_scaling import DOWNSCALE_DELAY_S, UPSCALE_DELAY_S

_SET_BY_GROUP: Final = frozenset(
    {
        "group",
        "group_instance_id",
        "enable_auto_commit",
        "auto_commit_interval_ms",
        "max_poll_records",
    }
)


def topics_of(topics: str | Iterable[str] | re.Pattern[str]) -> tuple[str, ...] | re.Pattern[str]:
    if isinstance(topics, re.Pattern):
        return topics
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names:
        raise InvalidConfig(
            "a group needs topics: give a name, a list of names or a compiled pattern"
        )
    return names


def partitions_of(topics: tuple[str, ...] | re.Pattern[str], admin: Admin) -> list[TopicPartition]:
    """Partitions of the topics. Raises UnknownTopicOrPartition: there is no such topic."""
    if isinstance(topics, re.Pattern):
        names = [name for name in admin.list_topics() if topics.fullmatch(name)]
    else:
        names = list(topics)
    return [
        TopicPartition(topic.name, partition)
        for topic in admin.describe_topics(names)
        for partition in range(len(topic.partitions))
    ]


def check_sizes(actors: int, workers: int) -> None:
    if actors < 1:
        raise InvalidConfig(f"actors={actors}: use at least 1")
    if workers and workers < actors:
        raise InvalidConfig(
            f"workers={workers}: use at least one for each of {actors} actors, or 0"
        )


def check_no_scaling(
    min_actors: int,
    target_lag: int | None,
    target_lag_s: float | None,
    delays: tuple[float, float],
) -> None:
    """Check that nothing is given that has no effect without a maximum of members."""
    usual = (1, None, None, (UPSCALE_DELAY_S, DOWNSCALE_DELAY_S))
    if (min_actors, target_lag, target_lag_s, delays) != usual:
        raise InvalidConfig(
            "min_actors, target_lag, target_lag_s, upscale_delay_s and downscale_delay_s need "
            "max_actors"
        )


def check_exactly_once(guarantee: str, options: Mapping[str, Any]) -> None:
    if guarantee != "at_least_once":
        raise InvalidConfig(f"exactly_once=True and guarantee={guarantee!r}: choose one")
    ours = {"bootstrap", "namespace", "transactional_id", "acks", "enable_idempotence"}
    unknown = sorted(set(options) - (_settings_of(Producer) - ours))
    if unknown:
        raise InvalidConfig(f"{', '.join(unknown)}: not a setting of a group's producers")


def check_consumer_options(options: Mapping[str, Any], guarantee: str, order: str | None) -> None:
    refuse_secrets_for_actors(options)
    if guarantee not in {"at_least_once", "at_most_once"}:
        raise InvalidConfig(f'guarantee={guarantee!r}: use "at_least_once" or "at_most_once"')
    if order not in {None, "key", "partition"}:
        raise InvalidConfig(f'order={order!r}: use "key", "partition" or None')
    unknown = sorted(set(options) - (_settings_of(Consumer) - {"topics"} - _SET_BY_GROUP))
    if unknown:
        raise InvalidConfig(f"{', '.join(unknown)}: not a setting of a group's consumers")


def connection_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a consumer that a Producer or Admin for the same cluster needs, too."""
    named = {name: options[name] for name in ("bootstrap", "namespace") if name in options}
    return {**named, **security_of(options)}


def _settings_of(client: type[Producer | Consumer]) -> set[str]:
    """Names of a client's settings, including those of SecurityOptions."""
    return set(inspect.signature(client).parameters) - {"security"} | NAMES
