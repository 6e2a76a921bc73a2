"""Is it on the disk whose a directory is, when it has been written?"""

from __future__ import annotations

import pytest

from bradbury.storage.directories.directory_identity import (
    COPY_NAME,
    FILE_NAME,
    DirectoryIdentity,
    has_copy,
    write_identity,
)
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem


@pytest.mark.parametrize("name", [FILE_NAME, COPY_NAME])
def test_both_files_are_there_after_a_power_loss(name: str) -> None:
    disk = MemoryFileSystem()
    disk.make_directory("/d")
    disk.sync_names("/")
    for node_id in (1, 2):
        identity = DirectoryIdentity(directory_id="d", cluster_id="c", node_id=node_id)
        write_identity(disk, "/d", identity)
        after = disk.crash()
        file = after.open(f"/d/{name}")
        assert f"node.id={node_id}\n".encode() in file.read_at(file.size(), 0)
        assert has_copy(after, "/d")
