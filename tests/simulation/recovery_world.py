"""The directories of one or three voters, what happens to their files, and what is made of it.

A controller writes facts of every kind; voters stop, die and lose power; files are flipped, cut,
deleted or replaced by directories. Then the nodes start, and where no majority can vote, somebody
runs `bradbury metadata recover`, which is killed on its way, too. All from one seed.

It drives controller/voter_files over a disk in memory, and nothing else of a cluster; the epochs
and majorities are its own, as Raft has them. What must hold:

    D1  a voter that starts and votes has all that it had acknowledged to have, and nothing else
    D2  a voter is refused, or takes its log from others, only where its files are damaged
    D3  what a recovery makes is what was committed, if any of the copies still has it
    D4  it makes nothing up, and says when something is lost
    D5  epochs, offsets and ids are greater than all that were given out, as far as a file says them
    D6  a partition's directory has its partition in the result, or is named
    D7  what a recovery has made, or has left because it is sound, starts
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from unittest import mock

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    ClusterRecord,
    EpochRecord,
    MetadataRecord,
    VotersRecord,
    encode_metadata_record,
)
from bradbury.cluster.quorum.metadata_snapshot import decode_snapshot, encode_snapshot, end_of
from bradbury.cluster.quorum.voter import Candidate
from bradbury.controller.voter_files.metadata_rebuild import MetadataRebuild, RecoveryPlan
from bradbury.controller.voter_files.replicated_log import ReplicatedLog
from bradbury.controller.voter_files.voter_directory import StoredVoter, VoterDirectory
from bradbury.protocol.records.record_batch import stamp
from bradbury.protocol.records.records import encode_records
from bradbury.storage.directories.log_directories import LogDirectories
from bradbury.storage.disk.storage_failure import DataDirectoryError
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.batches import make_batch

from .metadata_history import Facts, settled
from .recovery_oracle import INTERNAL, RecoveryFault, RecoveryOracle
from .recovery_voters import Entry, Voter, damage, delete, lower_acknowledged
from .world.simulated_disk import SimulatedDisk

CLUSTER = "c"


class Killed(BaseException):
    """The process ends here."""


class RecoveryWorld:
    """See `run`. recoveries, healed, refused: how often that came, for those who run many."""

    def __init__(self, seed: object, *, voters: int) -> None:
        self.random = Random(f"recovery {seed} {voters}")
        self.disk = SimulatedDisk()
        self.recoveries = self.whole = self.healed = self.refused = 0
        self._ids = 0
        self._now_ms = 1
        self.voters = [
            Voter(f"/{letter}", number, f"{letter}0")
            for number, letter in enumerate("abc"[:voters], start=1)
        ]
        self.facts = Facts(self.random, {each.node_id: f"d{each.node_id}" for each in self.voters})
        self.members = tuple(each.voter_id for each in self.voters)
        self.base = MetadataImage()
        self.branch: list[Entry] = []
        self.committed = self.epoch = 0
        self.oracle = RecoveryOracle()
        for voter in self.voters:
            self._form(voter, self.members)
        self.disk.sync_names("/")  # data directories are made by whoever sets up a machine
        self._append(
            [ClusterRecord(cluster_id=CLUSTER, voters=self.members), EpochRecord(epoch=0, owner="")]
        )
        self._write(self.facts.registrations())

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self._work()
            self._stop()
            self._damage()
            if self.random.random() < 0.8:
                self._start()
            else:
                self._recover()
            if not (self.branch or self.base.offset):
                return  # a power loss, and the disk has lost all of a first log

    @property
    def image(self) -> MetadataImage:
        return self.branch[-1].image if self.branch else self.base

    def _voter(self, voter_id: str) -> Voter:
        return next(each for each in self.voters if each.voter_id == voter_id)

    # --- a controller and its voters -------------------------------------------------------------

    def _form(self, voter: Voter, members: tuple[str, ...]) -> None:
        """A new directory with an empty log."""
        voter.files = VoterDirectory(voter.data_dir, self.disk)
        stored = voter.files.open(directory_id=voter.voter_id, now_ms=self._now_ms)
        if stored.log is not None:
            raise RecoveryFault(f"D1: a new directory has a log: {voter.metadata}")
        voter.files.assign_cluster(CLUSTER)
        voter.files.store(Candidate(epoch=0, owner="c"), members)
        voter.log = voter.files.create_log(members, now_ms=self._now_ms)
        voter.entries, voter.acknowledged, voter.vote = [], 0, 0

    def _up(self) -> list[Voter]:
        return [each for each in self.voters if each.log and each.voter_id in self.members]

    def _append(self, records: list[MetadataRecord]) -> None:
        """To the controller's own log; it is at no voter yet."""
        base = self.image.offset
        batch = encode_records([(0, None, encode_metadata_record(each), ()) for each in records])
        stamp(batch, base_offset=base, leader_epoch=self.epoch)
        image = self.image.apply(records, offset=base + len(records))
        self.branch.append(Entry(base, image.offset, self.epoch, bytes(batch), image))
        self.oracle.note(image)

    def _write(self, records: list[MetadataRecord]) -> None:
        """To a majority, or more."""
        if not records:
            return
        self._append(records)
        up = self._up()
        count = self.random.randint(len(self.members) // 2 + 1, len(up))
        for voter in self.random.sample(up, count):
            self._bring(voter)
        self._commit()

    def _bring(self, voter: Voter, *, flushes: bool = True) -> None:
        """The controller's log to a voter: what differs is cut, what is missing appended."""
        log = voter.log
        assert log is not None
        if self.base.offset and log.log_end_offset < self.base.offset:
            data = encode_snapshot(self.base, now_ms=0)
            log.install(end_of(self.base), data, keeps_log=False, now_ms=self._now_ms)
            self.oracle.snapshots[data] = self.base.offset
        same = 0
        for mine, theirs in zip(voter.entries, self.branch, strict=False):
            if mine.data != theirs.data:
                break
            same += 1
        if same < len(voter.entries):
            log.truncate(voter.entries[same].base)
        missing = b"".join(each.data for each in self.branch[same:])
        if missing:
            log.append(memoryview(missing), now_ms=self._now_ms)
        voter.entries = list(self.branch)
        if flushes:
            log.flush()
            voter.acknowledged = self.image.offset

    def _commit(self) -> None:
        ends = sorted(
            each.last[1] if each.last[0] == self.epoch else 0
            for each in map(self._voter, self.members)
        )
        self.committed = max(self.committed, ends[(len(ends) - 1) // 2])

    def _elect(self) -> None:
        """By a majority, of which the one that is furthest is followed."""
        up = self._up()
        count = self.random.randint(len(self.members) // 2 + 1, len(up))
        voting = self.random.sample(up, count)
        leading = max(voting, key=lambda each: each.last)
        self.branch = list(leading.entries)
        self.epoch = max(self.epoch, *(each.vote for each in voting)) + 1
        for voter in voting:
            assert voter.files is not None
            voter.files.store(Candidate(epoch=self.epoch, owner="c"), self.members)
            voter.vote = self.epoch
        self._write([EpochRecord(epoch=self.epoch, owner="c")])

    def _snapshot(self) -> None:
        voter = self.random.choice(self._up())
        assert voter.log is not None
        images = [
            each.image
            for each in voter.entries
            if voter.log.snapshot.offset < each.end <= self.committed
        ]
        if images:
            image = self.random.choice(images)
            data = encode_snapshot(image, now_ms=0)
            self.oracle.snapshots[data] = image.offset
            voter.log.install(end_of(image), data, keeps_log=True, now_ms=self._now_ms)

    def _work(self) -> None:
        random = self.random
        for _ in range(random.randint(1, 25)):
            self._now_ms += 1
            kind = random.random()
            if kind < 0.08:
                self._elect()
            elif kind < 0.15:
                self._snapshot()
            elif kind < 0.2 and len(self.members) > 1:
                self._append(
                    self.facts.next(self.image) or [EpochRecord(epoch=self.epoch, owner="")]
                )
                self._bring(random.choice(self._up()))  # and no majority ever hears of it
                self._elect()
            else:
                self._write(self.facts.next(self.image))
        for voter in self.voters:
            self._fill(voter)

    def _fill(self, voter: Voter) -> None:
        """Some of the partitions of the voter's node get records."""
        directories = LogDirectories.open(
            self.disk, [voter.partitions], directory_ids=[f"d{voter.node_id}"]
        )
        directories.load_logs(lambda topic: LogConfig(), now_ms=self._now_ms)
        [directory] = directories.all
        directories.assign_identity(cluster_id=CLUSTER, node_id=voter.node_id)
        for topic in self._committed_image().topics.values():
            for index, partition in enumerate(topic.partitions):
                key = (voter.node_id, topic.name, index)
                there = self.oracle.found.get(key, (topic.topic_id, 0))
                is_here = voter.node_id in partition.replicas and there[0] == topic.topic_id
                if not is_here or self.random.random() < 0.5:
                    continue
                log = directory.logs.get((topic.name, index))
                if log is None:
                    log = directory.create_log(
                        topic.name, index, topic.topic_id, LogConfig(), now_ms=self._now_ms
                    )
                epoch = max(partition.leader_epoch, there[1])
                producer_id = self._committed_image().next_producer_id - 1
                is_first = producer_id >= 0 and (*key, producer_id) not in self.oracle.producers
                batch = make_batch(
                    producer_id=producer_id if is_first else -1,
                    producer_epoch=0 if is_first else -1,
                    base_sequence=0 if is_first else -1,
                )
                if is_first:
                    self.oracle.producers.add((*key, producer_id))
                log.append_as_leader(batch, leader_epoch=epoch, now_ms=self._now_ms)
                self.oracle.found[key] = (topic.topic_id, epoch)
        directories.close(clean=True)

    def _committed_image(self) -> MetadataImage:
        images = (each.image for each in reversed(self.branch) if each.end <= self.committed)
        return next(images, self.base)

    # --- the end of a life -----------------------------------------------------------------------

    def _stop(self) -> None:
        random = self.random
        how = random.choice(["clean", "death", "power", "power"])
        if how != "clean" and random.random() < 0.5:
            self._append(self.facts.next(self.image) or [EpochRecord(epoch=self.epoch, owner="")])
            self._bring(random.choice(self._up()), flushes=False)
        for voter in self.voters:
            if how == "clean" and voter.log is not None and voter.files is not None:
                voter.log.close()
                voter.files.close()
        self._end_lives()
        if how == "power":
            self.disk = self.disk.lose_power(random)

    def _end_lives(self) -> None:
        self.disk.after_death()
        for voter in self.voters:
            voter.files = voter.log = None

    def _damage(self) -> None:
        random = self.random
        for voter in self.voters:
            voter.damages, voter.has_lost_all = [], False
            count = random.choice([0, 0, 1, 1, 1, 2])
            if count:
                lower_acknowledged(self.disk, voter)
            for _ in range(count):
                damage(self.disk, voter, self.random)

    # --- the next start --------------------------------------------------------------------------

    def _start(self) -> None:
        self._now_ms += 1
        fit, catching_up, others = [], [], []
        opened = [(voter, self._open(voter)) for voter in self.voters]
        whole = [each for each, at in opened if at is not None and at.log and not at.catches_up]
        self._follow_voters(whole)
        for voter, stored in opened:
            if stored is None or stored.log is None:
                others.append(voter)
            elif voter.voter_id not in self.members:
                others.append(voter)
            elif stored.catches_up:
                catching_up.append(voter)
            else:
                fit.append(voter)
        if len(fit) <= len(self.members) // 2:
            self._end_lives()
            self._recover()
            return
        if not any(each.entries or self.base.offset for each in fit):
            self.branch = []
            return
        for voter in [*catching_up, *others]:
            voter.log, log = None, voter.log
            voter.entries = []
            if voter in catching_up:
                voter.log = log
        self._rejoin(catching_up, others)

    def _follow_voters(self, voters: list[Voter]) -> None:
        """Who votes is what the log says that is furthest: a change of it may be lost, too."""
        furthest = max(voters, key=lambda each: each.last, default=None)
        if furthest is not None and furthest.entries:
            self.members = furthest.entries[-1].image.voters or self.members

    def _rejoin(self, catching_up: list[Voter], others: list[Voter]) -> None:
        up_again = {id(each): each.log for each in catching_up}
        for voter in catching_up:
            voter.log = None  # it does not vote yet
        self._elect()
        for voter in catching_up:
            voter.log = up_again[id(voter)]
            self._bring(voter)
            assert voter.files is not None
            voter.vote = max(voter.vote, self.epoch)
            voter.files.store(
                Candidate(epoch=voter.vote, owner="c"), self.members, catches_up=False
            )
            self.healed += 1
        for voter in others:
            self._replace(voter)

    def _replace(self, voter: Voter) -> None:
        """As docs/recovery.md says: moved away, removed, and a new one added."""
        self.disk.after_death()
        delete(self.disk, voter.metadata)
        for each in self.voters:
            if each.files is not None and each is not voter:
                self.disk.locks.pop(f"{each.metadata}/.lock", None)
        left = tuple(each for each in self.members if each != voter.voter_id)
        if left != self.members:
            self.members = left
            self._write([VotersRecord(voters=self.members)])
        self._ids += 1
        voter.voter_id = f"{voter.voter_id[0]}{self._ids}"
        self._form(voter, ())
        self._bring(voter)
        self.members = (*self.members, voter.voter_id)
        self._write([VotersRecord(voters=self.members)])

    def _open(self, voter: Voter) -> StoredVoter | None:
        voter.files = VoterDirectory(voter.data_dir, self.disk)
        self._ids += 1
        new_id = f"{voter.voter_id[0]}{self._ids}"
        try:
            stored = voter.files.open(directory_id=new_id, now_ms=self._now_ms)
        except DataDirectoryError as error:
            if not voter.damages:
                raise RecoveryFault(f"D2: refused without damage: {error}") from error
            if "\n" in str(error):
                raise RecoveryFault(f"D2: {error}") from error
            self.refused += 1
            voter.files = None
            return None
        if stored.log is None:
            is_expected = voter.has_lost_all or len(voter.damages) > 1
            if voter.entries and voter.voter_id in self.members and not is_expected:
                raise RecoveryFault(f"D1: {voter.metadata} is new after {voter.damages}")
            return stored
        if stored.catches_up:
            if not voter.damages or self.members == (voter.voter_id,):
                raise RecoveryFault(f"D2: {voter.metadata} catches up after {voter.damages}")
        else:
            self._check_log(voter, stored.log)
        if stored.vote.epoch < voter.vote and len(voter.damages) < 2:
            raise RecoveryFault(f"D1: the vote of {voter.vote} is {stored.vote} now")
        voter.log = stored.log
        return stored

    def _check_log(self, voter: Voter, log: ReplicatedLog) -> None:
        """D1."""
        where = f"{voter.metadata} after {voter.damages}"
        end = log.log_end_offset
        if end < voter.acknowledged and len(voter.damages) < 2:
            raise RecoveryFault(f"D1: {where} ends at {end}, {voter.acknowledged} was acknowledged")
        if log.snapshot.offset:
            image = decode_snapshot(log.read_snapshot())
            images = [self.base, *(each.image for each in voter.entries)]
            if all(_differs(image, each) for each in images):
                raise RecoveryFault(f"D1: the snapshot of {where} is another one")
        at = log.snapshot.offset
        data = b""
        while at < end:
            piece = log.read(at)
            data += piece
            at = log._next_offset
        expected = [each for each in voter.entries if log.snapshot.offset < each.end <= end]
        if data != b"".join(each.data for each in expected) or at != end:
            raise RecoveryFault(f"D1: the log of {where} is another one up to {end}, {at}")
        voter.entries = [each for each in voter.entries if each.end <= end]

    # --- recovery --------------------------------------------------------------------------------

    def _recover(self) -> None:
        committed = [each for each in self.branch if each.end <= self.committed]
        intact = self.oracle.is_somewhere(self.disk, committed, self.base.offset)
        plan = self._carry_out()
        if plan is None or plan.recovered is None:
            self._start_after_nothing()
            return
        self.recoveries += 1
        self.whole += plan.metadata.is_whole
        self.oracle.check(plan, self.voters, self.members, self._committed_image(), intact=intact)
        self._continue_from(plan.recovered.image)

    def _carry_out(self) -> RecoveryPlan | None:
        """The plan that was carried out at last; killed on the way now and then."""
        made: RecoveryPlan | None = None
        while True:
            self._now_ms += 1
            left = self.random.randint(1, 80) if self.random.random() < 0.5 else 0
            enter = self.disk.enter

            def counted(operation: str, path: str, enter: Callable[..., None] = enter) -> None:
                nonlocal left
                enter(operation, path)
                left -= operation != "read"
                if left == 0:
                    raise Killed

            try:
                with mock.patch.object(self.disk, "enter", counted):
                    plan = self._attempt()
                if plan.recovered is None and made is not None and made.new is not None:
                    # The attempt before was killed when all was done but the last rename, or not.
                    return made if plan.metadata.end.offset == made.new.offset else plan
                return plan
            except Killed as killed:
                if killed.args:
                    made = killed.args[0]
                if self.random.random() < 0.5:
                    self.disk = self.disk.lose_power(self.random)
                    for voter in self.voters:
                        if voter.damages:
                            lower_acknowledged(self.disk, voter)
                self.disk.after_death()

    def _attempt(self) -> RecoveryPlan:
        self._ids += 1
        new_id = f"a{self._ids}"
        rebuild = MetadataRebuild(
            [each.data_dir for each in self.voters],
            self.disk,
            new_id=lambda: new_id,
            internal_configs=lambda name: INTERNAL if name.startswith("__") else None,
            now_ms=self._now_ms,
        )
        with rebuild.locked(makes_files=True):
            if rebuild.is_interrupted:
                rebuild.finish()
            try:
                plan = rebuild.plan()
            except DataDirectoryError as error:
                here = {each.voter_id for each in self.voters}
                if "--other-voters-are-lost" not in str(error) or set(self.members) <= here:
                    lost = [each.has_lost_all or len(each.damages) > 1 for each in self.voters]
                    if not any(lost):
                        raise RecoveryFault(f"D7: {error}") from error
                plan = rebuild.plan(others_are_lost=True)
            try:
                rebuild.carry_out(plan)
            except Killed:
                raise Killed(plan if plan.recovered is not None else None) from None
        return plan

    def _continue_from(self, image: MetadataImage) -> None:
        """D7, and a cluster with one voter; the others come back empty."""
        first, *rest = self.voters
        for voter in self.voters:
            voter.damages, voter.has_lost_all, voter.entries = [], False, []
        first.voter_id, self.members = image.voters[0], image.voters
        self.base, self.branch, self.committed, self.epoch = image, [], image.offset, image.epoch
        self.oracle.snapshots[encode_snapshot(image, now_ms=self._now_ms)] = image.offset
        self.oracle.note(image)
        first.acknowledged, first.vote = image.offset, image.epoch
        self._now_ms += 1
        stored = self._open(first)
        if stored is None or stored.log is None:
            raise RecoveryFault("D7: what was made does not start")
        self.oracle.snapshots[stored.log.read_snapshot()] = image.offset
        if stored.log.voters != self.members:
            raise RecoveryFault(f"D7: {stored.log.voters} vote")
        self._elect()
        for voter in rest:
            self._replace(voter)

    def _start_after_nothing(self) -> None:
        """D7: there was nothing to do, so a majority can vote."""
        for voter in self.voters:
            stored = self._open(voter)
            if stored is None or stored.log is None or stored.catches_up:
                voter.log = None
        if len(self._up()) <= len(self.members) // 2:
            damages = [each for voter in self.voters for each in voter.damages]
            raise RecoveryFault(f"D7: nothing was done, and no majority votes: {damages}")
        self._end_lives()
        self._start()


def _differs(image: MetadataImage, other: MetadataImage) -> bool:
    return image.offset != other.offset or settled(image) != settled(other)
