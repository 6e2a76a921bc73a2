"""Which replica may lead a partition, and does it have every committed record?"""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bradbury.cluster.metadata.metadata_image import NO_LEADER, PartitionImage
from bradbury.cluster.partition.partition_change import next_partition

START = PartitionImage((1, 2, 3), (1, 2, 3), 1, 5, 7)


def change(partition: PartitionImage, *active: int, minimum: int = 2, **how) -> PartitionImage:
    return next_partition(
        partition, is_active=set(active).__contains__, min_insync_replicas=minimum, **how
    )


def test_nothing_happens_while_everybody_is_there() -> None:
    assert change(START, 1, 2, 3) is START


def test_when_the_leader_goes_the_next_in_sync_replica_leads_in_a_new_epoch() -> None:
    after = change(START, 2, 3)
    assert (after.leader, after.isr, after.elr) == (2, (2, 3), ())
    assert (after.leader_epoch, after.partition_epoch) == (6, 8)


def test_when_a_follower_goes_the_leader_stays_in_its_epoch() -> None:
    after = change(START, 1, 2)
    assert (after.leader, after.isr) == (1, (1, 2))
    assert (after.leader_epoch, after.partition_epoch) == (5, 8)


def test_below_min_insync_those_who_leave_stay_eligible_and_may_lead_again() -> None:
    one_left = change(change(START, 1, 2), 1)
    assert (one_left.isr, one_left.elr) == ((1,), (2,))
    nobody = change(one_left)
    assert (nobody.leader, nobody.isr, nobody.elr) == (NO_LEADER, (), (1, 2))
    assert nobody.last_known_leader == 1
    second = change(nobody, 2)
    assert (second.leader, second.isr, second.elr) == (2, (2,), (1,))
    assert not second.recovering
    both = change(second, 1, 2, isr=(2, 1))
    assert (both.isr, both.elr) == ((2, 1), ())


def test_a_replica_that_was_out_of_sync_does_not_lead_though_it_is_the_only_one_there() -> None:
    shrunk = change(START, 1, 2, 3, isr=(1, 2))
    assert change(shrunk, 3).leader == NO_LEADER
    forced = change(shrunk, 3, is_unclean=True)
    assert (forced.leader, forced.isr, forced.elr, forced.recovering) == (3, (3,), (), True)


def test_one_that_lost_its_data_is_neither_in_sync_nor_eligible() -> None:
    back = change(START, 1, 2, 3, lost=(1,), begins_anew=1)
    assert (back.leader, back.isr) == (2, (2, 3))
    nobody = change(change(change(START, 1, 2), 1))
    lost = change(nobody, 1, lost=(1,), begins_anew=1)
    assert (lost.leader, lost.elr) == (NO_LEADER, (2,))


def test_the_last_known_leader_leads_when_nobody_can_know_more() -> None:
    alone = PartitionImage((1,), (1,), 1, 0, 0)
    gone = change(alone)
    assert (gone.leader, gone.elr) == (NO_LEADER, (1,))
    assert not change(gone, 1).recovering
    lost = change(gone, 1, lost=(1,), begins_anew=1)
    assert (lost.leader, lost.isr, lost.recovering) == (1, (1,), True)


def test_a_new_life_of_the_leader_is_a_new_epoch() -> None:
    after = change(START, 1, 2, 3, begins_anew=1)
    assert (after.leader, after.leader_epoch) == (1, 6)
    assert change(START, 1, 2, 3, begins_anew=2) is START


def test_the_preferred_leader_takes_over_if_it_is_in_sync() -> None:
    second = change(START, 2, 3)
    assert change(second, 1, 2, 3, prefers_first=True) is second
    caught_up = change(second, 1, 2, 3, isr=(2, 3, 1))
    assert change(caught_up, 1, 2, 3, prefers_first=True).leader == 1


