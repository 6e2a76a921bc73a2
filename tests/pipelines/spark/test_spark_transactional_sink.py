"""What does a task that writes exactly once do? Driven as Spark drives it, without Spark.

Against our broker, and against Apache Kafka, whose transactions are the ones that count.
"""

import io
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.pipelines.spark.options.spark_options import WriteOptions
from bradbury.pipelines.spark.tasks import handover, worker
from bradbury.pipelines.spark.tasks.sink_batch import MARKERS
from bradbury.pipelines.spark.tasks.spark_failure import ExactlyOnceUnavailable, ReplayRefused
from bradbury.pipelines.spark.tasks.spark_task import SparkTask, current_task
from bradbury.pipelines.spark.writing import transactional_sink
from bradbury.pipelines.spark.writing.transactional_sink import (
    Written,
    abort_batch,
    make_marker_topic,
    record_batch,
    write_exactly_once,
)
from bradbury.protocol.errors import (
    ApplicationRecoverable,
    ConnectionFailed,
    InvalidTransactionTimeout,
    MessageTooLarge,
    TransactionAbortable,
)
from bradbury.tests.compatibility.support.kafka_jars import require_kafka

_numbers = itertools.count()
END_OF_STREAM = b"\xff\xff\xff\xfc"


@pytest.fixture(
    scope="module",
    params=["ours", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.deep])],
)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "ours":
        yield request.getfixturevalue("bootstrap")
        return
    require_kafka()
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), heap="256m") as kafka:
        yield kafka.bootstrap_servers


def values_in(servers: str, topic: str, level: str = "read_committed") -> list[int]:
    with bradbury.Consumer(
        topic, bootstrap=servers, auto_offset_reset="earliest", isolation_level=level
    ) as consumer:
        ends = consumer.end_offsets()
        found: list[bytes] = []
        while any(consumer.position(key) < end for key, end in ends.items()):
            found += consumer.poll(100).column("value").to_pylist()
    return sorted(map(int, found))


def rows_of(numbers: Iterable[int]) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"%d" % number for number in numbers]})


@dataclass
class Sink:
    """A sink, and the tasks that write to it."""

    servers: str
    topic: str
    monkeypatch: pytest.MonkeyPatch
    executor: Path | None = None
    query: str = "query"
    run: str = "run 1"

    def options(self, *, job: str | None = None, **options: str) -> WriteOptions:
        given = {"kafka.bootstrap.servers": self.servers, "topic": self.topic, **options}
        return WriteOptions.parse(given, streaming=job is None)

    def run_task(self, batch_id: int | None, task: int, after: bytes) -> SparkTask:
        """The next write is this task's; outside of a query where there is no batch id."""
        query = (self.query, self.run) if batch_id is not None else (None, None)
        state = SparkTask(task, batch_id, *query, io.BufferedReader(io.BytesIO(after)))
        self.monkeypatch.setattr(transactional_sink, "current_task", lambda: state)
        return state

    def write(
        self,
        batch_id: int | None,
        rows: Iterable[int],
        *,
        task: int = 0,
        size: int = 10,
        after: bytes = END_OF_STREAM,
        job: str | None = None,
        ends: bool = True,
        **options: str,
    ) -> Written:
        """after: what follows the rows on the connection. job: it is a batch write. ends: what it
        leaves open is committed, as by a driver that ends before it records the batch.
        """
        self.run_task(batch_id, task, after)
        numbers = list(rows)
        batches = [rows_of(numbers[at : at + size]) for at in range(0, len(numbers), size)]
        made = self.options(job=job, **options)
        written = write_exactly_once(made, job, iter(batches))
        if ends and written.left_open is not None:
            transactional_sink._end_all(made, [written], is_commit=True)
            written = replace(written, left_open=None)
        return written

    def complete(self, batch_id: int, rows: Iterable[int]) -> None:
        """A whole batch of one task."""
        record_batch(self.options(), [self.write(batch_id, rows, ends=False)])

    def written(self, level: str = "read_committed") -> list[int]:
        return values_in(self.servers, self.topic, level)

    def restart(self) -> None:
        """As by a new executor: nothing is left in the process, and its directory is another."""
        for kept in list(worker._transactional.values()):
            worker.forget_transactional(kept)
        self.run = f"run {next(_numbers)}"
        if self.executor is not None:
            self.use(self.executor.parent / self.run)

    def use(self, executor: Path) -> None:
        """The next write is a task's of this executor, whose directory this is."""
        executor.mkdir(exist_ok=True)
        self.executor = executor
        self.monkeypatch.setenv(handover.LOCAL_DIRS, f"{executor},/another")

    def epoch(self, task: int = 0) -> int:
        """Of the transactional id: each commit raises it, and so does an initialization."""
        name = f"spark-{self.query}-{task}"
        with bradbury.Admin(self.servers) as admin:
            (one,) = admin.describe_transactions([name])
        return one.producer_epoch


