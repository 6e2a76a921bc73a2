"""A cluster of three nodes in this process, one of which can die at any moment and come back."""

from collections.abc import Mapping
from pathlib import Path
from time import sleep
from typing import Any

import bradbury
from bradbury.actors.node import Node
from bradbury.cluster.metadata.metadata_image import PartitionImage
from bradbury.cluster.metadata.metadata_records import PartitionRecord, decode_metadata_record
from bradbury.protocol.buffer import Buffer
from bradbury.protocol.records.record_batch import walk_batches
from bradbury.protocol.records.records import iterate_records
from bradbury.replication.partition.replica import Replica

NEVER_MS = 2**40
CONFIG = {"broker.session.timeout.ms": 1500, "replica.lag.time.max.ms": 2000}


class ThreeNodes:
    """Use as a context manager."""

    def __init__(self, data_dir: Path, config: Mapping[str, Any] | None = None) -> None:
        self.cluster = bradbury.local(str(data_dir), nodes=3, config={**CONFIG, **(config or {})})

    def __enter__(self) -> "ThreeNodes":
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()
        for node in self.cluster.nodes:
            node.storage.partition_host.logs._token.remove()  # of those that were killed

    @property
    def servers(self) -> str:
        return self.cluster.bootstrap_servers

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Create topics with three replicas each."""
        names = {name.replace("_", "."): value for name, value in configs.items()}
        with self.cluster.admin() as admin:
            admin.create_topic(topic, partitions, replication_factor=3, configs=names)

    # --- what is so ------------------------------------------------------------------------------

    def node(self, node_id: int) -> Node:
        return next(node for node in self.cluster.nodes if node.node_id == node_id)

    def index(self, node_id: int) -> int:
        return self.cluster.nodes.index(self.node(node_id))

    def partition(self, topic: str, index: int = 0) -> PartitionImage:
        """As the controller has it."""
        found = self.cluster.controller.image.partition(topic, index)
        assert found is not None
        return found

    def states(self, topic: str, index: int = 0) -> list[PartitionRecord]:
        """Each that a controller has written down, also those that were over in a moment."""
        topic_id = str(self.cluster.controller.image.topics[topic].topic_id)
        logs: list[list[PartitionRecord]] = []
        for folder in Path(self.cluster.data_dir).rglob("__cluster_metadata-0"):
            content = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
            records = [
                decode_metadata_record(record.value or b"")
                for position, header in walk_batches(memoryview(content))
                for record in iterate_records(memoryview(content)[position:][: header.size])
            ]
            logs.append(
                [
                    one
                    for one in records
                    if isinstance(one, PartitionRecord)
                    and (one.topic_id, one.partition) == (topic_id, index)
                ]
            )
        return max(logs, key=len)

    def leader(self, topic: str, index: int = 0) -> int:
        return self.partition(topic, index).leader

    def replicas(self, topic: str, index: int = 0) -> dict[int, Replica]:
        """The replicas by node, of the nodes that run."""
        return {
            node.node_id: replica
            for node in self.cluster.nodes
            if node.storage.partition_host is not None and node.storage.partition_host.logs.is_open
            for replica in node.storage.partition_host.replicas
            if (replica.topic, replica.partition) == (topic, index)
        }

    def ends(self, topic: str, index: int = 0) -> dict[int, int]:
        return {
            node: replica.log.log_end_offset
            for node, replica in self.replicas(topic, index).items()
        }

    def contents(self, topic: str, index: int = 0) -> dict[int, bytes]:
        """All bytes below the high watermark, of each replica."""
        return {
            node: read_committed(replica) for node, replica in self.replicas(topic, index).items()
        }

    # --- what happens ----------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """The end of its process, with no time for anything: its page cache stays."""
        node = self.node(node_id)

        async def die() -> None:
            node.is_open = False
            node.socket_server.close()
            node.membership.close()
            host = node.storage.partition_host
            await host.stop_following()
            await host._upkeep.stop()
            await host.cleaner.stop()
            for replica in host.replicas:
                replica.resign()
            host.steps._logs = None
            host._driver.carry_out()
            directories, host.logs._directories = host.logs._directories, None
            directories.close(clean=False)
            if node.groups is not None:
                node.groups.close()
            await node.storage.voter.close()

        self.run(die())

    def start(self, node_id: int) -> None:
        self.cluster.start_node(self.index(node_id))

    def stop(self, node_id: int) -> None:
        self.cluster.stop_node(self.index(node_id))

    def stop_fetching(self, node_id: int) -> None:
        """It lives, but copies nothing any more."""

        async def stop() -> None:
            host = self.node(node_id).storage.partition_host
            fetchers = list(host.steps.fetchers._fetchers.values())
            host._connections._end(fetchers)
            for fetcher in fetchers:
                fetcher._begin_session()
                fetcher._is_waiting, fetcher._resume_ms = False, NEVER_MS

        self.run(stop())

    def fetch_again(self, node_id: int) -> None:
        async def start() -> None:
            host = self.node(node_id).storage.partition_host
            for fetcher in host.steps.fetchers._fetchers.values():
                fetcher._resume_ms = 0
                host._driver.tick_when_due(fetcher)

        self.run(start())

    def run(self, work) -> Any:
        return self.cluster._call(work, 30)


def read_committed(replica: Replica) -> Buffer:
    log = replica.log
    found = bytearray()
    offset = log.log_start_offset
    while offset < log.high_watermark:
        piece = log.read(offset, max_bytes=1 << 20, up_to=log.high_watermark, min_one_batch=True)
        if piece.file is None:
            break
        found += piece.file.read_at(piece.position, piece.size)
        offset = piece.next_offset
    return bytes(found)


def until(is_so, what: str = "it did not come about", seconds: float = 60) -> None:
    """Wait for something that is on its way."""
    for _ in range(int(seconds * 100)):
        if is_so():
            return
        sleep(0.01)
    raise AssertionError(what)
