"""Sink with exactly-once: all rows that a task has of a batch, and a marker, in one transaction.

    transactional.id  spark-{sinkId}-{partition}; for groups and markers see sink_batch

    A task initializes its transactional id: another attempt of it, which may still run on a lost
    executor, is fenced from then on, and its open transaction is aborted. Then the task reads the
    markers, as no other attempt can change them any more; then it writes.

Invariants:
    Rows and their marker are committed together or not at all.
    A task commits after Spark's end marker for its rows, and when all are acknowledged.
    A task without rows writes nothing, and no marker.
    A transactional id is reused without being initialized only in the run of the query in which it
    made the last commit, by the one worker that owns it, or has claimed it from its former owner
    (handover). The first request fails if another producer has initialized it since.
    In the first batch of a run tasks leave their transactions open, and the driver commits them,
    when it has seen that what an earlier run wrote of the batch is repeated (`record_batch`).

Not here: what is refused (sink_batch), how rows are sent (row_sender).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from ....clients.admin.group_admin import list_groups
from ....clients.admin.group_offsets_admin import (
    CommittedOffset,
    alter_group_offsets,
    group_offsets,
)
from ....clients.admin.topics_admin import NewTopic, ensure_topic
from ....clients.producer.producer import Producer
from ....clients.producer.transactions.transaction_manager import OpenTransaction
from ....clients.wire.cluster_client import ClusterClient
from ....clients.wire.record_metadata import OffsetAndMetadata
from ....protocol.errors import (
    ConnectionFailed,
    InvalidTransactionTimeout,
    KafkaError,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from ....protocol.topic_partition import TopicPartition, TopicPartitionPair
from ...ranges.reading_client import reading_client
from ..options.spark_options import WriteOptions
from ..tasks import worker
from ..tasks.handover import Handover, claim, handover_file, offer
from ..tasks.sink_batch import (
    MARKERS,
    BatchMarker,
    SinkBatch,
    TaskMarker,
    check_all_repeated,
    check_same_rows,
    check_same_tasks,
    is_done,
    may_be_repeated,
)
from ..tasks.spark_failure import ExactlyOnceUnavailable
from ..tasks.spark_task import SparkTask, current_task
from ..tasks.worker import KeptProducer
from .row_sender import RowSender, content_bytes

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 60_000
RETRY_BACKOFF_MS: Final = 20
"""Less than the producers' 100: a new producer mostly waits for the markers of a commit."""
AT_ONCE: Final = 8
"""Number of transactions that the driver ends at once."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """Result of one task. ends: one past the last offset, by partition.

    batch: batch that the rows belong to, with exactly-once and if there are rows; else None.
    was_done: whether the rows were in the log before this run. partition: of the task. left_open:
    transaction of the rows, which the driver has to end.
    """

    row_count: int
    ends: dict[TopicPartitionPair, int] = field(default_factory=dict)
    batch: SinkBatch | None = None
    was_done: bool = False
    partition: int = -1
    left_open: OpenTransaction | None = None


def make_marker_topic(options: WriteOptions) -> None:
    """Create the topic of the markers if it does not exist."""
    client = reading_client(options.bootstrap, options.fetch)
    wanted = NewTopic(MARKERS.topic, 1, configs={"cleanup.policy": "compact"})
    try:
        client.run(ensure_topic(client, wanted, timeout_ms=TIMEOUT_MS), TIMEOUT_MS)
    except KafkaError as error:
        raise ExactlyOnceUnavailable(
            f"exactly once needs topic {MARKERS.topic}, which cannot be created ({error}); it has "
            "one partition and no records"
        ) from error


def write_exactly_once(
    options: WriteOptions, job_id: str | None, iterator: Iterator[pa.RecordBatch]
) -> Written:
    """Commit all rows in one transaction, unless they are in the log already. Drains the iterator.

    job_id: a name that no other batch write has; None in a stream.

    Raises:
        ReplayRefused: the batch was written before with other rows.
        ExactlyOnceUnavailable: brokers lack transactions, or Spark lacks task information.
        ValueError, KafkaError: as RowSender. No row is committed.
    """
    task = current_task()
    batch = _batch_of(options, task, job_id)
    rows = (one for one in iterator if one.num_rows)
    first = next(rows, None)
    if first is None:
        return Written(0)
    kept = _producer_of(options, task, batch)
    is_begun = _continued(kept, task, batch)
    if not is_begun:
        kept = _taken_over(options, task, batch)
    try:
        if is_done(batch, task.partition, kept.last, kept.all_done):
            return _compared(options, task, batch, kept, chain([first], rows))
        leaves_open = not is_begun and may_be_repeated(batch, kept.all_done)
        if not is_begun:
            kept.producer.begin()
        written = _write(options, task, batch, kept, chain([first], rows), leaves_open=leaves_open)
    except BaseException:
        worker.forget_transactional(kept)
        raise
    if batch.is_private or leaves_open:
        worker.forget_transactional(kept)
    else:
        _hand_over(kept, task)
    return written


def record_batch(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit what tasks have left open, and the batch's marker with the number of tasks: in the
    driver, after all tasks have succeeded.

    Raises:
        ReplayRefused: the batch was written before, by another number of tasks. Nothing that was
            left open is committed.
        KafkaError: a transaction cannot be committed, as it was open for too long, for example. The
            batch has to be repeated.
    """
    written = [one for one in messages if isinstance(one, Written) and one.batch is not None]
    batch = written[0].batch if written else None
    if batch is None or batch.is_private:
        return
    client = reading_client(options.bootstrap, options.fetch)
    count = len(messages)
    left_open = [one for one in written if one.left_open is not None]
    if left_open or any(one.was_done for one in written):
        known = _batch_marker(_committed(client, [batch.group])[batch.group])
        if known is not None and known.batch_id > batch.batch_id:
            return
        if known is not None and known.batch_id == batch.batch_id:
            check_same_tasks(batch, known.task_count, count)
            return
        repeated = {one.partition for one in written if one.was_done}
        check_all_repeated(batch, _task_markers(client, batch), repeated, count)
        _end_all(options, left_open, is_commit=True)
    marker = BatchMarker(batch.batch_id, batch.query_id, count, batch.run)
    committed = {MARKERS: CommittedOffset(marker.batch_id, metadata=marker.metadata)}
    client.run(
        alter_group_offsets(client, batch.group, committed, timeout_ms=TIMEOUT_MS), TIMEOUT_MS
    )


