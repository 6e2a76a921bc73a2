"""The names of a partition: by the name of its topic, and by its id.

clients/wire/record_metadata has the NamedTuple that applications see; it is one of the first.
"""

from __future__ import annotations

from uuid import UUID

TopicPartition = tuple[str, int]
"""Name of the topic, number of the partition."""
TopicIdPartition = tuple[UUID, int]
"""Id of the topic: one that was deleted and made again is another one."""
