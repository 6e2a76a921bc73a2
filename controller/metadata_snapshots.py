"""Snapshots of the active controller: when one is taken, and what is done with it.

Invariants:
    At most one is being made, in a thread, from the image at its beginning; changes continue.
    A snapshot is used by the leader that was leading when it was begun, or not at all.

Source: KIP-630; `metadata.log.max.record.bytes.between.snapshots`, `…max.snapshot.interval.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from ..cluster.broker_config import BrokerConfig
from ..cluster.metadata.metadata_image import MetadataImage
from ..cluster.quorum.metadata_snapshot import SnapshotPolicy, encode_snapshot, end_of
from .controller_effects import Instant, RunInThread
from .metadata_leader import MetadataLeader

logger = logging.getLogger(__name__)


class MetadataSnapshots:
    """Takes the snapshots. `begin` with each leader. is_leading: whether a leader is still the
    controller's, and not ended.
    """

    def __init__(
        self,
        config: BrokerConfig,
        effects: list[Any],
        is_leading: Callable[[MetadataLeader], bool],
    ) -> None:
        self._policy = SnapshotPolicy(
            max_bytes=config.metadata_log_max_record_bytes_between_snapshots,
            max_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        )
        self._effects = effects
        self._is_leading = is_leading
        self._log_bytes = 0
        self._taken_ms = 0
        self._is_under_way = False

    def begin(self, leader: MetadataLeader, now: Instant) -> None:
        self._log_bytes = sum(len(batch) for batch in leader.batches_from(0))
        self._taken_ms = now.now_ms
        self._is_under_way = False

    def on_committed(self, log_bytes: int) -> None:
        self._log_bytes += log_bytes

    def take_if_due(self, image: MetadataImage, leader: MetadataLeader, now: Instant) -> None:
        age_ms = now.now_ms - self._taken_ms
        if self._is_under_way or not self._policy.is_due(log_bytes=self._log_bytes, age_ms=age_ms):
            return
        self._is_under_way = True
        work = partial(encode_snapshot, image, now_ms=now.wall_ms)
        then = partial(self._on_taken, image, leader, self._log_bytes)
        self._effects.append(RunInThread(work, then))

    def _on_taken(
        self,
        image: MetadataImage,
        leader: MetadataLeader,
        log_bytes: int,
        data: bytes | Exception,
        now: Instant,
    ) -> None:
        if not self._is_leading(leader):
            return
        self._is_under_way = False
        if isinstance(data, Exception):
            logger.error(
                "writing the metadata snapshot at offset %d failed: %r", image.offset, data
            )
            return
        leader.compact(end_of(image), data, now)
        self._log_bytes -= log_bytes
        self._taken_ms = now.now_ms
        logger.info("wrote the metadata snapshot at offset %d, %d bytes", image.offset, len(data))
