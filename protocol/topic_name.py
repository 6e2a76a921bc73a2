"""Rules for topic names, and the names of internal topics, which hold the state of coordinators.

Source: apache/kafka clients/.../common/internals/Topic.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .errors import InvalidTopicException

MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicException unless a topic may have this name.

    Raises:
        InvalidTopicException: the text says which rule the name breaks.
    """
    if not name:
        raise InvalidTopicException("a topic name cannot be empty")
    if name in (".", ".."):
        raise InvalidTopicException("a topic cannot be called '.' or '..'")
    if len(name) > MAX_LENGTH:
        raise InvalidTopicException(f"a topic name has at most {MAX_LENGTH} characters")
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicException(
            f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
        )
    if name == METADATA_TOPIC:
        raise InvalidTopicException(f"{name} is the controller's own log")


def fold(name: str) -> str:
    """Name as in metrics, where `a.b` and `a_b` are the same, so they collide."""
    return name.replace(".", "_")


def can_collide(name: str) -> bool:
    return "." in name or "_" in name


def check_collision(name: str, taken: Mapping[str, str]) -> None:
    """Raise InvalidTopicException if the name collides. `taken`: folded name -> name of a topic."""
    other = taken.get(fold(name))
    if other is not None and other != name:
        raise InvalidTopicException(f"topic {name!r} collides with existing topic {other!r}")
