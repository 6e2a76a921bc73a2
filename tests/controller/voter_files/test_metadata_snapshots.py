"""Does a snapshot stand for the log it replaces, whatever happens while it is written or brought?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any
from uuid import uuid4

import pytest

from bradbury.actors.controller.controller import Controller
from bradbury.actors.controller.voter_host import VoterHost
from bradbury.cluster.broker_config import BrokerConfig
from bradbury.cluster.control.controller_state import NodeRegistration
from bradbury.cluster.control.topic_control import CreateTopics, TopicToCreate
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.quorum.metadata_snapshot import encode_snapshot, end_of, snapshot_name
from bradbury.cluster.quorum.voter import NO_SNAPSHOT, Candidate, LogEnd
from bradbury.controller.controller_calls import RegisterBroker
from bradbury.controller.controller_effects import Instant
from bradbury.controller.metadata_snapshots import MetadataSnapshots
from bradbury.controller.quorum_times import QuorumTimes
from bradbury.controller.voter_files.acknowledged_offset import AcknowledgedOffset
from bradbury.controller.voter_requests import (
    AppendEntries,
    DescribeVoter,
    FetchEntries,
    FormatVoter,
    InstallSnapshot,
    QuorumRequest,
    VoteRequest,
)
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.protocol.errors import ConnectionFailed, CorruptMessage, KafkaStorageError
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import encode_records
from bradbury.storage.disk.storage_failure import DirectoryUnusable
from bradbury.tests.support.storage.memory_file_system import Inode, MemoryFileSystem

NOW = 1_700_000_000_000
IMPATIENT = QuorumTimes(find_ms=10, retry_ms=10)
LOG = "/data/metadata/__cluster_metadata-0"
SMALL = {"metadata.log.max.record.bytes.between.snapshots": "2000"}


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


class PowerCut(Exception):
    """The machine is gone in the middle of it."""


class Machine:
    """A voter on a disk in memory, which can lose its power, and its network."""

    def __init__(self, name: str, disk: MemoryFileSystem | None = None) -> None:
        self.name = name
        self.disk = disk or MemoryFileSystem()
        self.is_cut = False
        self.voter = VoterHost(name, "/data", self.disk, now_ms=lambda: NOW)
        self.voter.open()

    def lose_power(self, *, keep_contents: bool = False) -> Machine:
        return Machine(self.name, self.disk.crash(keep_contents=keep_contents))

    async def restart(self) -> None:
        await self.voter.close()
        self.voter = VoterHost(self.name, "/data", self.disk, now_ms=lambda: NOW)
        self.voter.open()

    def log_bases(self) -> list[int]:
        names = self.disk.list_directory(LOG)
        return sorted(int(name[:20]) for name in names if name.endswith(".log"))

    def snapshots(self) -> list[str]:
        return [name for name in self.disk.list_directory(LOG) if name.endswith(".checkpoint")]

    async def ask(self, request: QuorumRequest[Any]) -> Any:
        if self.is_cut:
            raise ConnectionFailed(f"{self.name} is cut off")
        return await self.voter.ask(request)


async def start(*machines: Machine, **config: str) -> Controller:
    controller = Controller(
        lambda: machines,
        ServerConfig.from_kafka(config),
        now_ms=lambda: NOW,
        on_superseded=lambda: None,
    )
    await controller.start()
    return controller


async def create(controller: Controller, *names: str) -> None:
    if not controller.image.nodes:
        await controller.ask(
            RegisterBroker(
                NodeRegistration(
                    directory_id="d",
                    incarnation="i",
                    roles=("partition",),
                    host="h",
                    port=1,
                    rack=None,
                )
            )
        )
    for name in names:
        topic = TopicToCreate(name=name, topic_id=uuid4(), partitions=1)
        await controller.change(CreateTopics(topics=(topic,)), timeout_ms=0)


async def wait_for(is_so: Any) -> None:
    while not is_so():
        await asyncio.sleep(0.005)


# --- what it is for ------------------------------------------------------------------------------


def test_the_log_does_not_grow_forever_and_a_start_needs_only_its_end() -> None:
    async def scenario() -> None:
        machines = [Machine(f"broker/{name}") for name in "abc"]
        controller = await start(*machines, **SMALL)
        await create(controller, *(f"topic-{n}" for n in range(40)))
        await wait_for(lambda: all(len(each.snapshots()) == 1 for each in machines))
        await wait_for(lambda: all(each.log_bases()[0] > 0 for each in machines))
        await wait_for(
            lambda: all(
                sum(each.disk.size(f"{LOG}/{base:020d}.log") for base in each.log_bases()) < 15_000
                for each in machines
            )
        )
        image = controller.image
        await controller.close()
        second = await start(*(each.lose_power() for each in machines), **SMALL)
        assert second.image.topics == image.topics
        assert second.image.nodes == image.nodes
        assert second.image.next_node_id == image.next_node_id
        assert second.image.offset == image.offset + 1
        await second.close()

    run(scenario())


def test_a_voter_that_was_away_for_long_is_caught_up_by_a_snapshot() -> None:
    async def scenario() -> None:
        machines = [Machine(f"broker/{name}") for name in "abc"]
        controller = await start(*machines, **SMALL)
        await create(controller, "before")
        away = machines[2]
        away.is_cut = True
        await create(controller, *(f"while-away-{n}" for n in range(30)))
        await wait_for(lambda: len(machines[0].snapshots()) == 1)
        away.is_cut = False
        while (await away.voter.ask(DescribeVoter())).log_end_offset < controller.image.offset:
            await asyncio.sleep(0.01)
        assert (await away.voter.ask(DescribeVoter())).snapshot != NO_SNAPSHOT
        image = controller.image
        await controller.close()
        # The other two are needed no more: with any second voter it has everything.
        machines[0].is_cut = True
        second = await start(*(each.lose_power() for each in machines[1:]))
        assert second.image.topics == image.topics
        await second.close()

    run(scenario())


def test_a_snapshot_is_taken_after_the_interval_when_there_was_a_change() -> None:
    async def scenario() -> None:
        machine = Machine("broker/a")
        controller = await start(machine, **{"metadata.log.max.snapshot.interval.ms": "1"})
        await create(controller, "t")
        await wait_for(lambda: machine.snapshots() != [])
        await controller.close()

    run(scenario())


def test_changes_go_on_while_one_voter_cannot_take_a_snapshot() -> None:
    async def scenario() -> None:
        machines = [Machine(f"broker/{name}") for name in "abc"]
        full = machines[1]

        def refuse(operation: str, path: str) -> None:
            if ".checkpoint" in path and operation == "write":
                raise OSError(28, "No space left on device")

        full.disk.before = refuse
        controller = await start(*machines, **SMALL)
        await create(controller, *(f"topic-{n}" for n in range(30)))
        await wait_for(lambda: len(machines[0].snapshots()) == 1)
        assert full.snapshots() == []
        full.disk.before = lambda operation, path: None
        await wait_for(lambda: len(full.snapshots()) == 1)
        await controller.close()

    run(scenario())


# --- the power is lost at every step -------------------------------------------------------------

ME = Candidate(epoch=60, owner="me")


class History:
    """A cluster's log on one machine, and the snapshot of its first part."""

    def __init__(self, machine: Machine, log: bytes, image: MetadataImage, topics: set[str]):
        self.machine = machine
        self.log = log
        self.end = end_of(image)
        self.snapshot = encode_snapshot(image, now_ms=NOW)
        self.topics_of_snapshot = set(image.topics)
        self.topics = topics


