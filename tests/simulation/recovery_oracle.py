"""What was said in the recovery world, and whether a recovery has made that of it again: D3 to D6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_recovery import KEPT
from bradbury.controller.voter_files.metadata_rebuild import RecoveryPlan

from .metadata_history import settled
from .recovery_voters import Entry, Voter
from .world.simulated_disk import SimulatedDisk

INTERNAL = {"cleanup.policy": "compact"}
Key = tuple[Any, ...]
EPOCH_POSITION, MAGIC_POSITION = 12, 16
"""In a record batch."""


class RecoveryFault(AssertionError):
    """One of D1 to D7 does not hold."""


class RecoveryOracle:
    """said: all that ever was, with its value. snapshots: the end of each, by its bytes. found: of
    each partition's directory, by node, topic and number, the topic's id and the leader epoch.
    producers: ids in these.
    """

    def __init__(self) -> None:
        self.said: set[tuple[Key, object]] = set()
        self.snapshots: dict[bytes, int] = {}
        self.found: dict[tuple[int, str, int], tuple[Any, int]] = {}
        self.producers: set[Key] = set()

    def note(self, image: MetadataImage) -> None:
        self.said |= _said(image)

    def is_somewhere(self, disk: SimulatedDisk, entries: Sequence[Entry], base: int) -> bool:
        """Whether each of the entries is in one of the copies, or in a snapshot."""
        contents = [
            (path, bytes(inode.content))
            for path, inode in disk.names.items()
            if inode is not None and "/metadata/__cluster_metadata-0" in path
        ]
        start = max(
            (
                self.snapshots[data]
                for path, data in contents
                if path.endswith(".checkpoint") and data in self.snapshots
            ),
            default=0,
        )
        logs = [data for path, data in contents if path.endswith(".log")]
        if start < base:
            return False
        return all(
            any(_has_batch(data, each.data) for data in logs)
            for each in entries
            if start < each.end
        )

    def check(
        self,
        plan: RecoveryPlan,
        voters: Sequence[Voter],
        members: Sequence[str],
        committed: MetadataImage,
        *,
        intact: bool,
    ) -> None:
        """Raises RecoveryFault."""
        assert plan.recovered is not None
        image, notes = plan.recovered.image, " ".join(plan.recovered.notes)
        damages = [each for voter in voters for each in voter.damages]
        now = settled(image)
        end = plan.metadata.end.offset
        is_doubtful = any("not known to have been equal" in each for each in plan.metadata.flaws)
        if (intact and not is_doubtful) or plan.metadata.is_whole:
            least = committed.offset if intact else end
            ends = [each for voter in voters for each in voter.entries if each.end >= least]
            candidates = [committed, *(each.image for each in ends)]
            missing = [self._missing(each, now, voters) for each in candidates]
            if all(missing):
                raise RecoveryFault(f"D3: after {damages}: {min(missing, key=len)}")
        acknowledged = sorted(each.acknowledged for each in voters if each.voter_id in members)
        if plan.metadata.is_whole and end < acknowledged[(len(acknowledged) - 1) // 2]:
            raise RecoveryFault(f"D4: nothing is said to be lost after {damages}")
        made_up = [each for each in _said(image) - self.said if not _is_kept(*each)]
        if made_up:
            raise RecoveryFault(f"D4: {made_up} was never said; {damages}")
        producer_id = committed.next_producer_id if intact else 0
        if image.next_producer_id < max(producer_id, *(each[-1] + 1 for each in self.producers), 0):
            raise RecoveryFault("D5: producer ids are given out again")
        node_id = committed.next_node_id if intact else len(voters) + 1
        if image.next_node_id < node_id:
            raise RecoveryFault("D5: node ids are given out again")
        epoch = max(each.vote for each in voters)
        if intact and (image.offset <= committed.offset or image.epoch <= epoch):
            raise RecoveryFault(f"D5: it goes on at {image.epoch}, {image.offset}")
        for (node_id, name, index), (topic_id, epoch) in self.found.items():
            topic = image.topic_by_id(topic_id)
            if topic is None:
                if f" {name}" not in f" {notes}":
                    raise RecoveryFault(f"D6: {name}-{index} is nowhere after {damages}: {notes}")
                continue
            partition = topic.partitions[index]
            if node_id not in partition.replicas and not plan.metadata.is_whole:
                raise RecoveryFault(f"D6: {name}-{index} is not on node {node_id}")
            if partition.leader_epoch <= epoch:
                raise RecoveryFault(f"D5: {name}-{index} goes on in {partition.leader_epoch}")

    def _missing(
        self, wanted: MetadataImage, now: dict[Key, object], voters: Sequence[Voter]
    ) -> list[object]:
        """What was set and is not any more, or otherwise; and what was not set, and is."""
        found = {topic_id for topic_id, _ in self.found.values()}
        names = {name: topic_id for (_, name, _), (topic_id, _) in self.found.items()}
        doubtful = found - set(wanted.topic_names)
        doubtful |= {
            topic.topic_id
            for topic in wanted.topics.values()
            if names.get(topic.name, topic.topic_id) != topic.topic_id
        }
        told = settled(wanted)
        for (_, _, index), (topic_id, _) in self.found.items():
            for number in range(index + 1):
                key = ("partition", topic_id, number)
                if key in now:
                    told.setdefault(key, now[key])  # a directory has it, whatever records say
        for voter in voters:
            told.setdefault(("node", voter.node_id), True)
        keys = {key for key in (*told, *now) if not (len(key) > 1 and key[1] in doubtful)}
        return [(key, told.get(key), now.get(key)) for key in keys if told.get(key) != now.get(key)]


def _has_batch(log: bytes, batch: bytes) -> bool:
    """Whether it is there, whatever its leader epoch is now, which is in no checksum."""
    at = log.find(batch[MAGIC_POSITION:])
    while at >= 0:
        begin = at - MAGIC_POSITION
        if begin >= 0 and log[begin : begin + EPOCH_POSITION] == batch[:EPOCH_POSITION]:
            return True
        at = log.find(batch[MAGIC_POSITION:], at + 1)
    return False


def _said(image: MetadataImage) -> set[tuple[Key, object]]:
    """Settings of topics by their names: of two of one name one may be as forgotten as the other."""
    names = image.topic_names
    return {
        ((key[0], names[key[1]], key[2]) if key[0] == "topic config" else key, value)
        for key, value in settled(image).items()
        if key[0] not in ("partition", "node") and _is_plain(value)
    }


def _is_plain(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_kept(key: Key, value: object) -> bool:
    return key[0] == "topic config" and value in (KEPT.get(key[-1]), INTERNAL.get(key[-1]))
