"""Names of a partition: with the name of its topic, or with its id.

clients/wire/record_metadata has the NamedTuple that applications see; it is one of the first.
"""

from __future__ import annotations

from uuid import UUID

TopicPartition = tuple[str, int]
"""Partition by topic: (topic name, partition number)."""
TopicIdPartition = tuple[UUID, int]
"""Partition by topic id: (topic id, partition number); a recreated topic has another id."""
