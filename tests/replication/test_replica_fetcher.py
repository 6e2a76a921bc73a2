"""What a follower does when its own disk, its leader, or the metadata changes under it."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from bradbury.cluster.broker_config import BrokerConfig
from bradbury.cluster.partition.follower_state import TruncateFullyAndStartAt
from bradbury.protocol.errors import ConnectionFailed, KafkaStorageError
from bradbury.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import encode_records
from bradbury.replication.effects import Effects, RunWork, SendFetch, SuspectNode
from bradbury.replication.followers.replica_fetcher import (
    FIRST_BACKOFF_MS,
    MAX_BACKOFF_MS,
    FollowedPartition,
    ReplicaFetcher,
)
from bradbury.replication.partition.conversion_queue import ConversionMemory
from bradbury.replication.partition.replica import Replica
from bradbury.replication.procedure import ProcedureSteps
from bradbury.storage.disk.storage_failure import DirectoryHealth
from bradbury.storage.log.partition_log import PartitionLog
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log

GOOD, BAD = UUID(int=1), UUID(int=2)
LEADER = 9


class Node:
    """Follows two topics of one leader, each in a log directory of its own."""

    node_id = 1
    broker_epoch = 1
    config = BrokerConfig()

    def __init__(self, folder: Path) -> None:
        self.effects: Effects = []
        self.changed: dict[Replica, None] = {}
        self.conversion_memory = ConversionMemory()
        self.refuses_gaps = False
        self.waits_ms: dict[str, float] = {}
        self.throttle = self
        self.logs: dict[UUID, PartitionLog] = {}
        self.fetcher = ReplicaFetcher(self, LEADER)
        for topic_id in (GOOD, BAD):
            log = open_log(folder / str(topic_id), health=DirectoryHealth())
            self.logs[topic_id] = log
            replica = Replica(f"t{topic_id.int}", 0, log, self)
            self.fetcher.follow(FollowedPartition(topic_id, replica, 1))

    def wait_to_receive_ms(self, replica: Replica) -> float:
        return self.waits_ms.get(replica.topic, 0.0)

    def on_received(self, replica: Replica, size: int) -> None: ...

    def on_storage_failure(self) -> None:
        """As the replica manager: partitions of a directory that is offline are followed no more."""
        for topic_id, log in self.logs.items():
            if not log.health.is_online:
                self.fetcher.leave((topic_id, 0))

    def note_gaps(self, log: PartitionLog) -> ProcedureSteps:
        """As LogFlusher, which writes it to the disk."""
        if self.refuses_gaps:
            raise KafkaStorageError("no space left")
        log.compaction.note_gaps(0)
        yield []

    def work(self, now_ms: int) -> None:
        """All that was handed out to be done in threads."""
        while any(isinstance(each, RunWork) for each in self.effects):
            for effect in [each for each in self.effects if isinstance(each, RunWork)]:
                self.effects.remove(effect)
                effect.work.run()
                effect.step.on_work_done(effect.work, None, now_ms)

    def question(self, now_ms: int) -> dict[UUID, int]:
        """What is asked now: offsets by topic."""
        self.effects.clear()
        self.fetcher.on_tick(now_ms)
        [sent] = [each for each in self.effects if isinstance(each, SendFetch)]
        return {t.topic_id: p.fetch_offset for t in sent.request.topics for p in t.partitions}

    def answer(self, now_ms: int, *, session_id: int = 5, gap: int = 0) -> None:
        """One batch of each topic, `gap` offsets behind the end of its log."""
        responses = []
        for topic_id, log in self.logs.items():
            batch = make_batch()
            batch[0:8] = (log.log_end_offset + gap).to_bytes(8, "big")
            batch[12:16] = (1).to_bytes(4, "big")
            data = PartitionData(partition_index=0, records=bytes(batch), high_watermark=0)
            responses.append(FetchableTopicResponse(topic_id=topic_id, partitions=[data]))
        response = FetchResponse(session_id=session_id, responses=responses)
        self.fetcher.on_fetched(response, now_ms, 1_000)
        self.work(now_ms)


def test_a_failed_disk_does_not_keep_it_from_following_what_is_on_others(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.question(0) == {GOOD: 0, BAD: 0}
    node.logs[BAD].health.fail("writing", OSError(5, "Input/output error"))
    node.answer(1)
    assert node.logs[GOOD].log_end_offset == 1
    for now_ms in (2, 2 + 2 * FIRST_BACKOFF_MS):
        assert node.question(now_ms).get(GOOD, 1) >= 1
        node.answer(now_ms + 1)
    assert node.logs[GOOD].log_end_offset == 3


def test_a_gap_is_appended_when_the_disk_says_that_there_may_be_some(tmp_path: Path) -> None:
    """A start would take it for a loss, and cut what was said to be here."""
    node = Node(tmp_path)
    node.refuses_gaps = True
    assert node.question(0) == {GOOD: 0, BAD: 0}
    node.answer(1, gap=3)
    assert node.logs[GOOD].log_end_offset == 0
    node.refuses_gaps = False
    now_ms = 2 + 2 * FIRST_BACKOFF_MS
    assert node.question(now_ms) == {GOOD: 0, BAD: 0}
    node.answer(now_ms + 1, gap=3)
    assert node.logs[GOOD].log_end_offset == 0, "noted, and asked for again"
    assert node.question(now_ms + 2) == {GOOD: 0, BAD: 0}
    node.answer(now_ms + 3, gap=3)
    assert node.logs[GOOD].log_end_offset == 4


def test_a_leader_waits_no_longer_than_until_a_throttled_partition_is_due(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.waits_ms[f"t{BAD.int}"] = 200.0
    assert node.question(60_000) == {GOOD: 0}
    [sent] = [each for each in node.effects if isinstance(each, SendFetch)]
    assert sent.request.max_wait_ms == 200 < node.config.replica_fetch_wait_max_ms


def test_nothing_is_asked_when_nothing_is_followed_any_more(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.question(0)
    node.answer(1)
    for topic_id in (GOOD, BAD):
        assert node.fetcher.next_deadline_ms is not None
        node.fetcher.leave((topic_id, 0))
    assert node.fetcher.next_deadline_ms is None


def test_a_leader_that_is_gone_is_reported_and_asked_again_from_the_start(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.question(0)
    node.answer(1)
    node.question(2)
    node.effects.clear()
    node.fetcher.on_unreachable(ConnectionFailed("gone"), 3)
    assert node.effects == [SuspectNode(LEADER)]
    assert node.fetcher.next_deadline_ms == 3 + FIRST_BACKOFF_MS
    assert node.question(3 + FIRST_BACKOFF_MS) == {GOOD: 1, BAD: 1}


def test_nothing_is_appended_where_another_leader_came_while_its_epoch_was_written(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    node.question(0)
    followed = node.fetcher._partitions[GOOD, 0]
    batch = make_batch()
    batch[12:16] = (1).to_bytes(4, "big")
    data = PartitionData(partition_index=0, records=bytes(batch), high_watermark=0)
    response = FetchResponse(
        session_id=5, responses=[FetchableTopicResponse(topic_id=GOOD, partitions=[data])]
    )
    node.fetcher.on_fetched(response, 1, 1_000)
    assert node.fetcher.is_working, "the new leader epoch is on its way to the disk"
    node.fetcher.leave(followed.partition_id)
    node.work(2)
    assert node.logs[GOOD].log_end_offset == 0
    assert not node.fetcher.is_working


def test_a_position_that_has_changed_during_a_fetch_is_fetched_from_again(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    node.question(0)
    followed = node.fetcher._partitions[GOOD, 0]
    node.logs[GOOD].local.assign_epochs([(1, 0)])  # as what a former leader has sent may do
    node.answer(1)
    assert node.logs[GOOD].log_end_offset == 0, "the answer is to another question"
    assert node.question(2).get(GOOD) == 0
    assert node.fetcher._asked[GOOD, 0] == followed.position


def test_after_a_new_registration_of_this_node_all_partitions_are_fetched_with_it(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    node.question(0)
    node.answer(1)
    assert node.question(2) == {GOOD: 1, BAD: 1}
    node.fetcher.on_fetched(FetchResponse(session_id=5), 3, 1_000)
    assert node.question(4) == {}, "nothing has changed"
    node.fetcher.on_fetched(FetchResponse(session_id=5), 5, 1_000)
    node.broker_epoch = 2
    assert node.question(6) == {GOOD: 1, BAD: 1}
    [sent] = [each for each in node.effects if isinstance(each, SendFetch)]
    assert (sent.request.session_id, sent.request.session_epoch) == (5, 0)
    assert sent.request.replica_state.replica_epoch == 2


def test_to_be_told_again_what_it_follows_changes_nothing(tmp_path: Path) -> None:
    """Else each change of metadata would have it ask for every partition from the start."""
    node = Node(tmp_path)
    node.question(0)
    node.answer(1)
    node.effects.clear()
    for followed in list(node.fetcher._partitions.values()):
        node.fetcher.follow(followed)
    assert node.effects == []
    fresh = Node(tmp_path / "fresh")
    fresh.question(0)
    fresh.answer(1)
    assert node.question(2) == fresh.question(2)


def test_a_log_that_begins_anew_where_its_leaders_begins_is_committed_up_to_there(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    node.question(0)
    node.answer(1)
    log = node.logs[GOOD]
    assert log.log_end_offset == 1
    node.fetcher._truncate(node.fetcher._partitions[GOOD, 0], TruncateFullyAndStartAt(50))
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (50, 50, 50)


def test_a_log_that_ends_within_the_batch_in_which_its_leaders_begins_begins_anew(
    tmp_path: Path,
) -> None:
    """It diverged there: what it has is all deleted, and the batch begins below its end."""
    node = Node(tmp_path)
    log = node.logs[GOOD]
    for _ in range(3):
        log.append_as_leader(make_batch(), leader_epoch=0, now_ms=0)
    batch = bytearray(encode_records([(0, None, b"%d" % number, ()) for number in range(4)]))
    stamp(batch, base_offset=1, leader_epoch=1)  # 1 to 4; below 3 is deleted
    for asked_at_ms, held in ((0, (3, 3)), (2, (1, 5))):
        assert node.question(asked_at_ms).get(GOOD) == 3
        data = PartitionData(
            partition_index=0, records=bytes(batch), high_watermark=5, log_start_offset=3
        )
        answer = FetchableTopicResponse(topic_id=GOOD, partitions=[data])
        response = FetchResponse(session_id=5, responses=[answer])
        node.fetcher.on_fetched(response, asked_at_ms + 1, 1_000)
        node.work(asked_at_ms + 1)
        assert (log.segments[0].base_offset, log.log_end_offset) == held
    assert (log.log_start_offset, log.high_watermark) == (3, 5)
    assert log.epochs.entries[-1][0] == 1


def test_an_answer_that_is_cut_within_the_first_batch_is_asked_for_again(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.question(0) == {GOOD: 0, BAD: 0}
    for size in (1, 11, 12, 20):
        data = PartitionData(partition_index=0, records=bytes(make_batch()[:size]))
        answers = [FetchableTopicResponse(topic_id=each, partitions=[data]) for each in (GOOD, BAD)]
        node.fetcher.on_fetched(FetchResponse(session_id=5, responses=answers), 1, 1_000)
        node.work(1)
        assert node.question(2) == {GOOD: 0, BAD: 0}


def test_each_failure_after_another_waits_twice_as_long_up_to_a_bound(tmp_path: Path) -> None:
    node = Node(tmp_path)
    now_ms, waits = 0, []
    for _ in range(8):
        node.question(now_ms)
        node.fetcher.on_unreachable(ConnectionFailed("gone"), now_ms)
        due = node.fetcher.next_deadline_ms
        assert due is not None
        waits.append(due - now_ms)
        now_ms = due
    doubled = [min(FIRST_BACKOFF_MS << n, MAX_BACKOFF_MS) for n in range(8)]
    assert waits == doubled
    assert waits[-1] == MAX_BACKOFF_MS
