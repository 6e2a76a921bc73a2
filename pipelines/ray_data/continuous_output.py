"""Output of a continuous Dataset, and commits of its group's offsets.

transactional.id    ray-data-{group}    of the only driver that writes a group's output

Invariants:
    Rows are delivered before their offsets are committed; or both are committed together, by
    write_topic with "exactly-once".
    Of two drivers with the same group, the one that started later writes: it initializes the
    transactional id before it looks up its start offsets, so an open transaction of the other one,
    with its offsets, is aborted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
from ray.data import Dataset
from ray.data.block import BlockAccessor

from ...clients.admin.group_offsets_admin import CommittedOffset, alter_group_offsets
from ...clients.producer.producer import Producer
from ...clients.producer.transactions.transaction_errors import is_ended_by_another
from ...clients.wire.cluster_client import ClusterClient
from ...clients.wire.record_metadata import OffsetAndMetadata
from ...protocol.errors import KafkaError, ProducerFenced
from ...protocol.topic_partition import TopicPartition
from ..ranges.reading_client import reading_client
from .continuous_read import ContinuousTopics, continuous_source
from .row_positions import RowPositions
from .topic_datasink import TIMEOUT_MS, TopicWrite, send_blocks
from .topic_follower import Followed

NOTHING_AHEAD: Final[dict[str, Any]] = {"prefetch_batches": 0}
"""Options without prefetch: with it, Ray Data holds a batch back until the next one exists."""
_POSITION: Final = ("topic", "partition", "offset")


def iterate_committed(dataset: Dataset, **batching: Any) -> Iterator[Any]:
    """See bradbury.committed_batches."""
    source = committed_source(dataset)
    positions = RowPositions(source.followed.topics)
    client = reading_client(source.followed.bootstrap, source.followed.limits.fetch)
    group_id = str(source.followed.group_id)
    with closing(_batches(dataset, batching)) as batches:
        for batch in batches:
            advanced = positions.advance(_table(batch))
            yield batch
            _commit(client, group_id, advanced)


def committed_source(dataset: Dataset) -> ContinuousTopics:
    """Source of a continuous Dataset. Raises ValueError if its offsets cannot be committed."""
    source = continuous_source(dataset)
    if source is None:
        raise ValueError("the Dataset is not continuous; read it with trigger='continuous'")
    if source.followed.group_id is None:
        raise ValueError(
            "the Dataset has no group whose offsets could be committed; give read_topic a group_id"
        )
    if dataset.context.max_errored_blocks != 0:
        raise ValueError(
            "DataContext.max_errored_blocks lets Ray Data drop blocks that fail: their records "
            "would be committed all the same; set it to 0"
        )
    return source


def write_continuously(dataset: Dataset, write: TopicWrite) -> None:
    """Write until an exception ends it: KeyboardInterrupt, or a failure."""
    source = committed_source(dataset)
    followed = source.followed
    group_id = str(followed.group_id)
    settings = write.producer_settings
    if write.is_exactly_once:
        settings["transactional_id"] = f"ray-data-{group_id}"
    with Producer(write.bootstrap, **settings) as producer:
        if write.is_exactly_once:
            producer.init_transactions()  # before the execution looks up its start offsets
        try:
            _write(dataset, write, followed, producer)
        except KafkaError as error:
            if not is_ended_by_another(error):
                raise
            raise ProducerFenced(
                f"this driver was fenced as the writer of group {group_id!r}: another one has "
                "started, or a transaction was open for longer than transaction_timeout_ms; "
                "no record is lost or duplicated"
            ) from error


def _write(dataset: Dataset, write: TopicWrite, followed: Followed, producer: Producer) -> None:
    positions = RowPositions(followed.topics)
    client = reading_client(followed.bootstrap, followed.limits.fetch)
    group_id = str(followed.group_id)
    with closing(_batches(dataset, {"batch_size": None, "batch_format": "pyarrow"})) as batches:
        for batch in batches:
            advanced = positions.advance(batch)
            if write.is_exactly_once:
                with producer.transaction():
                    send_blocks(producer, [batch], write)
                    offsets: dict[tuple[str, int], int | OffsetAndMetadata] = dict(advanced.items())
                    producer.send_offsets(offsets, group_id)
            else:
                send_blocks(producer, [batch], write)
                _commit(client, group_id, advanced)


def _batches(dataset: Dataset, options: Mapping[str, Any]) -> Generator[Any, None, None]:
    """Batches of an execution, which ends when the generator is closed."""
    yield from dataset.iter_batches(**{**NOTHING_AHEAD, **options})


def _table(batch: Any) -> pa.Table:
    """Table of the columns that positions need."""
    if isinstance(batch, dict):
        return pa.table({name: batch[name] for name in _POSITION if name in batch})
    table = BlockAccessor.for_block(batch).to_arrow()
    return table.select([name for name in _POSITION if name in table.column_names])


def _commit(client: ClusterClient, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    if offsets:
        committed = {key: CommittedOffset(offset) for key, offset in offsets.items()}
        steps = alter_group_offsets(client, group_id, committed, timeout_ms=TIMEOUT_MS)
        client.run(steps, TIMEOUT_MS)