async def history() -> History:
    machine = Machine("broker/a")
    controller = await start(machine)
    await create(controller, "one", "two")
    image = controller.image
    await create(controller, "three")
    topics = set(controller.image.topics)
    await controller.close()
    await machine.voter.ask(VoteRequest(ME))
    log = await machine.voter.ask(FetchEntries(ME, 0))
    return History(machine, log, image, topics)


async def empty(past: History) -> Machine:
    """A voter of the same cluster that has nothing yet."""
    state = await past.machine.voter.ask(DescribeVoter())
    assert state.cluster_id is not None
    other = Machine("broker/b")
    await other.voter.ask(
        FormatVoter(state.cluster_id, (await other.voter.ask(DescribeVoter())).voters or ("x",))
    )
    return other


async def behind(past: History) -> Machine:
    """One that has the first entry only."""
    other = await empty(past)
    size = 12 + int.from_bytes(past.log[8:12], "big")
    await other.voter.ask(
        AppendEntries(Candidate(epoch=50, owner="former"), LogEnd(-1, 0), past.log[:size], 0)
    )
    return other


async def otherwise(past: History) -> Machine:
    """One that has something else, which was never committed, and goes beyond the snapshot."""
    other = await behind(past)
    state = await other.voter.ask(DescribeVoter())
    value = b'{"type":"EpochRecord","epoch":51,"owner":"rival"}'
    batch = encode_records([(NOW, None, value, ())] * 40)
    stamp(batch, base_offset=state.log_end_offset, leader_epoch=51)
    previous = LogEnd(state.last_epoch, state.log_end_offset)
    await other.voter.ask(
        AppendEntries(Candidate(epoch=51, owner="rival"), previous, bytes(batch), 0)
    )
    return other


