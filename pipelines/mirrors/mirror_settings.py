"""Settings of a mirror: topics and groups, source and target, size of transactions.

They can be pickled: the worker actors of a mirror receive them as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...clients.security.security_options import ClientSecurity
from ..ranges.partition_range import ReadLimits
from ..ranges.topic_offsets import Offset
from .mirrored_topics import EXCLUDE, INTERNAL, NameFilter, Policy

_ALIAS: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


class MirrorFailed(Exception):
    """Error that the caller must remedy; the text says how."""


@dataclass(frozen=True, slots=True)
class MirrorProgress:
    """Progress of a call of `mirror`.

    topics: number of those that are copied. batches: batches copied undecoded; recoded: those that
    were not. behind: offsets left to copy.

    left_out: topics that match and are not copied, since a mirror fills them from the target.
    """

    topics: int = 0
    records: int = 0
    batches: int = 0
    recoded: int = 0
    bytes: int = 0
    commits: int = 0
    behind: int = 0
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """Validated settings of a mirror.

    source, target: "host:port,...". limits: for reading; limits.fetch.security is the target's.

    commit_records: most records of a transaction, about.
    exactly_once: False: records are written without transactions, positions every few seconds.
    without_configs: topic configs that are not copied, besides those that never are.
    sync_configs_interval_s: 0: configs are copied only when a topic is created.
    """

    topics: NameFilter
    source: str
    target: str
    alias: str
    policy: Policy
    groups: NameFilter
    sync_groups_interval_s: float
    start_offset: Offset
    limits: ReadLimits
    commit_records: int
    replication_factor: int
    source_security: ClientSecurity | None
    exactly_once: bool = True
    without_configs: frozenset[str] = frozenset()
    sync_configs_interval_s: float = 0.0

    @property
    def transactional_id(self) -> str:
        return f"bradbury-mirror-{self.alias}"


def check_alias(alias: str) -> None:
    """Check an alias. Raises ValueError: it has other characters, or is too long."""
    if not _ALIAS.fullmatch(alias):
        raise ValueError(f'alias is {alias!r}; use 1 to 100 letters, digits, "_" and "-"')


def check_named_topics(topics: NameFilter) -> None:
    """Check that no topic is asked for by its name that is never copied by default.

    Raises ValueError: there is one, which would be left out without a word.
    """
    for name, pattern in topics.named_and_excluded((*INTERNAL, *EXCLUDE)):
        if pattern in INTERNAL:
            raise ValueError(
                f"topic {name!r} is internal ({pattern}) and never copied, as each cluster has its "
                "own; leave it out of the topics"
            )
        raise ValueError(
            f"topic {name!r} is left out by default ({pattern}), as in MirrorMaker 2; say what to "
            "leave out instead: --exclude REGEX (exclude=)"
        )


def no_topic_matches(settings: MirrorSettings) -> str:
    return (
        f"no topic of {settings.source} matches; `bradbury topics list --bootstrap "
        f"{settings.source}` shows its topics"
    )


def addresses_of(servers: str | Sequence[str]) -> str:
    return servers if isinstance(servers, str) else ",".join(servers)
