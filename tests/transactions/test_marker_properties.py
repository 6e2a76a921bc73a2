"""Whatever leaders, nodes and coordinators do: is every marker in one place, and the end told once?"""

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import ConnectionFailed
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.tests.transactions.marker_world import MarkerWorld
from bradbury.transactions.transaction_markers import RETRY_MS, TransactionKey

PARTITIONS: list[TopicPartitionPair] = [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
NAMES = ["first", "second", "third"]
NODES = [1, 2, 3]
COORDINATED = {"first": 0, "second": 0, "third": 1}
"""Partition of __transaction_state."""
PASSING = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.CORRUPT_MESSAGE]
partitions = st.sampled_from(PARTITIONS)
nodes = st.sampled_from(NODES)


class Markers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = MarkerWorld(dict.fromkeys(PARTITIONS, 1))
        self.epochs = {0: 1, 1: 1}
        self.open: dict[TransactionKey, set[TopicPartitionPair]] = {}
        """What was asked for and neither ended nor dropped."""
        self.has: set[tuple[TransactionKey, TopicPartitionPair]] = set()
        """Markers that a leader has written and said so, or whose topic was gone."""

    def sees_the_end(self) -> None:
        while self.world.ended:
            key = self.world.ended.pop(0)
            wanted = self.open.pop(key)  # a KeyError: told twice, or of one that was dropped
            missing = {each for each in wanted if (key, each) not in self.has}
            assert not missing, f"{key} ended without {missing}"

    # --- coordinators ----------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), wanted=st.sets(partitions))
    def decides(self, name: str, wanted: set[TopicPartitionPair]) -> None:
        partition = COORDINATED[name]
        key = TransactionKey(partition, self.epochs[partition], name)
        if key in self.open:
            return  # a coordinator sends one end at a time
        self.has -= {(key, each) for each in PARTITIONS}
        self.has |= {(key, each) for each in wanted if not self.world.exists(each)}
        self.open[key] = wanted
        self.world.send(name, *wanted, partition=partition, epoch=key.coordinator_epoch)
        self.sees_the_end()

    @rule(partition=st.sampled_from([0, 1]), resigns=st.booleans())
    def coordinator_moves_away_and_back(self, partition: int, resigns: bool) -> None:
        if resigns:
            self.world.manager.on_resigned(partition)
        self.open = {key: each for key, each in self.open.items() if key.partition != partition}
        self.epochs[partition] += 1
        self.world.manager.on_elected(partition, self.epochs[partition])

    # --- leaders ---------------------------------------------------------------------------------

    @rule(partition=partitions, leader=st.none() | nodes)
    def leader_moves(self, partition: TopicPartitionPair, leader: int | None) -> None:
        if self.world.exists(partition):
            self.world.move(partition, leader)
        self.sees_the_end()

    @rule(partition=partitions)
    def topic_goes(self, partition: TopicPartitionPair) -> None:
        if self.world.exists(partition):
            self.has |= {(key, partition) for key in self.open}
            self.world.delete(partition)
        self.sees_the_end()

    @rule(partition=partitions, leader=st.none() | nodes)
    def topic_is_made_again(self, partition: TopicPartitionPair, leader: int | None) -> None:
        if not self.world.exists(partition):
            self.world.move(partition, leader)

    # --- requests --------------------------------------------------------------------------------

    def is_asked(self) -> bool:
        return bool(self.world.requests)

    @precondition(is_asked)
    @rule(data=st.data())
    def node_answers(self, data: st.DataObject) -> None:
        node_id = data.draw(st.sampled_from(sorted(self.world.requests)))
        errors = data.draw(st.dictionaries(partitions, st.sampled_from(PASSING)))
        silent = data.draw(st.sets(partitions, max_size=1))
        for name, asked in self.world.sent[node_id]:
            partition = COORDINATED[name]
            for marker in self.world.requests[node_id].markers:
                if self.world.names[marker.producer_id] == name:
                    key = TransactionKey(partition, marker.coordinator_epoch, name)
                    self.has |= {
                        (key, each) for each in asked if each not in errors and each not in silent
                    }
        self.world.answer(node_id, errors, silent=silent)
        self.sees_the_end()

    @precondition(is_asked)
    @rule(data=st.data())
    def node_is_lost(self, data: st.DataObject) -> None:
        node_id = data.draw(st.sampled_from(sorted(self.world.requests)))
        self.world.fail(node_id, ConnectionFailed("gone"))

    @rule(after_ms=st.sampled_from([0, 1, RETRY_MS]))
    def time_passes(self, after_ms: int) -> None:
        self.world.now_ms += after_ms
        self.world.tick()
        self.sees_the_end()

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def each_partition_without_a_marker_is_in_one_place(self) -> None:
        pending_partitions = list(self.world.manager.pending_partitions())
        assert len(pending_partitions) == len(set(pending_partitions)), "in two places"
        for key in self.open:
            assert any(where == key for where, _ in pending_partitions), f"{key} is forgotten"
        assert {key for key, _ in pending_partitions} <= self.open.keys(), (
            "of a coordinator that has ended"
        )

    def teardown(self) -> None:
        """When all are well, everything ends."""
        for partition in PARTITIONS:
            if self.world.exists(partition):
                self.world.move(partition, 1)
        for _ in range(20):
            self.world.now_ms += RETRY_MS
            self.world.tick()
            for node_id in list(self.world.requests):
                for name, asked in self.world.sent[node_id]:
                    self.has |= {(key, each) for key in self.open for each in asked}
                    del name
                self.world.answer(node_id)
        self.sees_the_end()
        assert not self.open


TestMarkers = Markers.TestCase
TestMarkers.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