def abort_batch(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort what tasks have left open, in the driver, if a task or `record_batch` has failed.

    What cannot be aborted, is when the task runs again, or its transaction times out.
    """
    written = [one for one in messages if isinstance(one, Written) and one.left_open is not None]
    try:
        _end_all(options, written, is_commit=False)
    except (KafkaError, ConnectionFailed) as error:
        logger.debug("a transaction is not aborted: %s", error)


def _end_all(options: WriteOptions, written: Sequence[Written], *, is_commit: bool) -> None:
    """End the transactions that tasks have left open. Raises the first failure, after all."""

    def end(one: Written) -> None:
        assert one.batch is not None
        assert one.left_open is not None
        with _new_producer(options, one.batch.task_id(one.partition)) as producer:
            producer.transaction_calls.resume(one.left_open)
            if is_commit:
                producer.commit()
            else:
                producer.abort()

    if written:
        with ThreadPoolExecutor(min(len(written), AT_ONCE)) as pool:
            for ended in [pool.submit(end, one) for one in written]:
                ended.result()


def _task_markers(client: ClusterClient, batch: SinkBatch) -> dict[int, TaskMarker]:
    """Last marker of each task that this sink ever had, by its partition."""
    prefix = batch.task_id(0)[:-1]
    listed = client.run(list_groups(client, timeout_ms=TIMEOUT_MS), TIMEOUT_MS)
    numbers = {
        int(one.group_id.removeprefix(prefix)): one.group_id
        for one in listed
        if one.group_id.startswith(prefix) and one.group_id.removeprefix(prefix).isdecimal()
    }
    if not numbers:
        return {}
    found = _committed(client, list(numbers.values()))
    markers = {number: _task_marker(found[name]) for number, name in numbers.items()}
    return {number: marker for number, marker in markers.items() if marker is not None}


def _batch_of(options: WriteOptions, task: SparkTask, job_id: str | None) -> SinkBatch:
    query_id = task.query_id or ""
    if job_id is None:
        if task.batch_id is None or task.query_id is None:
            raise ExactlyOnceUnavailable(
                "this version of Spark does not say which batch of which query a task writes"
            )
        return SinkBatch(
            options.sink_id or query_id, task.batch_id, query_id, run=task.run_id or ""
        )
    if options.sink_id is None:
        if task.batch_id is None:
            return SinkBatch(job_id, 0, "", is_private=True)
        raise ValueError(
            "a write within foreachBatch with deliveryGuarantee=exactly-once needs the option "
            "sinkId: its own name for each writer, the same after a restart"
        )
    batch_id = task.batch_id if options.batch_id is None else options.batch_id
    if batch_id is None:
        raise ValueError(
            f"sinkId {options.sink_id!r} outside of a streaming query needs the option batchId: "
            "the number of this write, higher than that of the write before it"
        )
    # Within foreachBatch the run is the query's; a batch write is one of its own.
    run = job_id if task.batch_id is None else task.run_id
    return SinkBatch(options.sink_id, batch_id, query_id, run=run or "")


def _producer_of(options: WriteOptions, task: SparkTask, batch: SinkBatch) -> KeptProducer:
    """Producer of this process for the transactional id, which it may not own yet."""
    transactional_id = batch.task_id(task.partition)
    run = (task.run_id, replace(options, batch_id=None))
    kept = worker.kept_transactional(options.bootstrap, transactional_id)
    if kept is not None:
        if kept.run == run:
            return kept
        worker.forget_transactional(kept)
    producer = _new_producer(options, transactional_id)
    kept = KeptProducer(producer, options.bootstrap, transactional_id, run)
    worker.keep_transactional(kept)
    return kept


def _new_producer(options: WriteOptions, transactional_id: str) -> Producer:
    return Producer(
        options.bootstrap,
        **{"retry_backoff_ms": RETRY_BACKOFF_MS, **options.producer_settings},
        transactional_id=transactional_id,
        transaction_timeout_ms=options.transaction_timeout_ms,
    )


def _continued(kept: KeptProducer, task: SparkTask, batch: SinkBatch) -> bool:
    """Whether this worker owns the transactional id already; then begins a transaction with it.

    False: no worker of this run has it, or another producer has initialized it: the task's last
    batch is then unknown.
    """
    if task.batch_id is None and not batch.is_private:
        # A batch write that has failed may be repeated in the same session, by other tasks.
        worker.forget_transactional(kept)
        return False
    if not kept.is_owner and not _claimed(kept, task):
        return False
    last = kept.last
    if last is not None and last.query_id == batch.query_id and last.batch_id < batch.batch_id:
        try:
            kept.producer.begin()
            kept.producer.send_offsets({MARKERS: _committable(last)}, kept.transactional_id)
        except (KafkaError, ConnectionFailed) as error:
            logger.debug("%s: initializing transactions again: %s", kept.transactional_id, error)
        else:
            return True
    worker.forget_transactional(kept)
    return False


def _claimed(kept: KeptProducer, task: SparkTask) -> bool:
    file = handover_file(kept.bootstrap, kept.transactional_id, task.run_id)
    handover = None if file is None else claim(file)
    if handover is None:
        return False
    kept.producer.transaction_calls.resume(handover.identity)
    kept.is_owner, kept.last, kept.all_done = True, handover.last, handover.all_done
    return True


def _hand_over(kept: KeptProducer, task: SparkTask) -> None:
    """Offer the transactional id to whichever worker of this executor has the next batch."""
    file = handover_file(kept.bootstrap, kept.transactional_id, task.run_id)
    if file is None or kept.last is None:
        return
    identity = kept.producer.transaction_calls.release()
    if identity is not None:
        kept.is_owner = False
        offer(file, Handover(identity, kept.last, kept.all_done))


def _taken_over(options: WriteOptions, task: SparkTask, batch: SinkBatch) -> KeptProducer:
    """Producer that has initialized the transactional id, with the markers read."""
    kept = _producer_of(options, task, batch)
    try:
        kept.producer.init_transactions()
        kept.is_owner = True
        client = reading_client(options.bootstrap, options.fetch)
        found = _committed(client, [kept.transactional_id, batch.group])
        kept.last = _task_marker(found[kept.transactional_id])
        kept.all_done = _batch_marker(found[batch.group])
    except InvalidTransactionTimeout as error:
        worker.forget_transactional(kept)
        raise InvalidTransactionTimeout(
            f"{error}; lower the option kafka.transaction.timeout.ms, which is "
            f"{options.transaction_timeout_ms}"
        ) from error
    except (TransactionalIdAuthorizationFailed, UnsupportedVersion) as error:
        worker.forget_transactional(kept)
        raise ExactlyOnceUnavailable(f"the brokers refuse transactions ({error})") from error
    except BaseException:
        worker.forget_transactional(kept)
        raise
    return kept


def _write(
    options: WriteOptions,
    task: SparkTask,
    batch: SinkBatch,
    kept: KeptProducer,
    rows: Iterable[pa.RecordBatch],
    *,
    leaves_open: bool,
) -> Written:
    sender = RowSender(kept.producer, options)
    size = 0
    for one in rows:
        sender.send(one)
        size += content_bytes(one)
    _check_input(task)
    marker = TaskMarker(
        batch.batch_id, batch.query_id, options.topic, sender.row_count, size, batch.run
    )
    kept.producer.send_offsets({MARKERS: _committable(marker)}, kept.transactional_id)
    left_open = None
    if leaves_open:
        ends = sender.finish()
        left_open = kept.producer.transaction_calls.release_open()
    else:
        kept.producer.commit()
        kept.last = marker
        ends = sender.finish()
    return Written(sender.row_count, ends, batch, partition=task.partition, left_open=left_open)


def _compared(
    options: WriteOptions,
    task: SparkTask,
    batch: SinkBatch,
    kept: KeptProducer,
    rows: Iterable[pa.RecordBatch],
) -> Written:
    """Result of a batch written before. Raises ReplayRefused if its rows differ now."""
    count = size = 0
    for one in rows:
        count += one.num_rows
        size += content_bytes(one)
    _check_input(task)
    assert kept.last is not None
    come_again = TaskMarker(batch.batch_id, batch.query_id, options.topic, count, size)
    check_same_rows(batch, task.partition, kept.last, come_again)
    return Written(count, {}, batch, was_done=True, partition=task.partition)


def _check_input(task: SparkTask) -> None:
    if not task.has_all_input():
        raise ConnectionFailed("the task ended before it had all its rows; none is committed")


def _committed(
    client: ClusterClient, groups: Sequence[str]
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    return client.run(group_offsets(client, groups, timeout_ms=TIMEOUT_MS), TIMEOUT_MS)


def _committable(marker: TaskMarker) -> OffsetAndMetadata:
    return OffsetAndMetadata(marker.batch_id, marker.metadata)


def _task_marker(offsets: Mapping[TopicPartition, CommittedOffset]) -> TaskMarker | None:
    found = offsets.get(MARKERS)
    return None if found is None else TaskMarker.parse(found.offset, found.metadata)


def _batch_marker(offsets: Mapping[TopicPartition, CommittedOffset]) -> BatchMarker | None:
    found = offsets.get(MARKERS)
    return None if found is None else BatchMarker.parse(found.offset, found.metadata)
