"""Do the promises of a group hold whatever members, administrators, disks and fail-overs do?

A state machine plays all of them against one coordinator. After every step:
    every request that is not answered is parked somewhere, and none was answered twice;
    generations only grow; a partition has one owner in a generation;
    nothing that waits can wait forever: a timer or a commit is under way;
    an acknowledged offset is there, and the next coordinator, which reads the log, agrees;
    only the living generation commits, and nothing expires before its time;
    what members hold in memory is accounted for, to the byte.
A crash leaves any part of what was not acknowledged in the log, in order; the wall clock leaps.
"""

from collections import defaultdict

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bradbury.coordinators.rules_effects import Append
from bradbury.groups.classic.group_state import GroupState
from bradbury.groups.group_counters import MemberMemory
from bradbury.groups.group_effects import (
    GroupsDeleted,
    OffsetsDeleted,
    OffsetsStored,
    TimerKey,
    TimerKind,
)
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.tests.support.groups.group_driver import G, GroupDriver, subscription

PARTITIONS = 6
INSTANCES = ["one", "two"]
DAY_MS = 24 * 60 * 60 * 1000
T, U = subscription("t"), subscription("t", "u")
BOTH = (("range", T), ("sticky", T))
PROTOCOLS = [BOTH, BOTH[:1], (("range", U), ("sticky", b"not ours"))]
FAILURES = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]
pick = st.integers(0, 2**16)


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = GroupDriver(group_max_size=4, bradbury_group_max_pending_members=3)
        self.driver.hold_commits = True
        self.ids: list[str] = ["ghost"]
        self.owner_names: dict[str, str] = {}
        self.instances: dict[str, str | None] = defaultdict(lambda: None)
        self.joins: dict[int, str | None] = {}
        self.syncs: dict[int, tuple[str, int]] = {}
        self.commits: dict[int, dict[TopicPartitionPair, int]] = {}
        self.deletions: list[int] = []
        self.offset_deletions: dict[int, TopicPartitionPair] = {}
        self.offsets: dict[TopicPartitionPair, int] = {}
        self.life = 0
        self.last_generation = (0, 0)
        self.owners: dict[tuple[int, int, int], str] = {}
        self.log_is_behind = False

    @initialize(count=st.integers(1, 3), version=st.sampled_from([3, 5]))
    def a_group_begins(self, count, version) -> None:
        for number in range(count):
            instance = INSTANCES[number % 2] if version == 5 and number < 2 else None
            request = self.driver.join(instance_id=instance, version=3 if not instance else 5)
            self.joins[request] = instance
        self.time_passes(6_000)

    # --- what members do -------------------------------------------------------------------------

    def pick_id(self, number: int) -> str:
        return self.ids[number % len(self.ids)]

    @property
    def generation(self) -> int:
        group = self.driver.coordinator.groups.get(G)
        return 0 if group is None else group.metadata.generation

    @rule(version=st.sampled_from([3, 9]), protocols=st.sampled_from(PROTOCOLS))
    def a_new_member_joins(self, version, protocols) -> None:
        request = self.driver.join(version=version, protocols=protocols)
        self.joins[request] = None
        self.look_at_answers()

    @rule(
        instance=st.sampled_from(INSTANCES),
        version=st.sampled_from([5, 9]),
        protocols=st.sampled_from(PROTOCOLS),
    )
    def a_static_member_starts(self, instance, version, protocols) -> None:
        request = self.driver.join(instance_id=instance, version=version, protocols=protocols)
        self.joins[request] = instance
        self.look_at_answers()

    @rule(number=pick, protocols=st.sampled_from(PROTOCOLS))
    def a_member_joins_again(self, number, protocols) -> None:
        member_id = self.pick_id(number)
        instance = self.instances[member_id]
        request = self.driver.join(member_id, instance_id=instance, protocols=protocols)
        self.joins[request] = instance
        self.look_at_answers()

    @rule()
    def all_members_rejoin(self) -> None:
        group = self.driver.coordinator.groups.get(G)
        for member in [] if group is None else list(group.metadata.members):
            request = self.driver.join(
                member.member_id, instance_id=member.instance_id, protocols=member.protocols
            )
            self.joins[request] = member.instance_id
        self.look_at_answers()

    @rule(deal=st.lists(pick, min_size=6, max_size=6))
    def the_group_comes_to_rest(self, deal) -> None:
        self.all_members_rejoin()
        self.time_passes(9_000)
        self.all_members_sync(deal)
        while self.driver.uncommitted:
            self.a_record_is_committed()

    @rule(number=pick, back=st.integers(0, 2), deal=st.lists(pick, min_size=6, max_size=6))
    def a_member_syncs(self, number, back, deal) -> None:
        self.sync(self.pick_id(number), self.generation - back, deal)

    @rule(deal=st.lists(pick, min_size=6, max_size=6))
    def all_members_sync(self, deal) -> None:
        group = self.driver.coordinator.groups.get(G)
        for member in [] if group is None else list(group.metadata.members):
            self.sync(member.member_id, self.generation, deal)

    def sync(self, member_id: str, generation: int, deal: list[int]) -> None:
        """A leader deals out each partition once; a follower's deal must not count."""
        group = self.driver.coordinator.groups.get(G)
        members = [] if group is None else [member.member_id for member in group.metadata.members]
        if group is not None:
            self.instances.update({m.member_id: m.instance_id for m in group.metadata.members})
        shares: dict[str, bytes] = defaultdict(bytes)
        for partition, number in enumerate(deal):
            if members:
                shares[members[number % len(members)]] += bytes([partition])
        request = self.driver.sync(
            member_id, generation, shares, instance_id=self.instances[member_id]
        )
        self.syncs[request] = (member_id, generation)
        self.look_at_answers()

    @rule(number=pick, back=st.integers(0, 1))
    def a_member_sends_a_heartbeat(self, number, back) -> None:
        member_id = self.pick_id(number)
        self.driver.heartbeat(
            member_id, self.generation - back, instance_id=self.instances[member_id]
        )

    @rule(number=pick)
    def a_member_leaves(self, number) -> None:
        member_id = self.pick_id(number)
        self.driver.leave((member_id, self.instances[member_id]))
        self.look_at_answers()

    @rule(instance=st.sampled_from(INSTANCES))
    def an_administrator_sends_a_static_member_away(self, instance) -> None:
        self.driver.leave(("", instance))
        self.look_at_answers()

    @rule(
        number=pick,
        back=st.integers(0, 1),
        topic=st.sampled_from("tu"),
        partition=st.integers(0, 1),
        offset=pick,
    )
    def a_member_commits(self, number, back, topic, partition, offset) -> None:
        member_id = self.pick_id(number)
        offsets = {(topic, partition): offset}
        request = self.driver.commit(
            offsets,
            member_id,
            self.generation - back,
            instance_id=self.instances[member_id],
        )
        if back and self.generation:
            answer = self.driver.answers.get(request)
            assert answer is not None and answer.topics[0].partitions[0].error_code
        self.commits[request] = offsets
        self.look_at_answers()

    @rule(partition=st.integers(0, 2), offset=pick)
    def an_outsider_commits(self, partition, offset) -> None:
        offsets = {("t", partition): offset}
        self.commits[self.driver.commit(offsets)] = offsets
        self.look_at_answers()

    # --- what else happens -----------------------------------------------------------------------

    @rule()
    def an_administrator_deletes_the_group(self) -> None:
        self.deletions.append(self.driver.delete(G))
        self.look_at_answers()

    @rule(topic=st.sampled_from("tu"), partition=st.integers(0, 1))
    def an_administrator_deletes_an_offset(self, topic, partition) -> None:
        request = self.driver.delete_offsets((topic, partition))
        self.offset_deletions[request] = (topic, partition)
        self.look_at_answers()

    @rule(topic=st.sampled_from("tu"))
    def a_topic_is_deleted(self, topic) -> None:
        self.driver.delete_topics(topic)

    @rule(days=st.sampled_from([-400, -1, 0, 1, 400]))
    def the_wall_clock_leaps(self, days) -> None:
        """Days are too much to be caught up with in the minutes that a run takes."""
        self.driver.leap_ms = days * DAY_MS

    @rule(ms=st.sampled_from([1, 3_000, 9_999, 10_000, 60_000, 600_000]))
    def time_passes(self, ms) -> None:
        self.driver.advance(ms)
        self.look_at_answers()

    @precondition(lambda self: self.driver.uncommitted)
    @rule()
    def a_record_is_committed(self) -> None:
        head = self.driver.uncommitted[0]
        if any(record.key.__class__.__name__ == "GroupMetadataKey" for record in head.records):
            self.log_is_behind = False
        self.driver.commit_next()
        self.look_at_answers()
        if getattr(head.completion, "request_id", None) is None:
            self.is_in_the_log(head)

    def is_in_the_log(self, append: Append) -> None:
        """Nobody was told, and still it counts from now on."""
        for key, value in append.records:
            if not hasattr(key, "topic"):
                continue
            if value is None:
                self.offsets.pop((key.topic, key.partition), None)
            else:
                self.offsets[key.topic, key.partition] = value.offset

    @precondition(lambda self: self.driver.uncommitted)
    @rule(number=pick)
    def a_record_is_late(self, number) -> None:
        self.driver.be_late(number % len(self.driver.uncommitted))
        self.look_at_answers()

    @precondition(lambda self: self.driver.uncommitted and not self.driver.is_next_late)
    @rule(error=st.sampled_from(FAILURES))
    def a_record_cannot_be_appended(self, error) -> None:
        if self.driver.uncommitted[0].completion is None:
            self.log_is_behind = True
        self.driver.fail_next(error)
        self.look_at_answers()

    @rule(number=pick)
    def another_coordinator_takes_over(self, number) -> None:
        """The first ones of what nobody was told of are in the log all the same."""
        self.look_at_answers()
        in_doubt = number % (len(self.driver.uncommitted) + 1)
        for append in list(self.driver.uncommitted)[:in_doubt]:
            self.is_in_the_log(append)
        # With records of a leap in the log a new coordinator would have to believe it.
        self.driver.leap_ms = min(self.driver.leap_ms, 0)
        self.driver = self.driver.failed_over(in_doubt)
        self.driver.hold_commits = True
        self.joins, self.syncs, self.commits, self.deletions = {}, {}, {}, []
        self.offset_deletions = {}
        self.log_is_behind = False
        self.last_generation = (self.life, 0)
        self.driver.asked.clear()

    # --- what the members saw --------------------------------------------------------------------

    def look_at_answers(self) -> None:
        for request in sorted(self.driver.answers):
            answer = self.driver.answers.pop(request)
            if request in self.joins:
                instance = self.joins.pop(request)
                if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                    self.ids.append(answer.member_id)
                    if instance is not None:
                        self.instances[answer.member_id] = instance
            elif request in self.syncs:
                self.saw_assignment(*self.syncs.pop(request), answer)
            elif request in self.commits:
                offsets = self.commits.pop(request)
                if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
                    self.offsets.update(offsets)
            elif request in self.offset_deletions:
                gone = self.offset_deletions.pop(request)
                if not (answer.error_code or answer.topics[0].partitions[0].error_code):
                    self.offsets.pop(gone, None)
            elif request in self.deletions:
                if answer.results[0].error_code == ErrorCode.NONE:
                    self.offsets.clear()
        if G not in self.driver.coordinator.groups:
            self.life += 1

    def saw_assignment(self, member_id, generation, answer) -> None:
        if answer.error_code:
            assert answer.assignment == b""
            return
        owner = self.instances[member_id] or member_id
        for partition in answer.assignment:
            first = self.owners.setdefault((self.life, generation, partition), owner)
            assert first == owner, f"{partition} belongs to {first} and {owner} in {generation}"

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def every_unanswered_request_is_parked(self) -> None:
        parked = set()
        for group in self.driver.coordinator.groups.values():
            for member in group.metadata.members:
                parked |= {member.parked_join, member.parked_sync} - {None}
        for append in self.driver.uncommitted:
            if isinstance(append.completion, OffsetsStored | GroupsDeleted | OffsetsDeleted):
                parked.add(append.completion.request_id)
        assert self.driver.asked == parked - {None}

    @invariant()
    def memory_is_accounted_for(self) -> None:
        held = 0
        for group in self.driver.coordinator.groups.values():
            held += len(group.metadata.members.pending) * MemberMemory.PENDING_BYTES
            held += sum(member.size for member in group.metadata.members)
        assert self.driver.coordinator.memory.used == held

    @invariant()
    def generations_only_grow(self) -> None:
        now = (self.life, self.generation)
        assert now >= self.last_generation
        self.last_generation = now

    @invariant()
    def the_book_of_members_is_right(self) -> None:
        for group in self.driver.coordinator.groups.values():
            members = group.metadata.members
            assert members.joined_count == sum(m.parked_join is not None for m in members)
            assert (members.leader_id in members) == bool(len(members))
            assert not any(member_id in members for member_id in members.pending)
            for member in members:
                if member.instance_id is not None:
                    assert members.static_member_id(member.instance_id) == member.member_id
            if len(members):
                assert members.protocols.select(members)
            assert (group.metadata.state is GroupState.EMPTY) <= (len(members) == 0)

    @invariant()
    def nothing_waits_forever(self) -> None:
        for group_id, group in self.driver.coordinator.groups.items():
            for member in group.metadata.members:
                waits = member.parked_join is not None or member.parked_sync is not None
                timer = TimerKey(TimerKind.SESSION, group_id, member.member_id)
                assert waits or timer in self.driver.timers
            for member_id in group.metadata.members.pending:
                assert TimerKey(TimerKind.SESSION, group_id, member_id) in self.driver.timers
            if group.metadata.state is GroupState.PREPARING_REBALANCE:
                assert TimerKey(TimerKind.JOIN, group_id) in self.driver.timers
            if group.metadata.state is GroupState.COMPLETING_REBALANCE:
                timer = TimerKey(TimerKind.SYNC, group_id)
                assert timer in self.driver.timers or self.driver.uncommitted

    @invariant()
    def acknowledged_offsets_are_there(self) -> None:
        found = self.driver.all_offsets()
        assert self.driver.coordinator.offsets.count == len(found)
        if not self.driver.uncommitted:
            assert found == self.offsets

    @invariant()
    def nothing_expires(self) -> None:
        """A run takes hours, and leaps of the clock are no time; the retention is a week."""
        assert self.driver.counters.offsets_expired == 0

    @invariant()
    def the_next_coordinator_agrees(self) -> None:
        if self.driver.uncommitted:
            return
        after = self.driver.failed_over()
        assert after.all_offsets() == self.driver.all_offsets()
        mine = self.driver.coordinator.groups.get(G)
        if mine is None:
            assert G not in after.coordinator.groups or self.log_is_behind
        elif (
            mine.metadata.state in (GroupState.STABLE, GroupState.EMPTY) and not self.log_is_behind
        ):
            other = after.coordinator.groups.get(G)
            if other is None:
                assert mine.metadata.generation == 0
                return
            assert (mine.metadata.state, mine.metadata.generation) == (
                other.metadata.state,
                other.metadata.generation,
            )
            assert mine.metadata.members.leader_id == other.metadata.members.leader_id
            assert [
                (m.member_id, m.instance_id, m.assignment, m.metadata(mine.metadata.protocol))
                for m in mine.metadata.members
            ] == [
                (m.member_id, m.instance_id, m.assignment, m.metadata(other.metadata.protocol))
                for m in other.metadata.members
            ]


Groups.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
test_the_promises_of_a_group_hold = Groups.TestCase