@contextmanager
def another_worker() -> Iterator[None]:
    """What runs in here is in another Python worker, with producers of its own."""
    kept = dict(worker._transactional)
    worker._transactional.clear()
    yield
    for other in worker._transactional.values():
        other.producer.close(0)
    worker._transactional.clear()
    worker._transactional.update(kept)


@pytest.fixture(params=["handed over", "kept in the worker"])
def sink(
    request: pytest.FixtureRequest, servers: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Sink]:
    topic = f"sink-{next(_numbers)}"
    with bradbury.Admin(servers) as admin:
        admin.create_topic(topic, 2)
    make_marker_topic(WriteOptions(bootstrap=servers, topic=None, producer={}))
    one = Sink(servers, topic, monkeypatch, query=f"query of {topic}")
    monkeypatch.delenv(handover.LOCAL_DIRS, raising=False)
    if request.param == "handed over":
        one.use(tmp_path / "executor")
    yield one
    one.restart()


def test_batches_are_written_and_one_that_comes_again_is_not(sink: Sink) -> None:
    assert sink.write(0, range(25)).row_count == 25
    assert sink.write(1, range(25, 30)).row_count == 5
    assert sink.written() == list(range(30))
    again = sink.write(1, range(25, 30))
    assert (again.row_count, again.was_done) == (5, True)
    sink.restart()
    again = sink.write(1, range(25, 30), size=2)
    assert (again.row_count, again.was_done) == (5, True)
    sink.write(2, range(30, 40))
    assert sink.written("read_uncommitted") == list(range(40))


def test_an_input_that_breaks_off_between_two_batches_commits_nothing(sink: Sink) -> None:
    """To pyarrow a closed connection is the end of the stream; Spark says more behind its end."""
    with pytest.raises(ConnectionFailed, match="before it had all its rows"):
        sink.write(0, range(10), after=b"")
    assert sink.written() == []
    sink.write(0, range(25))
    assert sink.written() == list(range(25))


def test_of_two_attempts_at_once_the_older_is_fenced(sink: Sink) -> None:
    def rows_of_the_zombie() -> Iterator[pa.RecordBatch]:
        yield rows_of(range(5))
        worker._transactional.clear()  # the other attempt runs in another process
        sink.write(0, range(10))
        yield rows_of(range(5, 10))

    sink.run_task(0, 0, END_OF_STREAM)
    with pytest.raises((ApplicationRecoverable, TransactionAbortable)):
        write_exactly_once(sink.options(), None, rows_of_the_zombie())
    assert sink.written() == list(range(10))
    sink.restart()
    assert sink.write(0, range(10)).was_done
    assert sink.written() == list(range(10))


def test_a_kept_producer_whose_transactional_id_went_elsewhere_is_replaced(sink: Sink) -> None:
    sink.complete(0, range(5))
    sink.write(1, range(5, 10))
    ((key, kept),) = worker._transactional.items()
    worker._transactional.clear()
    sink.write(2, range(10, 15))  # in another process
    (other,) = worker._transactional.values()
    worker._transactional[key] = kept
    sink.write(3, range(15, 20))
    assert sink.written() == list(range(20))
    other.producer.close(0)


