"""What must hold in every moment of the simulation, and the ledger by which that is known.

The names are those of the design: R replication, C controller, L log. The ledger holds, for each
partition, the committed log: every batch below any high watermark that any replica has ever had.
Whatever is read, acknowledged, truncated or elected is compared with it.

    R1  one life of one node leads in a leader epoch      R2  same offset and epoch, same batch
    R3  a leader has everything committed                 R4  committed is committed forever
    R5  nobody's high watermark is beyond the leader's    R7  who joins the ISR has all committed
    R8  epochs of a partition only grow                   R9  nobody out of service joins the ISR
    R10 ISR, ELR and leader are replicas; so is who comes or goes
    C1  a committed metadata entry never changes          C2  an epoch has one owner at a voter
    C3  what is published is committed                    C4  replaying the log gives the image
    F1  with flush.messages=1 what was claimed survives a power loss
    F2  what a leader has said is deleted stays so        K1  consumers are sent into their own rack
    D1  deleted counts what all in sync have deleted      D2  nothing else is deleted, but by retention
    L3  log start <= high watermark <= log end            L7  derived state is that of the records
    L8  a compacted log has the last of each key          (simulated_ledger)
    P1  the first replicas are in as many racks as there can be (simulated_cluster)

Where more machines have lost data at once than the settings promise to survive, a partition is
`damaged`: then records may be lost (R3, R4, R7 are not asked), but nothing may be made up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bradbury.cluster.metadata.metadata_image import NO_LEADER, MetadataImage, PartitionImage
from bradbury.cluster.metadata.metadata_records import decode_metadata_record
from bradbury.controller.controller_calls import AllocateProducerIds, ControllerCall
from bradbury.protocol.records.record_batch import read_header
from bradbury.protocol.records.records import iterate_records
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.storage.log.partition_log import PartitionLog

from ..world.simulated_replica import (
    Batch,
    SimulatedReplica,
    batches_of,
    read_batches,
)
from ..world.simulated_swarm import DAMAGING
from .simulated_ledger import Ledger, Ledgers
from .simulated_log_checks import (
    FormerReplicas,
    Violation,
    check_derived,
    check_has_all,
    check_log,
    check_sequences,
    has_all,
)

if TYPE_CHECKING:
    from bradbury.controller.metadata_leader import MetadataLeader
    from bradbury.replication.logs.log_compactor import LogCompactor

    from ..world.controllers.simulated_controller import SimulatedController
    from ..world.simulated_cluster import SimulatedCluster
    from ..world.simulated_node import SimulatedNode
    from .simulated_clients import Producer, Reader, Sent

KEPT_LINES = 4_000


class Oracle:
    """Told by the simulated parts what they do. Raises Violation."""

    def __init__(self, cluster: SimulatedCluster, partitions: list[TopicPartitionPair]) -> None:
        self._cluster = cluster
        self.ledgers = Ledgers(
            {
                partition_id: Ledger(is_compacted=cluster.is_compacted(partition_id))
                for partition_id in partitions
            }
        )
        self.image = MetadataImage()
        """The newest that is committed."""
        self._entries: dict[int, bytes] = {}
        """The committed metadata log: its batches by their first offset."""
        self._entries_end = 0
        self._producer_ids: set[tuple[int, int]] = set()
        self._leaders: dict[tuple[TopicPartitionPair, int], tuple[int, int]] = {}
        self._owners: dict[tuple[str, int], str] = {}
        self._sent: dict[int, str] = {}
        self._verified: dict[SimulatedReplica, int] = {}
        self._former = FormerReplicas(cluster.clock)
        self.lines: list[tuple[int, TopicPartitionPair | None, str]] = []
        self.elections = 0
        self.truncations = 0
        self.reassignments = 0
        self.deletions = 0
        self.cleanings = 0
        self.healed = 0

    def note(self, partition_id: TopicPartitionPair | None, text: str) -> None:
        """A line of the transcript."""
        self.lines.append((self._cluster.clock.now_ms, partition_id, text))
        if len(self.lines) > 2 * KEPT_LINES:
            del self.lines[:KEPT_LINES]

    def transcript(self, partition_id: TopicPartitionPair | None, count: int = 40) -> list[str]:
        """The last lines about a partition, and those about no single one."""
        found = [
            f"{at:7d} ms  {text}"
            for at, about, text in self.lines
            if about is None or partition_id is None or about == partition_id
        ]
        return found[-count:]

    # --- replicas --------------------------------------------------------------------------------

    def on_opened(
        self, node: SimulatedNode, partition_id: TopicPartitionPair, log: PartitionLog
    ) -> None:
        self.note(
            partition_id,
            f"node {node.node_id} opens its log: end {log.log_end_offset}, "
            f"high watermark {log.high_watermark}, epochs {log.epochs.entries}",
        )
        self._cluster.clock.note(log.log_end_offset)
        check_log(log, partition_id)
        if (
            log.log_start_offset < node.deleted.get(partition_id, 0)
            and node.node_id not in self.ledgers[partition_id].lossy
        ):
            raise Violation(
                "F2",
                f"node {node.node_id} opens its log from {log.log_start_offset}, and had said that "
                f"everything below {node.deleted[partition_id]} is deleted",
                partition_id,
            )
        claimed = node.claimed.get(partition_id, 0)
        if node.disk.rotten and node.node_id in self.ledgers[partition_id].lossy:
            # A start cuts the last segment off at its first flaw.
            node.claimed[partition_id] = min(claimed, log.log_end_offset)
        elif log.log_end_offset < claimed:
            raise Violation(
                "F1",
                f"node {node.node_id} opens its log at {log.log_end_offset}, and had said that "
                f"{claimed} was on the disk",
                partition_id,
            )

    def on_leader(self, replica: SimulatedReplica, state: PartitionImage) -> None:
        partition_id, node, log = replica.partition_id, replica.node, replica.log
        self.note(
            partition_id,
            f"node {node.node_id} leads epoch {state.leader_epoch} from {log.log_end_offset}, "
            f"ISR {state.isr}, ELR {state.elr}, high watermark {log.high_watermark}",
        )
        self.elections += 1
        if partition_id not in self.ledgers:
            return  # a topic that is deleted and made again has the same epochs again
        life = node.node_id, node.process.life
        known = self._leaders.setdefault((partition_id, state.leader_epoch), life)
        if known != life:
            raise Violation(
                "R1",
                f"epoch {state.leader_epoch} is led by life {life[1]} of node {life[0]} "
                f"and was by life {known[1]} of node {known[0]}",
                partition_id,
            )
        ledger = self.ledgers[partition_id]
        newest = self.image.partition(*partition_id)
        is_newest = newest is not None and newest.leader_epoch == state.leader_epoch
        # One that has lost some knows it, and asks the others for it.
        if is_newest and not ledger.is_damaged and node.node_id not in ledger.lossy:
            check_has_all(replica, ledger)

    def on_high_watermark(self, replica: SimulatedReplica) -> None:
        """It has moved to log.high_watermark: what lies below is committed."""
        log, partition_id = replica.log, replica.partition_id
        ledger = self.ledgers[partition_id]
        start = self._verified.get(replica, 0)
        end = log.high_watermark
        self._verified[replica] = max(start, end)
        self._cluster.clock.note(end)
        if ledger.is_damaged:
            return
        if replica.leader is None and end > ledger.committed_end:
            raise Violation(
                "R5",
                f"{replica}, a follower, has high watermark {end}, no leader had more than "
                f"{ledger.committed_end}",
                partition_id,
            )
        for batch in read_batches(log, max(start, log.log_start_offset), end):
            if batch.base_offset < ledger.committed_end:
                if not ledger.holds(batch):
                    committed = ledger.by_offset.get(batch.base_offset)
                    raise Violation(
                        "R4", f"{replica} commits {batch}, committed is {committed}", partition_id
                    )
            else:
                if batch.base_offset != ledger.committed_end:
                    raise Violation("R4", f"{replica} leaves a gap before {batch}", partition_id)
                ledger.commit(batch, self._cluster.clock.now_ms)
                if ledger.is_compacted:
                    ledger.note_records(log, batch)
        if replica.leader is not None:
            self._check_in_sync(replica, ledger)
            self._cluster.on_committed(replica)

    def _check_in_sync(self, leader: SimulatedReplica, ledger: Ledger) -> None:
        """Who is in sync has the last of what the leader commits, or will have it when it is back."""
        partition_id, end = leader.partition_id, leader.log.high_watermark
        state = self.image.partition(*partition_id)
        last = ledger.committed[-1] if ledger.committed else None
        if state is None or last is None or last.next_offset != end:
            return
        for node_id in state.isr:
            node = self._cluster.nodes[node_id]
            if node_id == leader.node.node_id or node_id in ledger.lossy:
                continue
            replica = node.replicas.get(partition_id)
            if replica is None:  # it is down; what it had it has
                has_it = node.ends.get(partition_id, end) >= end
            else:
                has_it = replica.log.log_end_offset >= end and (
                    replica.log.log_start_offset > last.base_offset
                    or [*map(ledger.holds, read_batches(replica.log, last.base_offset, end))]
                    == [True]
                )
            if not has_it:
                raise Violation(
                    "R7",
                    f"{leader} commits {last}, and {node_id} has it not: {state}",
                    partition_id,
                )

    def on_truncate(self, replica: SimulatedReplica, offset: int) -> None:
        log, partition_id = replica.log, replica.partition_id
        self.truncations += 1
        self.note(
            partition_id,
            f"node {replica.node.node_id} truncates from {log.log_end_offset} to {offset}, "
            f"high watermark {log.high_watermark}, epochs {log.epochs.entries}",
        )
        ledger = self.ledgers[partition_id]
        claimed = replica.node.claimed
        if partition_id in claimed:
            claimed[partition_id] = min(claimed[partition_id], offset)
        if replica in self._verified:
            self._verified[replica] = min(self._verified[replica], offset)
        state = self.image.partition(*partition_id)
        is_in_sync = state is not None and replica.node.node_id in state.isr
        if ledger.is_damaged or (ledger.is_compacted and not is_in_sync):
            return  # of an epoch whose records are all compacted away a leader may know nothing
        for batch in read_batches(log, max(offset, log.log_start_offset), log.log_end_offset):
            if ledger.holds(batch):
                raise Violation("R4", f"{replica} drops {batch}, which is committed", partition_id)

    def on_cleaned(
        self, node: SimulatedNode, compactor: LogCompactor, cleaned: list[PartitionLog]
    ) -> None:
        """A cleaning has ended on this node."""
        if compactor.uncleanable and not DAMAGING & {*self._cluster.swarm.kinds}:
            raise Violation("L8", f"node {node.node_id}: {[*compactor.uncleanable.values()]}")
        self.cleanings += len(cleaned)
        for log in cleaned:
            self.note(None, f"node {node.node_id} has compacted {log.directory}")

    def on_healed(self, node: SimulatedNode, count: int) -> None:
        """Segments of this node were made again."""
        self.healed += count
        self.note(None, f"node {node.node_id} has healed {count} segments")

    # --- metadata --------------------------------------------------------------------------------

    def on_metadata_committed(
        self, controller: SimulatedController, leader: MetadataLeader
    ) -> None:
        """More of its log is on a majority's disks."""
        for batch in leader.batches_from(controller.checked):
            header = read_header(batch)
            if header.next_offset > leader.quorum.committed:
                break
            controller.checked = header.next_offset
            known = self._entries.setdefault(header.base_offset, batch)
            if known != batch:
                raise Violation("C1", f"{batch!r} was {known!r}")
            if known is batch and header.next_offset > self._entries_end:
                if header.base_offset != self._entries_end:
                    raise Violation("C1", f"{header.base_offset} after {self._entries_end}")
                self._entries_end = header.next_offset

    def on_called(self, call: ControllerCall[Any], answer: Any) -> None:
        """Something else was asked of a controller."""
        if isinstance(call, AllocateProducerIds) and isinstance(answer, tuple):
            if answer in self._producer_ids:
                raise Violation("X1", f"the producer ids {answer} are given twice")
            self._producer_ids.add(answer)

    def on_metadata(self, controller: SimulatedController, leader: MetadataLeader) -> None:
        """It has applied a change, and publishes it."""
        image = controller.image
        if image.offset > leader.quorum.committed or self._entries_end < image.offset:
            raise Violation("C3", f"{controller.name} publishes {image.offset}, not committed")
        for node in self._cluster.nodes.values():
            if node.voter is None:
                continue
            vote = node.voter.step.vote
            key = node.metadata_directory_id, vote.epoch
            owner = self._owners.setdefault(key, vote.owner)
            if owner != vote.owner:
                raise Violation("C2", f"epoch {vote.epoch} has two owners at {node.node_id}")
        if image.offset <= self.image.offset:
            return
        before, self.image = self.image, image
        for partition_id in self.ledgers:
            old, new = before.partition(*partition_id), image.partition(*partition_id)
            if new is not None and old != new:
                self._check_change(partition_id, old, new)

    def _check_change(
        self, partition_id: TopicPartitionPair, old: PartitionImage | None, new: PartitionImage
    ) -> None:
        ledger, nodes = self.ledgers[partition_id], self.image.nodes
        self.note(
            partition_id,
            f"partition epoch {new.partition_epoch}: leader {new.leader} in epoch "
            f"{new.leader_epoch}, ISR {new.isr}, ELR {new.elr}"
            + (f", replicas {new.replicas}" if old is None or old.replicas != new.replicas else "")
            + (f", adding {new.adding}, removing {new.removing}" if new.is_reassigned else "")
            + (", recovering" if new.recovering else ""),
        )
        if old is not None and (
            new.partition_epoch <= old.partition_epoch or new.leader_epoch < old.leader_epoch
        ):
            raise Violation("R8", f"{old} becomes {new}", partition_id)
        if old is not None and new.leader != old.leader and new.leader_epoch == old.leader_epoch:
            raise Violation("R8", f"another leader in one epoch: {old} becomes {new}", partition_id)
        if new.leader != NO_LEADER and new.leader not in new.isr:
            raise Violation("R9", f"the leader is not in the ISR: {new}", partition_id)
        if old is not None:
            self._former.note(partition_id, {*old.replicas} - {*new.replicas})
        if old is not None and not new.is_reassigned:
            self.reassignments += old.is_reassigned or old.replicas != new.replicas
        if not {*new.isr, *new.elr, *new.adding, *new.removing} <= {*new.replicas}:
            raise Violation("R10", f"{new}", partition_id)
        joined = set(new.isr) - set(() if old is None else old.isr)
        for node_id in sorted(joined):
            node = self._cluster.nodes[node_id]
            if nodes[node_id].fenced:
                raise Violation("R9", f"node {node_id} joins fenced: {new}", partition_id)
            replica = node.replicas.get(partition_id)
            is_same_life = nodes[node_id].incarnation == node.incarnation and node.has_all_data
            if (
                replica is not None
                and is_same_life
                and not ledger.is_damaged
                and replica.log.log_end_offset < ledger.committed_end
            ):
                raise Violation(
                    "R7",
                    f"node {node_id} joins with {replica.log.log_end_offset} of "
                    f"{ledger.committed_end}: {new}",
                    partition_id,
                )
        self._forgive(partition_id, ledger)
        # Whoever was taken away with what it had lost is made up for by as many as must have it.
        if len(set(new.isr) - ledger.lossy) >= self._cluster.swarm.min_insync:
            ledger.lossy &= set(new.replicas)
        # A node whose tail has rotted says that it has lost records, of all its partitions: what
        # the new leader has is looked at when it leads.
        has_rot = "rot" in self._cluster.swarm.kinds
        if new.recovering and not ledger.is_damaged and not has_rot:
            raise Violation("R3", f"an unclean election: {new}", partition_id)

    def _forgive(self, partition_id: TopicPartitionPair, ledger: Ledger) -> None:
        """Who is in sync and has all that is committed has made up for what it had lost. One that
        is dead has not, though its leader may not know yet.
        """
        state = self.image.partition(*partition_id)
        for node_id in sorted(ledger.lossy & set(() if state is None else state.isr)):
            node = self._cluster.nodes[node_id]
            replica = node.replicas.get(partition_id)
            if (
                replica is not None
                and node.has_all_data
                and self.image.nodes[node_id].incarnation == node.incarnation
                and replica.log.log_end_offset >= ledger.committed_end
                and not node.disk.rotten_in(replica.log.local.directory)
                and has_all(replica, ledger)
            ):
                ledger.lossy.discard(node_id)

    def on_applied(self, node: SimulatedNode, before: MetadataImage) -> None:
        if node.image.offset < before.offset:
            raise Violation("R8", f"node {node.node_id} goes back to offset {node.image.offset}")

    # --- data loss -------------------------------------------------------------------------------

    def may_lose(self, node_id: int) -> bool:
        """Whether the settings promise to survive it if this node loses data now."""
        most = self._cluster.swarm.min_insync - 1
        return all(
            len(ledger.lossy | {node_id}) <= most
            for partition_id, ledger in self.ledgers.items()
            if node_id in self._cluster.replicas_of(partition_id)
        )

    def on_loss(self, node_id: int) -> None:
        most = self._cluster.swarm.min_insync - 1
        for partition_id, ledger in self.ledgers.items():
            if node_id in self._cluster.replicas_of(partition_id):
                ledger.lossy.add(node_id)
                ledger.is_damaged = ledger.is_damaged or len(ledger.lossy) > most

    # --- clients ---------------------------------------------------------------------------------

    def on_sent(self, producer: Producer, batch: Batch) -> None:
        self._sent[batch.crc] = producer.process.name

    def on_acknowledged(self, producer: Producer, sent: Sent, base_offset: int) -> None:
        """What the producer sent with acks=all is committed, at this offset."""
        ledger = self.ledgers[producer.partition_id]
        ledger.acknowledged += 1
        batch = batches_of(sent.bytes)[0]
        self._cluster.clock.note(base_offset)
        self.note(
            producer.partition_id,
            f"{producer.process.name}'s batch {sent.number} is acknowledged at {base_offset}",
        )
        if ledger.is_damaged:
            return
        committed = ledger.by_offset.get(base_offset)
        if committed is None or committed.crc != batch.crc:
            raise Violation(
                "R3",
                f"batch {sent.number} of {producer.process.name} is acknowledged at "
                f"{base_offset}, where {committed} is committed",
                producer.partition_id,
            )

    def on_read(self, reader: Reader, batches: list[Batch]) -> None:
        ledger = self.ledgers[reader.partition_id]
        for batch in batches:
            ledger.read += 1
            if batch.crc not in self._sent:
                raise Violation("phantom", f"nobody has sent {batch}", reader.partition_id)
            if ledger.is_damaged:
                continue
            committed = ledger.by_offset.get(batch.base_offset)
            if committed != batch:
                raise Violation(
                    "R4", f"{batch} was read, committed is {committed}", reader.partition_id
                )
        if not ledger.is_damaged and batches[0].base_offset > reader.position:
            raise Violation(
                "R4", f"{reader.position} was asked for, {batches[0]} came", reader.partition_id
            )

    def on_out_of_range(self, reader: Reader) -> int:
        """Where a reader goes on whose position is not in the leader's log."""
        ledger = self.ledgers[reader.partition_id]
        starts = [
            replica.log.log_start_offset
            for node in self._cluster.nodes.values()
            if (replica := node.replicas.get(reader.partition_id)) is not None
        ]
        if ledger.is_damaged:
            return min(starts, default=0)
        may_be_gone = self._cluster.swarm.retention_ms >= 0 or reader.position < ledger.deleted
        if not may_be_gone or reader.position > ledger.committed_end:
            raise Violation(
                "R4",
                f"{reader.position}, below which all was read, is not in the log",
                reader.partition_id,
            )
        return max((*starts, reader.position))

    def on_sent_elsewhere(self, reader: Reader, node_id: int) -> None:
        """A leader tells a consumer to read from a follower (KIP-392)."""
        rack, partition_id = self._cluster.rack_of(node_id), reader.partition_id
        is_known = node_id in self._cluster.replicas_of(partition_id)
        if rack != reader.rack or not (is_known or self._former.was(partition_id, node_id)):
            raise Violation("K1", f"{reader.rack} is sent to {node_id} in {rack}", partition_id)

    # --- DeleteRecords ---------------------------------------------------------------------------

    def on_deletion(self, partition_id: TopicPartitionPair, offset: int) -> None:
        """Somebody asks for it."""
        ledger = self.ledgers[partition_id]
        ledger.deleted = max(ledger.deleted, offset)
        self.note(partition_id, f"records below {offset} are to be deleted")

    def on_deleted(
        self,
        node: SimulatedNode,
        partition_id: TopicPartitionPair,
        offset: int,
        lives: dict[int, int],
    ) -> None:
        """A leader has answered. Whoever is in sync and has lived since it was asked has done it."""
        self.note(partition_id, f"node {node.node_id} has deleted what is below {offset}")
        self.deletions += 1
        node.deleted[partition_id] = max(offset, node.deleted.get(partition_id, 0))
        leader = node.replicas.get(partition_id)
        state = self.image.partition(*partition_id)
        if leader is None or leader.leader is None or state is None:
            return
        for node_id in sorted({*leader.leader.isr} & {*state.isr}):
            replica = self._cluster.nodes[node_id].replicas.get(partition_id)
            is_same_life = self._cluster.nodes[node_id].process.life == lives.get(node_id)
            if replica is not None and is_same_life and replica.log.log_start_offset < offset:
                raise Violation(
                    "D1",
                    f"what is below {offset} counts as deleted, {replica} has it from "
                    f"{replica.log.log_start_offset} on",
                    partition_id,
                )

    # --- from time to time, and at the end -------------------------------------------------------

    def check_all(self) -> None:
        """What is too dear for each step: log matching, and what each log holds."""
        for partition_id, ledger in self.ledgers.items():
            self._forgive(partition_id, ledger)
            seen: dict[tuple[int, int], Batch] = {}
            for node in self._cluster.nodes.values():
                replica = node.replicas.get(partition_id)
                if replica is None or replica.log.health.failure is not None:
                    continue
                log = replica.log
                check_log(log, partition_id)
                found = read_batches(log, log.log_start_offset, log.log_end_offset)
                is_sound = not node.disk.rotten_in(log.local.directory)
                if is_sound and not ledger.is_compacted:  # rotten headers may have been read
                    check_derived(log, found, partition_id)
                    ledger.check_aborted(log, str(replica), partition_id)
                if ledger.is_compacted and not ledger.is_damaged:
                    ledger.check_compacted(log, str(replica), partition_id)
                for batch in found:
                    key = batch.base_offset, batch.leader_epoch
                    if ledger.is_compacted and key in seen:
                        batch = batch._replace(crc=seen[key].crc)
                    if seen.setdefault(key, batch) != batch:
                        raise Violation("R2", f"{batch} and {seen[key]}", partition_id)
                if (
                    self._cluster.swarm.retention_ms < 0
                    and log.log_start_offset > ledger.deleted
                    and not ledger.is_damaged
                ):
                    raise Violation(
                        "D2",
                        f"{replica} begins at {log.log_start_offset}, nobody has deleted more "
                        f"than what is below {ledger.deleted}",
                        partition_id,
                    )
                if not ledger.is_damaged:
                    ledger.check_held(found, log.high_watermark, str(replica), partition_id)

    def check_end(self) -> None:
        """After the faults, when all has come to rest."""
        self.check_all()
        records = [
            decode_metadata_record(record.value or b"")
            for _, batch in sorted(self._entries.items())
            for record in iterate_records(memoryview(batch))
        ]
        replayed = MetadataImage().apply(records, offset=self.image.offset)
        if self._entries_end == self.image.offset and replayed != self.image:
            raise Violation("C4", f"{replayed} is not {self.image}")
        for partition_id, ledger in self.ledgers.items():
            if ledger.is_compacted:  # check_all has looked at each of them
                continue
            nodes = [self._cluster.nodes[each] for each in self._cluster.replicas_of(partition_id)]
            held = [node.replicas[partition_id].log for node in nodes]
            start = max(log.log_start_offset for log in held)
            logs = [read_batches(log, start, log.log_end_offset) for log in held]
            if any(each != logs[0] for each in logs):
                raise Violation("end", "the replicas are not identical", partition_id)
            if ledger.is_damaged:
                continue
            kept = [batch for batch in ledger.committed if batch.next_offset > start]
            if logs[0] != kept:
                raise Violation("end", "the logs are not what was committed", partition_id)
            if partition_id in self._cluster.partitions:
                check_sequences(partition_id, ledger.committed, start)