@pytest.mark.parametrize("minimum", [1, 2, 3])
def test_a_single_replica_comes_and_goes_with_its_node(minimum: int) -> None:
    partition = PartitionImage((4,), (4,), 4, 0, 0)
    gone = change(partition, minimum=minimum)
    assert (gone.leader, gone.leader_epoch) == (NO_LEADER, 1)
    back = change(gone, 4, minimum=minimum)
    assert (back.leader, back.leader_epoch, back.isr, back.elr) == (4, 2, (4,), ())


class Promises(RuleBasedStateMachine):
    """Nodes come, go and lose disks; `holders` are those that have all that was acknowledged."""

    @initialize(count=st.integers(1, 5), minimum=st.integers(1, 3))
    def begin(self, count: int, minimum: int) -> None:
        nodes = tuple(range(1, count + 1))
        self.partition = PartitionImage(nodes, nodes, 1, 0, 0)
        self.minimum = minimum
        self.active = set(nodes)
        self.holders = set(nodes)
        self.epochs: dict[int, int] = {}

    def _follow(self, **how) -> None:
        before = self.partition
        self.partition = after = change(before, *self.active, minimum=self.minimum, **how)
        if after is before:
            return
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch - before.leader_epoch == (
            after.leader != before.leader or how.get("begins_anew") == after.leader
        )
        complete = {*before.isr, *before.elr} - set(how.get("lost", ()))
        if after.leader not in {NO_LEADER, *complete, *how.get("isr", ())}:
            # Records may be gone for good; from here on only what this leader has counts.
            assert after.recovering
            assert not complete
            self.holders = {after.leader}

    @rule(data=st.data())
    def goes(self, data) -> None:
        if self.active:
            self.active.discard(data.draw(st.sampled_from(sorted(self.active))))
            self._follow()

    @rule(data=st.data(), has_lost=st.booleans())
    def comes(self, data, has_lost: bool) -> None:
        node = data.draw(st.sampled_from(self.partition.replicas))
        if has_lost:
            self.holders.discard(node)
        self.active.add(node)
        self._follow(lost=(node,) if has_lost else (), begins_anew=node)

    @precondition(lambda self: self.partition.leader != NO_LEADER)
    @rule()
    def acknowledges(self) -> None:
        """Only with enough in sync does the high watermark move; then only these have it."""
        isr = self.partition.isr
        if len(isr) >= min(self.minimum, len(self.partition.replicas)):
            self.holders = set(isr)

    @precondition(lambda self: self.partition.leader != NO_LEADER)
    @rule(data=st.data())
    def catches_up(self, data) -> None:
        node = data.draw(st.sampled_from(self.partition.replicas))
        if node in self.active and node not in self.partition.isr:
            self.holders.add(node)
            self._follow(isr=(*self.partition.isr, node))

    @precondition(lambda self: self.partition.leader != NO_LEADER)
    @rule(data=st.data())
    def falls_behind(self, data) -> None:
        others = [node for node in self.partition.isr if node != self.partition.leader]
        if others:
            node = data.draw(st.sampled_from(others))
            self._follow(isr=tuple(each for each in self.partition.isr if each != node))

    @precondition(lambda self: self.partition.leader != NO_LEADER)
    @rule()
    def is_recovered(self) -> None:
        self.partition = replace(self.partition, recovering=False)

    @rule()
    def prefers_the_first(self) -> None:
        self._follow(prefers_first=True)

    @invariant()
    def who_leads_has_everything(self) -> None:
        partition = self.partition
        if partition.leader != NO_LEADER:
            assert partition.leader in self.holders
            assert partition.leader in partition.isr
            assert partition.leader in self.active
        assert self.holders >= set(partition.isr)
        assert not set(partition.isr) & set(partition.elr)
        assert {*partition.isr, *partition.elr} <= set(partition.replicas)
        leader = self.epochs.setdefault(partition.leader_epoch, partition.leader)
        assert leader == partition.leader, "two leaders in one epoch"

    @invariant()
    def nobody_waits_forever_who_could_lead(self) -> None:
        partition = self.partition
        if partition.leader == NO_LEADER:
            assert not self.active & {*partition.isr, *partition.elr}


TestPromises = Promises.TestCase