@pytest.mark.parametrize("sink", ["handed over"], indirect=True)
def test_workers_in_turn_hand_the_transactional_id_over(sink: Sink) -> None:
    sink.complete(0, range(5))
    sink.write(1, range(5, 10))
    first = sink.epoch()
    for batch in range(2, 8, 2):
        with another_worker():
            sink.write(batch, range(5 * batch, 5 * batch + 5))
        sink.write(batch + 1, range(5 * batch + 5, 5 * batch + 10))
    assert sink.epoch() == first + 6  # each commit's; nothing was initialized
    assert sink.written("read_uncommitted") == list(range(40))


@pytest.mark.parametrize("sink", ["handed over"], indirect=True)
def test_an_executor_that_another_has_followed_initializes_again(sink: Sink) -> None:
    sink.write(0, range(5))
    assert sink.executor is not None
    here, there = sink.executor, sink.executor.parent / "another executor"
    with another_worker():
        sink.use(there)
        sink.write(1, range(5, 10))
    before = sink.epoch()
    sink.use(here)
    sink.write(2, range(10, 15))
    assert sink.epoch() > before + 1
    with another_worker():
        sink.use(there)
        assert sink.write(2, range(10, 15)).was_done
    assert sink.written() == list(range(15))


@pytest.mark.parametrize("sink", ["handed over"], indirect=True)
def test_a_second_attempt_gets_nothing_from_the_first(sink: Sink) -> None:
    """The first has claimed the transactional id, and may still write."""
    sink.write(0, range(5))

    def rows_of_the_zombie() -> Iterator[pa.RecordBatch]:
        yield rows_of(range(5, 8))
        with another_worker():
            sink.write(1, range(5, 10))
        yield rows_of(range(8, 10))

    sink.run_task(1, 0, END_OF_STREAM)
    with pytest.raises((ApplicationRecoverable, TransactionAbortable)):
        write_exactly_once(sink.options(), None, rows_of_the_zombie())
    sink.write(2, range(10, 15))
    assert sink.written() == list(range(15))


@pytest.mark.parametrize("sink", ["handed over"], indirect=True)
def test_a_hand_over_that_is_lost_or_unreadable_costs_an_initialization(sink: Sink) -> None:
    sink.complete(0, range(5))
    broken = [None, b"", b"{}", b'{"producer": [1], "last": 1}']
    for batch, content in enumerate(broken, start=1):
        sink.write(batch, range(5 * batch, 5 * batch + 5))
        assert sink.executor is not None
        (file,) = sink.executor.iterdir()
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        before = sink.epoch()
    sink.write(5, range(25, 30))
    assert sink.epoch() > before + 1
    assert len(list(sink.executor.iterdir())) == 1
    assert sink.written() == list(range(30))


def test_producers_are_kept_in_bounded_number_and_used_again(sink: Sink) -> None:
    sink.complete(0, [0])
    for task in range(worker.MAX_TRANSACTIONAL + 2):
        sink.write(1, [1 + task], task=task)
    assert len(worker._transactional) == worker.MAX_TRANSACTIONAL
    last = list(worker._transactional.values())[-1]
    sink.write(2, [100], task=task)
    assert list(worker._transactional.values())[-1] is last
    assert sink.written() == [*range(task + 2), 100]


def test_a_task_without_rows_does_nothing(sink: Sink) -> None:
    assert sink.write(0, range(0)).batch is None
    assert not worker._transactional


def test_rows_that_cannot_be_written_leave_nothing_behind(sink: Sink) -> None:
    rows = [*range(10), 10**200]
    with pytest.raises(MessageTooLarge):
        sink.write(0, rows, **{"kafka.max.request.size": "200"})
    assert sink.written() == []


# --- a batch that comes again and is not the same --------------------------------------------


