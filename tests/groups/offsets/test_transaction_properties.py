"""Do offsets mean what the log says, whatever commits, transactions, deletions and fail-overs do?

A state machine plays producers with transactions, plain commits, administrators, time, refused and
late appends, and fail-overs that leave any part of what was not acknowledged in the log. After every
step an oracle reads the log as Kafka's coordinator does, by the offsets of the records, and must find
what the living coordinator shows; so must the next coordinator, also when it reads a log that was
compacted.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bradbury.groups.coordinator.coordinator_state import entries_of
from bradbury.groups.group_records import (
    LogEntry,
    OffsetRecord,
    TransactionalOffset,
    TransactionEnd,
)
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.tests.support.groups.group_driver import GroupDriver

pytestmark = pytest.mark.thorough

DAY_MS = 24 * 60 * 60 * 1000
GROUPS = ["orders", "other"]
PRODUCERS = [7, 8]
FAILURES = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_PRODUCER_EPOCH]
partitions = st.sampled_from([("t", 0), ("t", 0), ("u", 0)])
groups = st.sampled_from(["orders", *GROUPS])
producers = st.sampled_from(PRODUCERS)
pick = st.integers(0, 2**16)
Key = tuple[str, str, int]
Offsets = dict[Key, tuple[int, int]]
"""(place in the log, offset) by group, topic, partition."""


@dataclass
class KafkasOffsets:
    """As OffsetMetadataManager.replay and replayEndTransactionMarker have it."""

    committed: Offsets = field(default_factory=dict)
    pending: dict[int, Offsets] = field(default_factory=dict)

    def read(self, log: list[LogEntry]) -> "KafkasOffsets":
        for place, entry in enumerate(log):
            match entry:
                case OffsetRecord(key, None):
                    name = key.group, key.topic, key.partition
                    self.committed.pop(name, None)
                    for offsets in self.pending.values():
                        offsets.pop(name, None)
                case OffsetRecord(key, value):
                    self.committed[key.group, key.topic, key.partition] = place, value.offset
                case TransactionalOffset(producer_id, key, value):
                    name = key.group, key.topic, key.partition
                    self.pending.setdefault(producer_id, {})[name] = place, value.offset
                case TransactionEnd(producer_id, is_commit):
                    for name, found in self.pending.pop(producer_id, {}).items():
                        if is_commit and found > self.committed.get(name, (-1, 0)):
                            self.committed[name] = found
        return self

    def shown(self, group: str) -> dict[TopicPartitionPair, int]:
        return {name[1:]: found[1] for name, found in self.committed.items() if name[0] == group}

    def is_stable(self, name: Key) -> bool:
        return all(name not in offsets for offsets in self.pending.values())


def compacted(log: list[LogEntry]) -> list[LogEntry]:
    """As Kafka's LogCleaner leaves it.

    Below the first record of an open transaction: nothing of aborted transactions, and of each key
    the last record that is left. Markers stay.
    """
    first_open: dict[int, int] = {}
    aborted: set[int] = set()
    parts: dict[int, list[int]] = {}
    for place, entry in enumerate(log):
        if isinstance(entry, TransactionalOffset):
            first_open.setdefault(entry.producer_id, place)
            parts.setdefault(entry.producer_id, []).append(place)
        elif isinstance(entry, TransactionEnd):
            first_open.pop(entry.producer_id, None)
            if not entry.is_commit:
                aborted.update(parts.get(entry.producer_id, []))
            parts.pop(entry.producer_id, None)
    end = min(first_open.values(), default=len(log))
    last: dict[str, int] = {}
    for place, entry in enumerate(log[:end]):
        if not isinstance(entry, TransactionEnd) and place not in aborted:
            last[str(entry.key)] = place
    return [
        entry
        for place, entry in enumerate(log)
        if place >= end
        or isinstance(entry, TransactionEnd)
        or (place not in aborted and last[str(entry.key)] == place)
    ]


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = GroupDriver()

    # --- what clients do -------------------------------------------------------------------------

    @rule(group=groups, partition=partitions, offset=pick, producer_id=producers)
    def a_producer_commits_offsets(self, group, partition, offset, producer_id) -> None:
        self.driver.commit_in_transaction({partition: offset}, group=group, producer_id=producer_id)

    @rule(group=groups, partition=partitions, offset=pick)
    def a_consumer_commits(self, group, partition, offset) -> None:
        self.driver.commit({partition: offset}, group=group)

    @rule(producer_id=producers, is_commit=st.booleans())
    def a_transaction_ends(self, producer_id, is_commit) -> None:
        self.driver.end_transaction(producer_id, is_commit=is_commit)

    @rule(group=groups)
    def an_administrator_deletes_a_group(self, group) -> None:
        self.driver.delete(group)

    @rule(group=groups, partition=partitions)
    def an_administrator_deletes_an_offset(self, group, partition) -> None:
        self.driver.delete_offsets(partition, group=group)

    @rule(topic=st.sampled_from("tu"))
    def a_topic_is_deleted(self, topic) -> None:
        self.driver.delete_topics(topic)

    # --- what else happens -----------------------------------------------------------------------

    @rule(days=st.sampled_from([1, 6, 8]))
    def days_pass(self, days) -> None:
        """What expires is neither pending nor about to be committed."""
        before = self.all_entries()
        changing = {
            (entry.key.group, entry.key.topic, entry.key.partition)
            for entry in before[len(self.driver.records()) :]
            if isinstance(entry, TransactionalOffset)
        }
        for offsets in KafkasOffsets().read(self.driver.records()).pending.values():
            changing |= offsets.keys()
        self.driver.advance(days * DAY_MS)
        for entry in self.all_entries()[len(before) :]:
            if isinstance(entry, OffsetRecord):
                key = entry.key
                assert (key.group, key.topic, key.partition) not in changing

    def all_entries(self) -> list[LogEntry]:
        """What is in the log, and what is on its way."""
        on_their_way = [each for append in self.driver.uncommitted for each in entries_of(append)]
        return [*self.driver.records(), *on_their_way]

    @rule()
    def commits_take_time(self) -> None:
        self.driver.hold_commits = True

    @rule()
    def commits_are_quick(self) -> None:
        self.driver.hold_commits = False
        while self.driver.uncommitted:
            self.driver.commit_next()

    @precondition(lambda self: self.driver.uncommitted)
    @rule()
    def a_record_is_committed(self) -> None:
        self.driver.commit_next()

    @precondition(lambda self: self.driver.uncommitted and not self.driver.is_next_late)
    @rule(error=st.sampled_from(FAILURES))
    def a_record_cannot_be_appended(self, error) -> None:
        self.driver.fail_next(error)

    @precondition(lambda self: self.driver.uncommitted)
    @rule(number=pick)
    def a_record_is_late(self, number) -> None:
        self.driver.be_late(number % len(self.driver.uncommitted))

    @rule(number=pick)
    def another_coordinator_takes_over(self, number) -> None:
        """The first ones of what nobody was answered are in the log all the same."""
        in_doubt = number % (len(self.driver.uncommitted) + 1)
        hold_commits = self.driver.hold_commits
        self.driver = self.driver.failed_over(in_doubt)
        self.driver.hold_commits = hold_commits
        self.driver.asked.clear()

    # --- what always holds -----------------------------------------------------------------------

    def shows(self, driver: GroupDriver, oracle: KafkasOffsets) -> None:
        for group in GROUPS:
            assert driver.all_offsets(group) == oracle.shown(group)
            for topic in "tu":
                found = driver.fetch(topic, 0, group, require_stable=True)
                is_stable = oracle.is_stable((group, topic, 0))
                assert (found.error_code == ErrorCode.NONE) == is_stable

    @invariant()
    def the_living_coordinator_shows_what_kafka_reads(self) -> None:
        self.shows(self.driver, KafkasOffsets().read(self.driver.records()))

    @invariant()
    def the_next_coordinator_shows_the_same_and_knows_the_same_groups(self) -> None:
        other = self.driver.failed_over()
        self.shows(other, KafkasOffsets().read(self.driver.records()))
        if not self.driver.uncommitted:
            assert set(other.coordinator.groups) == set(self.driver.coordinator.groups)

    @invariant()
    def a_coordinator_that_reads_the_compacted_log_shows_the_same(self) -> None:
        other = GroupDriver(now_ms=self.driver.now_ms)
        for entry in compacted(self.driver.records()):
            other.coordinator.apply(entry)
        self.shows(other, KafkasOffsets().read(self.driver.records()))

    @invariant()
    def what_is_counted_is_there(self) -> None:
        found = sum(len(self.driver.all_offsets(group)) for group in GROUPS)
        assert self.driver.coordinator.offsets.count == found

    @invariant()
    def every_unanswered_request_waits_for_a_record(self) -> None:
        waiting = {
            getattr(append.completion, "request_id", None) for append in self.driver.uncommitted
        }
        assert self.driver.asked == waiting - {None}

    @invariant()
    def nothing_is_left_when_nothing_is_under_way(self) -> None:
        if not self.driver.uncommitted:
            offsets = self.driver.coordinator.offsets
            assert not any(map(offsets.is_committing, GROUPS))
            for group in self.driver.coordinator.groups:
                assert group in GROUPS


Transactions.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
test_offsets_are_what_the_log_says = Transactions.TestCase
