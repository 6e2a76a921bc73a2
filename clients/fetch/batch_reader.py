"""Record batches of partitions as they are in the log, undecoded, for copying.

Invariants:
    Batches of one partition are read in order, whole, and each once.
    Reading begins and ends at given offsets; the first and last batch may extend beyond them.

Not here: the copy (replay).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from ...protocol.topic_partition import TopicPartition
from ..security.security_options import ClientSecurity
from ..threads.io_thread import Steps
from ..wire.cluster_client import ClientConfig, ClusterClient
from .fetch_request import FetchConfig
from .fetch_state import FetchedRecords, FetchState, Position, StartAt
from .fetcher import Fetcher

FETCH_BYTES: Final = 16 * 1024 * 1024
PARTITION_BYTES: Final = 4 * 1024 * 1024
SHARED_WAIT_MS: Final = 10


class BatchReader:
    """Reader of batches, used by one thread; closes with `close` or `with`.

    Args:
        ranges: offsets [start, end) by partition; an empty range reads nothing.
        client: client whose connections are used; by default one of its own.
        max_wait_ms: maximum time that a broker waits for new records before it answers a fetch.
    """

    def __init__(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        *,
        bootstrap: str | None = None,
        isolation_level: int = 1,
        namespace: str | None = None,
        security: ClientSecurity | None = None,
        client: ClusterClient | None = None,
        max_wait_ms: int | None = None,
    ) -> None:
        self._ends = {key: end for key, (start, end) in ranges.items() if start < end}
        self._client = client or ClusterClient(
            bootstrap,
            namespace=namespace,
            config=ClientConfig(client_id="bradbury-replay", security=security),
        )
        if max_wait_ms is None:
            # Requests of the next reader would wait behind one parked at the end of a partition.
            max_wait_ms = 500 if client is None else SHARED_WAIT_MS
        self._fetcher = Fetcher(
            self._client,
            FetchConfig(
                min_bytes=1,
                max_wait_ms=max_wait_ms,
                max_bytes=FETCH_BYTES,
                max_partition_bytes=PARTITION_BYTES,
                isolation_level=isolation_level,
                reset=None,
            ),
            _nothing_to_find,
        )
        ends = self._client.close if client is None else self._fetcher.end
        self._finalizer = weakref.finalize(self, ends)
        try:
            for topic in {key.topic for key in self._ends}:
                self._client.run(self._client.topic(topic), 30_000)
            with self._fetcher.condition:  # else the fetcher would look up the positions
                self._fetcher.assign(self._ends, StartAt.EARLIEST)
                for key in self._ends:
                    self._fetcher.seek(key, ranges[key][0])
        except BaseException:
            self._finalizer()
            raise

    @property
    def is_done(self) -> bool:
        """Whether every partition was read to its end."""
        return not self._ends

    def read(self, timeout_ms: int = 1_000) -> FetchedRecords | None:
        """Return fetched batches of a partition; None after `timeout_ms`, or when all is read.

        Raises:
            OffsetOutOfRange: an offset is not, or no longer, in the log.
            KafkaError: the broker refuses.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        while self._ends:
            fetched = self._fetcher.buffer.take()
            if fetched is not None and fetched.is_current:
                key = fetched.state.topic_partition
                fetched.state.position = fetched.next_offset
                if fetched.next_offset >= self._ends[key]:
                    del self._ends[key]
                    self._fetcher.assign(self._ends, StartAt.EARLIEST)
                return fetched
            error = self._fetcher.buffer.take_error()
            if error is not None:
                raise error
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            with self._fetcher.condition:
                self._fetcher.condition.wait_for(self._fetcher.buffer.is_ready, left_s)
        return None

    def close(self) -> None:
        """Close the reader. Idempotent."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _nothing_to_find(_: list[FetchState]) -> Steps[dict[TopicPartition, Position]]:
    """Find no positions: every partition starts at a given offset."""
    return {}
    yield 0.0
