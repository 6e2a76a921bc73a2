"""Storage of one node: the metadata log it votes on, and the partitions it hosts.

The first data directory also holds the metadata log; each has a log directory for partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..cluster.broker_config import BrokerConfig
from ..storage.directories.log_directories import LogDirectories
from ..storage.directories.log_directory import LogDirectory
from ..storage.disk.file_system import FileSystem
from .controller.voter_host import VoterHost
from .network.peers import Peers
from .replication.partition_host import PartitionHost


class NodeStorage:
    """Hosts of a node; each open makes new ones.

    voter: host of the metadata log; None on a node that is no broker.
    partition_host: host of the partitions; None on a node without partitions.
    """

    def __init__(self, file_system: FileSystem, now_ms: Callable[[], int]) -> None:
        self.file_system = file_system
        self._now_ms = now_ms
        self.voter: VoterHost | None = None
        self.partition_host: PartitionHost | None = None

    async def open_voter(self, name: str, data_dir: str) -> None:
        """Lock and recover the metadata log. The voter answers from here on.

        Raises:
            DataDirectoryError: one line with cause and remedy.
        """
        self.voter = VoterHost(name, data_dir, self.file_system, now_ms=self._now_ms)
        await asyncio.to_thread(self.voter.open)

    async def open_host(
        self,
        paths: Sequence[str],
        config: BrokerConfig,
        peers: Peers,
        on_all_offline: Callable[[str], None],
    ) -> PartitionHost:
        """Lock and recover these log directories.

        `on_all_offline`: called with the reason when the last of them has failed.

        Raises:
            DataDirectoryError: one line with cause and remedy.
        """
        self.partition_host = host = PartitionHost(
            paths,
            self.file_system,
            config,
            now_ms=self._now_ms,
            peers=peers,
            on_all_offline=on_all_offline,
        )
        await asyncio.to_thread(host.open)
        return host

    @property
    def directory(self) -> LogDirectories | LogDirectory:
        """Directories that record the cluster id and node id of the data."""
        if self.partition_host is not None:
            return self.partition_host.directories
        assert self.voter is not None
        return self.voter.directory