def test_other_rows_of_a_batch_are_refused(sink: Sink) -> None:
    sink.write(0, range(10))
    sink.restart()
    for other in (range(9), range(10, 20), range(40)):
        with pytest.raises(ReplayRefused, match=r"has written 10 rows.*Run the query as before"):
            sink.write(0, other)
    assert sink.written() == list(range(10))


def test_more_tasks_than_a_batch_had_are_refused_before_they_write(sink: Sink) -> None:
    messages = [sink.write(0, range(10)), sink.write(0, range(10, 20), task=1)]
    record_batch(sink.options(), messages)
    sink.restart()
    with pytest.raises(ReplayRefused, match=r"written by 2 tasks; task 2 had no rows"):
        sink.write(0, range(15, 20), task=2)
    assert sink.written() == list(range(20))
    sink.write(1, range(20, 25), task=2)  # the next batch may have as many as it likes
    assert sink.written() == list(range(25))


def test_fewer_tasks_than_a_batch_had_are_refused(sink: Sink) -> None:
    messages = [sink.write(0, range(10)), sink.write(0, range(10, 20), task=1)]
    again = [sink.write(0, range(10))]
    with pytest.raises(ReplayRefused, match="written by 2 tasks and is repeated with 1"):
        record_batch(sink.options(), again)  # the batch had not ended
    record_batch(sink.options(), messages)
    with pytest.raises(ReplayRefused, match="written by 2 tasks and is repeated with 1"):
        record_batch(sink.options(), again)
    record_batch(sink.options(), [sink.write(0, range(10)), messages[1]])


def test_more_tasks_than_a_batch_had_that_had_not_ended_double_nothing(sink: Sink) -> None:
    """Some of the tasks see that their rows are others. The others cannot know, and have written."""
    for task in (0, 1):  # and the driver ends before it records the batch
        sink.write(0, range(10 * task, 10 * task + 10), task=task)
    sink.restart()
    messages: list[Written | None] = [None] * 4
    for task in (3, 2):
        messages[task] = sink.write(0, range(5 * task, 5 * task + 5), task=task, ends=False)
    for task in (1, 0):
        with pytest.raises(ReplayRefused, match=r"has written 10 rows.*Run the query as before"):
            sink.write(0, range(5 * task, 5 * task + 5), task=task)
    abort_batch(sink.options(), messages)
    assert sink.written() == list(range(20))
    sink.restart()  # as the error says: as before
    again = [sink.write(0, range(10 * task, 10 * task + 10), task=task) for task in (0, 1)]
    assert all(one.was_done for one in again)
    record_batch(sink.options(), again)
    sink.write(1, range(20, 30))
    assert sink.written() == list(range(30))


def test_a_task_that_had_rows_and_has_none_now_is_seen_before_anything_is_doubled(
    sink: Sink,
) -> None:
    sink.write(0, range(10), task=1)
    sink.restart()
    again = [sink.write(0, range(10), ends=False), sink.write(0, [], task=1)]
    with pytest.raises(ReplayRefused, match=r"task 1 has written 10 rows.*has none now"):
        record_batch(sink.options(), again)
    abort_batch(sink.options(), again)
    assert sink.written() == list(range(10))


def test_the_first_batch_of_a_run_is_seen_when_its_driver_has_all_tasks(sink: Sink) -> None:
    """Also a batch that an earlier run has begun with as many tasks, of which one had not ended."""
    sink.write(0, range(10))
    sink.restart()
    again = [sink.write(0, range(10)), sink.write(0, range(10, 20), task=1, ends=False)]
    assert sink.written() == list(range(10))
    record_batch(sink.options(), again)
    assert sink.written() == list(range(20))
    sink.write(1, range(20, 25))
    assert sink.written() == list(range(25)), "the next ones are committed by their tasks"


