"""Handling of a leader's answer for one partition: records, an error, or a truncated log.

The next fetch offset is read from the headers of the answer's batches, so that the next request is
sent before anything is decoded.

Source: AbstractFetch.handleFetchSuccess, FetchCollector.handleInitializeErrors,
SubscriptionState.maybeCompleteValidation in apache/kafka clients/.../consumer/internals.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

from ...protocol.error_code import ErrorCode
from ...protocol.errors import CorruptMessage, OffsetOutOfRange, error_for
from ...protocol.messages.fetch import PartitionData
from ...protocol.schema import ZERO_UUID
from ..wire.cluster_view import ClusterView
from .fetch_buffer import FetchBuffer
from .fetch_failures import FetchFailures
from .fetch_request import FetchConfig, larger_limit, last_batch
from .fetch_state import NEVER, NO_REPLICA, FetchedRecords, FetchState

logger = logging.getLogger(__name__)

REPLICA_SECONDS: Final = 300.0
"""Seconds after which the leader chooses the preferred read replica again (metadata.max.age.ms)."""


class FetchResponses:
    """Used on the I/O thread, with the fetcher's condition.

    failures: those of all partitions. view: the metadata as the client has it now.
    """

    def __init__(
        self,
        config: FetchConfig,
        buffer: FetchBuffer,
        failures: FetchFailures,
        *,
        view: Callable[[], ClusterView],
        retry_backoff_ms: int,
    ) -> None:
        self._config = config
        self._buffer = buffer
        self._failures = failures
        self._view = view
        self._retry_backoff_ms = retry_backoff_ms

    def on_partition(
        self, state: FetchState, generation: int, fetch_offset: int, data: PartitionData
    ) -> bool:
        """Handle an answer; return whether the metadata has to be refreshed.

        Args:
            generation, fetch_offset: of the partition when the request was sent.
        """
        if generation != state.generation:
            return False
        if data.error_code:
            return self._on_partition_error(state, fetch_offset, data)
        if data.preferred_read_replica >= 0:
            state.replica = data.preferred_read_replica
            state.replica_until = time.monotonic() + REPLICA_SECONDS
            return False
        if data.diverging_epoch.end_offset >= 0:
            return self._on_truncation(state, fetch_offset, data.diverging_epoch.end_offset)
        self._failures.succeeded(state.topic_partition)
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        records = data.records
        if not records:
            return False
        assert isinstance(records, memoryview)
        last = last_batch(records)
        if last is None:
            self._on_cut(state, fetch_offset, records)
            return False
        next_offset = last.next_offset
        state.fetch_offset = max(fetch_offset, next_offset)
        state.fetch_epoch = last.leader_epoch
        state.truncated_in = None
        if state.topic_id == ZERO_UUID:
            state.topic_id = self._topic_id(state)
        state.max_bytes = self._config.max_partition_bytes
        state.buffered_bytes += len(records)
        aborted = None
        if self._config.isolation_level:
            aborted = [
                (one.producer_id, one.first_offset) for one in data.aborted_transactions or ()
            ]
        self._buffer.add(
            FetchedRecords(
                state, generation, fetch_offset, next_offset, records, aborted, last.leader_epoch
            )
        )
        return False

    def _on_cut(self, state: FetchState, fetch_offset: int, records: memoryview) -> None:
        try:
            state.max_bytes = larger_limit(
                records, state.max_bytes, state.topic_partition, fetch_offset
            )
        except CorruptMessage as error:
            state.retry_at = self._retry_at()
            self._buffer.raise_in_poll(error, [state])

    def _on_partition_error(
        self, state: FetchState, fetch_offset: int, data: PartitionData
    ) -> bool:
        code, key = data.error_code, state.topic_partition
        state.retry_at = self._retry_at()
        if state.replica != NO_REPLICA:  # fall back to the leader
            state.replica = NO_REPLICA
            return True
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.buffered_bytes or state.position != fetch_offset:
                return False  # buffered records come first; then this offset is fetched again
            if self._config.reset is None:
                self._buffer.raise_in_poll(
                    OffsetOutOfRange(
                        f"{key}: offset {fetch_offset} is not, or no longer, in the log; seek, "
                        'or set auto_offset_reset="earliest" or "latest"'
                    ),
                    [state],
                )
                state.retry_at = NEVER  # until poll has raised it, or a seek
            else:
                state.restart(self._config.reset)
            return False
        error = error_for(code)
        if not error.retriable or code == ErrorCode.CORRUPT_MESSAGE:
            # Raised, as by Kafka's consumer: the broker has no other copy to read.
            self._buffer.raise_in_poll(
                error_for(code, f"{key} at offset {fetch_offset}: {error}"), [state]
            )
        else:
            self._failures.failed(key, error, time.monotonic())
        return True

    def _on_truncation(self, state: FetchState, fetch_offset: int, end_offset: int) -> bool:
        """Handle a truncation: the leader's log ends before fetch_offset (unclean election, ...).

        The log of a topic that was deleted and created again looks the same; its records before
        end_offset are new ones, which newer metadata tells by the topic's id.

        Source: SubscriptionState.maybeCompleteValidation, LogTruncationException (KIP-320).
        """
        key = state.topic_partition
        if state.buffered_bytes or state.position != fetch_offset:
            state.retry_at = self._retry_at()
            return False  # buffered records come first; then this offset is fetched again
        view = self._view()
        if state.truncated_in is None or state.truncated_in is view:
            state.truncated_in = view
            state.retry_at = self._retry_at()
            return True
        topic_id = self._topic_id(state)
        if ZERO_UUID not in (topic_id, state.topic_id) and topic_id != state.topic_id:
            self._on_recreated(state)
            return False
        known = min(end_offset, fetch_offset)
        said = (
            f"{key}: the log was truncated to offset {known}, below the fetch offset {fetch_offset}"
        )
        if self._config.reset is None:
            self._buffer.raise_in_poll(
                OffsetOutOfRange(
                    f"{said}, since replicas with the records are lost; seek, to {known} for "
                    'example, or set auto_offset_reset="earliest" or "latest"'
                ),
                [state],
            )
            state.retry_at = NEVER  # until poll has raised it, or a seek
            return False
        logger.warning("%s, since replicas with the records are lost; continuing there", said)
        state.seek(known)
        return False

    def _on_recreated(self, state: FetchState) -> None:
        """Begin a topic that was deleted and created again as one without a position."""
        said = f"{state.topic_partition}: the topic was deleted and created again"
        if self._config.reset is None:
            self._buffer.raise_in_poll(
                OffsetOutOfRange(
                    f'{said}; seek, to 0 for example, or set auto_offset_reset="earliest" or '
                    '"latest"'
                ),
                [state],
            )
            state.retry_at = NEVER  # until poll has raised it, or a seek
            return
        logger.warning("%s; resetting the position by auto_offset_reset", said)
        state.restart(self._config.reset)

    def _topic_id(self, state: FetchState) -> UUID:
        known = self._view().topics.get(state.topic_partition.topic)
        return ZERO_UUID if known is None else known.topic_id

    def _retry_at(self) -> float:
        return time.monotonic() + self._retry_backoff_ms / 1000
