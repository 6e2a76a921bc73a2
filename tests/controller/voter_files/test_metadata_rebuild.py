"""What do directories of partitions say when the metadata log is gone? (`bradbury metadata recover`)

The whole recovery, with brokers, is in tests/live/nodes.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from bradbury.actors.controller.controller import Controller
from bradbury.actors.controller.voter_host import VoterHost
from bradbury.cluster.metadata.metadata_records import ClusterRecord, RegisterNodeRecord
from bradbury.controller.controller_calls import AllocateProducerIds
from bradbury.controller.voter_files.metadata_rebuild import MetadataRebuild
from bradbury.controller.voter_files.quorum_state_file import (
    read_quorum_state,
    write_quorum_state,
)
from bradbury.handlers.ports.server_config import ServerConfig
from bradbury.storage.directories.directory_identity import (
    DirectoryIdentity,
    read_identity,
    write_identity,
)
from bradbury.storage.directories.log_directories import LogDirectories
from bradbury.storage.disk.file_system import OsFileSystem
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.batches import make_batch


def filled(path: Path, directory_id: str, topic: str, batches: int) -> None:
    """A directory of logs with one partition. Its files of identity name no node yet."""
    directories = LogDirectories.open(
        OsFileSystem(), [str(path)], directory_ids=[directory_id], producer_id_expiration_ms=1_000
    )
    directories.load_logs(lambda topic: LogConfig(), now_ms=0, on_damaged=lambda: None)
    log = directories.all[0].create_log(topic, 3, UUID(int=7), LogConfig(), now_ms=0)
    for _ in range(batches):
        log.append_as_leader(make_batch(), leader_epoch=4, now_ms=0)
    directories.close(clean=True)


def test_each_partition_is_found_with_its_node_and_a_directory_without_a_node_is_named(
    tmp_path: Path,
) -> None:
    disk = OsFileSystem()
    filled(tmp_path / "partitions-0", "d-0", "mine", 2)
    identity = DirectoryIdentity(directory_id="d-0", cluster_id="cluster", node_id=5)
    write_identity(disk, str(tmp_path / "partitions-0"), identity)
    filled(tmp_path / "partitions-1", "d-1", "lost", 1)
    for file in (tmp_path / "partitions-1").glob("meta.properties*"):
        file.unlink()
    (tmp_path / "metadata").mkdir()
    found = MetadataRebuild(
        [str(tmp_path)], disk, new_id=str, internal_configs=lambda topic: None, now_ms=0
    )._read_directories()
    assert found.nameless == [str(tmp_path / "partitions-1")]
    assert found.paths == [str(tmp_path / "partitions-0")]
    assert dict(found.nodes) == {5: ["d-0"]}
    assert found.cluster_ids == {"cluster"}
    [partition] = found.partitions
    assert (partition.topic, partition.partition) == ("mine", 3)
    assert (partition.topic_id, partition.node_id) == (UUID(int=7), 5)
    assert (partition.leader_epoch, partition.end_offset) == (4, 2)


def test_what_a_directory_without_a_name_holds_is_recovered_with_what_the_metadata_calls_it(
    tmp_path: Path,
) -> None:
    filled(tmp_path / "partitions-1", "d-1", "lost", 2)
    for file in (tmp_path / "partitions-1").glob("meta.properties*"):
        file.unlink()
    rebuild = MetadataRebuild(
        [str(tmp_path)], OsFileSystem(), new_id=str, internal_configs=lambda topic: None, now_ms=0
    )
    directories, metadata = rebuild._read_directories(), rebuild._read_metadata(set())
    assert not directories.partitions
    node = RegisterNodeRecord(
        node_id=5,
        directory_id="d-1",
        incarnation="i",
        roles=("partition",),
        host="",
        port=0,
        rack=None,
        epoch=1,
        name="machine/partitions-1",
    )
    metadata.known.apply([ClusterRecord(cluster_id="cluster", voters=("d",)), node])
    identities = rebuild._identities(metadata, directories)
    expected = DirectoryIdentity(directory_id="d-1", cluster_id="cluster", node_id=5)
    assert identities == {str(tmp_path / "partitions-1"): expected}
    [partition] = directories.partitions
    assert (partition.topic, partition.node_id, partition.end_offset) == ("lost", 5, 2)


def test_another_nodes_data_directory_in_this_one_is_not_taken_for_partitions(
    tmp_path: Path,
) -> None:
    """A Ray node with the label `log-node` has its data below that of one without it."""
    filled(tmp_path / "partitions-0", "d-0", "mine", 1)
    filled(tmp_path / "machine2" / "partitions-0", "d-1", "others", 1)
    rebuild = MetadataRebuild(
        [str(tmp_path)], OsFileSystem(), new_id=str, internal_configs=lambda topic: None, now_ms=0
    )
    assert rebuild._all_directories() == [str(tmp_path / "partitions-0")]


def fill_metadata(path: Path) -> None:
    """The metadata of a cluster of one voter, which was stopped."""

    async def fill() -> None:
        voter = VoterHost("broker/a", str(path), OsFileSystem(), now_ms=lambda: 0)
        voter.open()
        controller = Controller(
            lambda: [voter], ServerConfig(), now_ms=lambda: 0, on_superseded=lambda: None
        )
        await controller.start()
        for _ in range(3):
            await controller.ask(AllocateProducerIds())
        await controller.close()
        await voter.close()

    asyncio.run(fill())


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "kept"), [("cluster", 3, 3), ("cluster", 1, None), ("new", 3, None)]
)
def test_the_new_metadata_has_the_node_of_the_old_one_unless_a_refused_start_has_made_that(
    tmp_path: Path, cluster_id: str, node_id: int, kept: int | None
) -> None:
    """Node ids of a new cluster begin at 1, and another node here has it: they would fence each
    other for good.
    """
    disk = OsFileSystem()
    filled(tmp_path / "partitions-0", "d-0", "mine", 2)
    identity = DirectoryIdentity(directory_id="d-0", cluster_id="cluster", node_id=1)
    write_identity(disk, str(tmp_path / "partitions-0"), identity)
    metadata = str(tmp_path / "metadata")
    fill_metadata(tmp_path)
    voter = read_quorum_state(disk, metadata).state
    assert voter is not None
    identity = DirectoryIdentity(
        directory_id=voter.directory_id, cluster_id=cluster_id, node_id=node_id
    )
    write_identity(disk, metadata, identity)
    rebuild = MetadataRebuild(
        [str(tmp_path)], disk, new_id=str, internal_configs=lambda topic: None, now_ms=0
    )
    with rebuild.locked(makes_files=True):
        rebuild.carry_out(rebuild.plan(others_are_lost=True))
    found = read_identity(disk, metadata).identity
    assert found is not None
    assert (found.cluster_id, found.node_id) == ("cluster", kept)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_flaw_is_named_where_it_is(tmp_path: Path, is_first: bool) -> None:
    """Of the first batch, too, before which there is no snapshot."""
    fill_metadata(tmp_path)
    (log,) = tmp_path.glob("metadata/__cluster_metadata-0/*.log")
    content = bytearray(log.read_bytes())
    content[70 if is_first else -1] ^= 1
    log.write_bytes(content)
    found = MetadataRebuild(
        [str(tmp_path)], OsFileSystem(), new_id=str, internal_configs=lambda topic: None, now_ms=0
    )._read_metadata(set())
    assert not found.is_whole
    assert not found.voters[0].is_fit
    assert str(log) in found.flaws[0]
    assert ("at byte 0 " in found.flaws[0]) == is_first


@pytest.mark.parametrize("catches_up", [False, True])
def test_a_sound_voter_is_fit_unless_it_still_catches_up(tmp_path: Path, catches_up: bool) -> None:
    disk = OsFileSystem()
    fill_metadata(tmp_path)
    path = str(tmp_path / "metadata")
    stored = read_quorum_state(disk, path).state
    assert stored is not None
    write_quorum_state(disk, path, replace(stored, catches_up=catches_up))
    [voter] = (
        MetadataRebuild(
            [str(tmp_path)], disk, new_id=str, internal_configs=lambda topic: None, now_ms=0
        )
        ._read_metadata(set())
        .voters
    )
    assert voter.is_fit != catches_up
    assert any("was set aside" in flaw for flaw in voter.flaws) == catches_up


@pytest.mark.parametrize(
    ("is_there", "is_beside", "is_interrupted"),
    [(True, True, False), (False, True, True), (True, False, False), (False, False, False)],
)
def test_a_recovery_was_interrupted_where_its_result_has_no_metadata_beside_it(
    tmp_path: Path, is_there: bool, is_beside: bool, is_interrupted: bool
) -> None:
    """With both, the first rename had not been: the metadata is what it was before."""
    if is_there:
        fill_metadata(tmp_path)
    if is_beside:
        result = tmp_path / "metadata-recovery"
        result.mkdir()
        fill_metadata(result)
        assert (result / "metadata" / ".kafka_cleanshutdown").exists()
    rebuild = MetadataRebuild(
        [str(tmp_path)], OsFileSystem(), new_id=str, internal_configs=lambda topic: None, now_ms=0
    )
    assert rebuild.is_interrupted is is_interrupted
    if is_interrupted:
        rebuild.finish()
        assert not rebuild.is_interrupted
        assert rebuild._read_metadata(set()).is_whole