def test_what_was_left_open_for_too_long_is_an_error_of_the_batch(sink: Sink) -> None:
    written = sink.write(0, range(10), ends=False)
    with bradbury.Admin(sink.servers) as admin:
        admin.fence_producers([f"spark-{sink.query}-0"])
    with pytest.raises(ApplicationRecoverable):
        record_batch(sink.options(), [written])
    sink.restart()
    sink.complete(0, range(10))
    assert sink.written() == list(range(10))


def test_a_sink_id_of_another_query_is_refused(sink: Sink) -> None:
    sink.write(3, range(10), sinkId=sink.topic)
    sink.restart()
    sink.query = "another"
    with pytest.raises(ReplayRefused, match=r"Was the checkpoint deleted\? Give a new sinkId"):
        sink.write(0, range(10, 20), sinkId=sink.topic)
    assert sink.written() == list(range(10))


# --- batch writes ----------------------------------------------------------------------------


def test_a_batch_write_with_a_number_of_its_own_is_written_once(sink: Sink) -> None:
    for number in (20261123, 20261123, 20261124):
        options = {"sinkId": sink.topic, "batchId": str(number)}
        sink.write(None, range(10), job=str(next(_numbers)), **options)
    assert sink.written() == sorted([*range(10), *range(10)])


def test_a_batch_write_with_a_lower_number_is_refused(sink: Sink) -> None:
    """It would be taken for one that was written."""
    numbered = {number: {"sinkId": sink.topic, "batchId": str(number)} for number in (4, 5)}
    messages = [sink.write(None, range(10), job=str(next(_numbers)), **numbered[5])]
    refused = r"has written batchId 5, and batchId 4 is lower.*Give this write a higher batchId"
    with pytest.raises(ReplayRefused, match=refused):
        sink.write(None, range(10, 20), job=str(next(_numbers)), **numbered[4])
    record_batch(sink.options(job="job", **numbered[5]), messages)
    with pytest.raises(ReplayRefused, match=refused):  # also by a task that had no rows before
        sink.write(None, range(10, 20), task=1, job=str(next(_numbers)), **numbered[4])
    assert sink.written() == list(range(10))


def test_attempts_of_one_job_are_one_write_and_jobs_are_not(sink: Sink) -> None:
    options = {"deliveryGuarantee": "exactly-once"}
    for job in ("1", "1", "2"):
        sink.write(None, range(10), job=f"{sink.topic}-{job}", **options)
    assert sink.written() == sorted([*range(10), *range(10)])


def test_within_a_query_a_writer_needs_a_name_of_its_own(sink: Sink) -> None:
    with pytest.raises(ValueError, match="needs the option sinkId"):
        sink.write(0, range(10), job="job", deliveryGuarantee="exactly-once")
    with pytest.raises(ValueError, match="needs the option batchId"):
        sink.write(None, range(10), job="job", sinkId=sink.topic)


# --- what is missing -------------------------------------------------------------------------


def test_without_what_spark_knows_it_is_refused(sink: Sink) -> None:
    with pytest.raises(
        ExactlyOnceUnavailable, match="Set the option deliveryGuarantee to at-least"
    ):
        sink.write(None, range(10))
    with pytest.raises(
        ExactlyOnceUnavailable, match="Set the option deliveryGuarantee to at-least"
    ):
        current_task()


def test_a_time_out_that_the_brokers_do_not_allow_names_the_option(sink: Sink) -> None:
    options = {"kafka.transaction.timeout.ms": "2000000000"}
    with pytest.raises(InvalidTransactionTimeout, match=r"lower the option kafka\.transaction"):
        sink.write(0, range(10), **options)


def test_markers_are_offsets_of_a_topic_of_their_own(sink: Sink) -> None:
    record_batch(sink.options(), [sink.write(7, range(10), sinkId=sink.topic)])
    with bradbury.Admin(sink.servers) as admin:
        for group in (f"spark-{sink.topic}-0", f"spark-{sink.topic}"):
            assert {key: one.offset for key, one in admin.group_offsets(group).items()} == {
                MARKERS: 7
            }