async def whole(past: History) -> Machine:
    """One that has all of it."""
    return past.machine.lose_power()


async def install(machine: Machine, past: History, me: Candidate = ME) -> None:
    half = len(past.snapshot) // 2
    size = len(past.snapshot)
    first = await machine.voter.ask(InstallSnapshot(me, past.end, 0, past.snapshot[:half], size))
    if not first.is_there:
        assert first.position == half
        rest = await machine.voter.ask(
            InstallSnapshot(me, past.end, half, past.snapshot[half:], size)
        )
        assert rest.is_there


def cut_power_at(machine: Machine, step: int) -> list[str]:
    """Cut the power at that operation of its disk; returns the operations until then."""
    done: list[str] = []

    def before(operation: str, path: str) -> None:
        done.append(f"{operation} {path}")
        if len(done) > step:
            raise PowerCut(done[-1])

    machine.disk.before = before
    return done


@pytest.mark.parametrize("keep_contents", [False, True])
@pytest.mark.parametrize("before", [empty, behind, otherwise, whole])
def test_at_every_step_the_old_log_is_there_or_the_new_one_with_its_snapshot(
    before: Any, keep_contents: bool
) -> None:
    async def scenario() -> None:
        steps = 0
        while True:
            past = await history()
            machine = await before(past)
            old = await machine.voter.ask(DescribeVoter())
            done = cut_power_at(machine, steps)
            try:
                await install(machine, past)
            except PowerCut:
                is_through = False
            else:
                is_through = True
            machine.disk.before = lambda operation, path: None
            after = machine.lose_power(keep_contents=keep_contents)
            now = await after.voter.ask(DescribeVoter())
            if before is whole:
                assert now.log_end_offset == old.log_end_offset
                assert now.snapshot in (NO_SNAPSHOT, past.end), done
            else:
                kept = (NO_SNAPSHOT, old.log_end_offset)
                rewritten = (past.end, past.end.offset)
                assert (now.snapshot, now.log_end_offset) in (kept, rewritten), done
            if is_through:
                assert now.snapshot == past.end
            assert len(after.snapshots()) <= 1
            # And it can be done again, by whoever comes next.
            await install(after, past, Candidate(epoch=70, owner="next"))
            assert (await after.voter.ask(DescribeVoter())).snapshot == past.end
            assert after.snapshots() == [snapshot_name(past.end)]
            if before is whole:
                controller = await start(after)
                assert set(controller.image.topics) == past.topics
                await controller.close()
            if is_through:
                break
            steps += 1
        assert steps > 8, "the power was cut nowhere"

    run(scenario())


def test_a_snapshot_whose_disk_fails_changes_nothing_but_that_the_disk_has_failed() -> None:
    async def scenario() -> None:
        past = await history()
        machine = await whole(past)

        def fail(operation: str, path: str) -> None:
            if operation == "sync" and ".checkpoint" in path:
                raise OSError(5, "Input/output error")

        machine.disk.before = fail
        with pytest.raises(KafkaStorageError):
            await install(machine, past)
        after = machine.lose_power()
        controller = await start(after)
        assert set(controller.image.topics) == past.topics
        await controller.close()

    run(scenario())


def test_a_full_disk_refuses_a_snapshot_and_takes_it_when_there_is_room() -> None:
    async def scenario() -> None:
        past = await history()
        machine = await whole(past)
        machine.disk.space = 100
        with pytest.raises(KafkaStorageError):
            await install(machine, past)
        machine.disk.space = None
        await install(machine, past)
        assert (await machine.voter.ask(DescribeVoter())).snapshot == past.end

    run(scenario())


def test_pieces_out_of_turn_or_of_another_snapshot_never_make_one() -> None:
    async def scenario() -> None:
        past = await history()
        machine = await behind(past)
        data, size = past.snapshot, len(past.snapshot)
        assert (
            await machine.voter.ask(InstallSnapshot(ME, past.end, 0, data[:100], size))
        ).position == 100
        assert (
            await machine.voter.ask(InstallSnapshot(ME, past.end, 300, data[300:], size))
        ).position == 100
        await machine.restart()
        assert (
            await machine.voter.ask(InstallSnapshot(ME, past.end, 100, data[100:], size))
        ).position == 0
        with pytest.raises(CorruptMessage):
            await machine.voter.ask(InstallSnapshot(ME, past.end, 0, bytes(size), size))
        assert (await machine.voter.ask(DescribeVoter())).snapshot == NO_SNAPSHOT
        await install(machine, past)

    run(scenario())


