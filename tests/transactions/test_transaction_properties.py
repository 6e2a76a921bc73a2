"""Whatever clients, disks and coordinators do: is every transaction ended once, and one way?"""

from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.transactions.transaction_world import World
from bradbury.transactions.transaction_coordinator import COMPLETE_RETRY_MS
from bradbury.transactions.transaction_effects import InitializedProducer
from bradbury.transactions.transaction_metadata import NO_EPOCH, NO_PRODUCER_ID
from bradbury.transactions.transaction_state import TransactionState

IDS = ("first", "second")
PARTITIONS = [("paid", 0), ("paid", 1), ("sent", 0)]
ENDED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
ids = st.sampled_from(IDS)


class Transactions(RuleBasedStateMachine):
    @initialize(version=st.sampled_from([0, 2]), first_epoch=st.sampled_from([0, 32_760]))
    def begin(self, version: int, first_epoch: int) -> None:
        self.world = World(version)
        self.producers: dict[str, list[tuple[int, int]]] = {name: [] for name in IDS}
        """Every producer that a client was ever told to be."""
        self.asked: dict[int, tuple[str, str, Any]] = {}
        self.promised: dict[tuple[str, int, int], bool] = {}
        """How a transaction ends, as clients were told: by id and producer."""
        self.answering: set[int] = set()
        for _ in range(3 if first_epoch else 0):
            self.world.begin_producer("first")

    def hear(self) -> None:
        for request, answer in self.world.answers.items():
            if request in self.answering or request not in self.asked:
                continue
            self.answering.add(request)
            kind, name, what = self.asked[request]
            assert kind != "fenced" or answer is not ErrorCode.NONE, "a fenced one wrote"
            if not isinstance(answer, InitializedProducer) or answer.error is not ErrorCode.NONE:
                continue
            if answer.producer_epoch != NO_EPOCH:
                self.producers[name].append((answer.producer_id, answer.producer_epoch))
            if kind == "end":
                (producer, is_commit) = what
                known = self.promised.setdefault((name, *producer, self.world.version), is_commit)
                if self.world.version >= 2:
                    assert known == is_commit, "committed and aborted"

    # --- clients ---------------------------------------------------------------------------------

    @rule(name=ids)
    def init(self, name: str) -> None:
        self.asked[self.world.init(name)] = ("init", name, None)

    @rule(name=ids, data=st.data())
    def recover(self, name: str, data: st.DataObject) -> None:
        if self.producers[name]:
            producer = data.draw(st.sampled_from(self.producers[name][-3:]))
            self.asked[self.world.init(name, expected=producer)] = ("init", name, None)

    @rule(name=ids, data=st.data(), partition=st.sampled_from(PARTITIONS))
    def add(self, name: str, data: st.DataObject, partition: tuple[str, int]) -> None:
        if self.producers[name]:
            producer = data.draw(st.sampled_from(self.producers[name][-3:]))
            request = self.world.add(producer, partition, transactional_id=name)
            newest = self.producers[name][-1]
            if producer[0] == newest[0] and producer[1] < newest[1]:
                self.asked[request] = ("fenced", name, producer)

    @rule(name=ids, data=st.data(), is_commit=st.booleans())
    def end(self, name: str, data: st.DataObject, is_commit: bool) -> None:
        if self.producers[name]:
            producer = data.draw(st.sampled_from(self.producers[name][-3:]))
            request = self.world.end(producer, is_commit=is_commit, transactional_id=name)
            self.asked[request] = ("end", name, (producer, is_commit))

    # --- the world -------------------------------------------------------------------------------

    @precondition(lambda self: self.world.appends)
    @rule()
    def commit(self) -> None:
        self.world.commit()

    @precondition(lambda self: self.world.appends)
    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]))
    def refuse(self, error: ErrorCode) -> None:
        self.world.refuse(error)

    @precondition(lambda self: self.world.markers)
    @rule()
    def write_markers(self) -> None:
        markers = self.world.write_markers()
        decided = self.world.log[self.last_of(markers.transactional_id)].metadata
        assert decided is not None
        assert decided.partitions == markers.partitions
        assert markers.is_commit == (decided.state is TransactionState.PREPARE_COMMIT)

    @rule()
    def coordinator_moves(self) -> None:
        self.world.begin()

    @rule(ms=st.sampled_from([500, 20_000, 100_000]))
    def time_passes(self, ms: int) -> None:
        self.world.pass_time(ms)

    def last_of(self, name: str) -> int:
        return max(i for i, record in enumerate(self.world.log) if record.transactional_id == name)

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def the_log_is_a_history_of_transactions(self) -> None:
        self.hear()
        for name in IDS:
            epochs: dict[int, int] = {}
            previous = None
            for record in self.world.log:
                if record.transactional_id != name or record.metadata is None:
                    continue
                now = record.metadata
                assert now.producer_epoch >= epochs.get(now.producer_id, 0), "an epoch went back"
                epochs[now.producer_id] = now.producer_epoch
                if previous is not None:
                    assert now.state.may_follow(previous.state)
                    if previous.state.is_prepared:
                        assert now.state is ENDED[previous.state], (
                            "decided one way, ended the other"
                        )
                        assert now.next_producer_id == NO_PRODUCER_ID
                    if now.state.is_prepared:
                        assert now.partitions == previous.partitions
                previous = now

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.settle()
        self.world.pass_time(COMPLETE_RETRY_MS)  # an end that could not be written
        self.world.settle()
        self.the_log_is_a_history_of_transactions()
        for name, metadata in self.world.coordinator:
            assert not metadata.state.is_prepared
            self.world.begin_producer(name)  # nothing stays busy


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