def test_a_log_whose_snapshot_is_gone_is_not_taken_for_a_whole_one() -> None:
    async def scenario() -> None:
        past = await history()
        machine = await behind(past)
        await install(machine, past)
        after = machine.disk.crash()
        del after.names[f"{LOG}/{snapshot_name(past.end)}"]
        again = Machine("broker/b", after)
        state = await again.voter.ask(DescribeVoter())
        assert (state.log_end_offset, state.snapshot) == (0, NO_SNAPSHOT)
        # What is taken from the others begins with nothing that was acknowledged.
        assert AcknowledgedOffset(after, "/data/metadata").read() == NO_SNAPSHOT
        # With its vote a log without what it had acknowledged could win.
        with pytest.raises(KafkaStorageError, match="does not vote until the log is restored"):
            await again.voter.ask(VoteRequest(Candidate(epoch=99, owner="x")))

    run(scenario())


def test_a_damaged_snapshot_is_passed_over_while_the_log_is_whole() -> None:
    async def scenario() -> None:
        past = await history()
        machine = await whole(past)
        inode = Inode()
        inode.content = bytearray(past.snapshot[:-1])
        machine.disk.names[f"{LOG}/{snapshot_name(past.end)}"] = inode
        acknowledged = AcknowledgedOffset(machine.disk, "/data/metadata").read()
        assert acknowledged not in (None, NO_SNAPSHOT)
        await machine.restart()
        assert AcknowledgedOffset(machine.disk, "/data/metadata").read() == acknowledged
        assert (await machine.voter.ask(DescribeVoter())).snapshot == NO_SNAPSHOT
        assert machine.snapshots() == []
        controller = await start(machine)
        assert set(controller.image.topics) == past.topics
        await controller.close()

    run(scenario())


class Leader:
    """What a snapshot asks of the leader of the metadata."""

    def __init__(self) -> None:
        self.compacted: list[LogEnd] = []

    def batches_from(self, offset: int) -> list[bytes]:
        return [bytes(100)]

    def compact(self, end: LogEnd, snapshot: bytes, now: Instant) -> None:
        self.compacted.append(end)


def test_a_former_leaders_snapshot_is_not_its_successors() -> None:
    """It comes when the next leader's own is under way, of a log that may go on differently."""
    former, leader = Leader(), Leader()
    leading: list[Leader] = [former]
    effects: list[Any] = []
    snapshots = MetadataSnapshots(
        BrokerConfig(metadata_log_max_record_bytes_between_snapshots=50),
        effects,
        lambda one: leading[0] is one,
    )
    image, now = MetadataImage(), Instant(0, NOW)

    def take() -> None:
        snapshots.take_if_due(image, leading[0], now)

    snapshots.begin(former, now)
    take()
    leading[0] = leader
    snapshots.begin(leader, now)
    take()
    assert len(effects) == 2
    effects[0].then(effects[0].work(), now)
    assert former.compacted == []
    take()
    assert len(effects) == 2, "one at a time"
    effects[1].then(effects[1].work(), now)
    assert leader.compacted == [end_of(image)]
    take()
    assert len(effects) == 2, "nothing has come since"


@pytest.mark.parametrize("keep_contents", [False, True])
def test_power_that_fails_while_a_damaged_log_is_written_again_makes_no_empty_cluster(
    keep_contents: bool,
) -> None:
    """The voter is alone. What is damaged stands for nothing: it is in the snapshot."""

    def damaged(machine: Machine) -> MemoryFileSystem:
        disk = machine.disk.crash(keep_contents=True)
        log = next(path for path in disk.names if path.startswith(LOG) and path.endswith(".log"))
        disk.names[log].content[70] ^= 1
        return disk

    async def scenario() -> None:
        past = await history()
        machine = await whole(past)
        await install(machine, past)
        steps = refusals = 0
        is_through = False
        while not is_through:
            disk = damaged(machine)
            stand_in = Machine.__new__(Machine)
            stand_in.disk = disk
            cut_power_at(stand_in, steps)
            with contextlib.suppress(PowerCut):
                Machine(machine.name, disk)
                is_through = True
            steps += 1
            try:
                after = Machine(machine.name, disk.crash(keep_contents=keep_contents))
            except DirectoryUnusable:
                refusals += 1
                continue
            controller = await start(after)
            assert set(controller.image.topics) == past.topics, steps
            await controller.close()
        assert steps > 8
        assert refusals < steps // 2

    run(scenario())
