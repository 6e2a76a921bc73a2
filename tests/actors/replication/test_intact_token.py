"""Which node is believed to have all that it ever wrote?"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from bradbury.actors.network.peers import Peers
from bradbury.actors.replication.intact_token import MEMORY, IntactToken
from bradbury.actors.replication.partition_host import PartitionHost
from bradbury.cluster.broker_config import BrokerConfig
from bradbury.cluster.security.security_config import SecurityConfig
from bradbury.storage.disk.file_system import OsFileSystem

pytestmark = pytest.mark.skipif(not MEMORY.is_mount(), reason="there is no /dev/shm")


@pytest.fixture
def token(tmp_path: Path) -> Iterator[IntactToken]:
    made = IntactToken({str(uuid4()): str(tmp_path)})
    yield made
    made.remove()


def test_a_token_is_found_by_the_next_process_on_this_machine(token: IntactToken) -> None:
    [directory_id] = token._paths
    assert not token.is_valid(directory_id)
    token.put()
    assert IntactToken({directory_id: "elsewhere"}).is_valid(directory_id)
    token.remove()
    assert not token.is_valid(directory_id)


def test_a_token_of_another_boot_is_worth_nothing(token: IntactToken) -> None:
    [directory_id] = token._paths
    token.put()
    path = MEMORY / f"bradbury-{directory_id}"
    path.write_text(f"{uuid4()} {MEMORY.stat().st_dev}")
    assert not token.is_valid(directory_id)


def test_where_memory_is_a_disk_nobody_is_believed(tmp_path: Path) -> None:
    token = IntactToken({"d": "/d"}, memory=tmp_path)
    token.put()
    assert not token.is_valid("d")
    assert list(tmp_path.iterdir()) == []


def test_a_token_of_a_directory_that_is_no_more_is_cleared_away(
    token: IntactToken, tmp_path: Path
) -> None:
    gone = IntactToken({str(uuid4()): str(tmp_path / "gone")})
    gone.put()
    [directory_id] = gone._paths
    assert not gone.is_valid(directory_id), "its directory is not there even now"
    token.put()
    [own] = token._paths
    assert token.is_valid(own)


def host(path: Path) -> PartitionHost:
    made = PartitionHost(
        [str(path)],
        OsFileSystem(),
        BrokerConfig(),
        now_ms=lambda: 1000,
        peers=Peers(SecurityConfig()),
    )
    made.open()
    return made


def registered(made: PartitionHost) -> str:
    made.directories.assign_identity(cluster_id="c", node_id=1)
    made.logs.begin()
    return made.directories.identity.directory_id


async def ended(made: PartitionHost, *, clean: bool) -> None:
    directories = made.directories
    if not clean:
        made.logs._directories = None
        directories.close(clean=False)
    await made.close()


async def life(path: Path, *, clean: bool, lost: bool = False) -> bool:
    """One life of a node; whether it believed at its start that it had everything."""
    made = host(path)
    believed = made.logs.has_all_data
    directory_id = registered(made)
    if lost:
        IntactToken({directory_id: str(path)}).remove()  # as the end of the machine does
    await ended(made, clean=clean)
    return believed


def test_a_new_one_a_killed_one_and_a_stopped_one_have_everything(tmp_path: Path) -> None:
    async def lives() -> list[bool]:
        return [
            await life(tmp_path, clean=False),
            await life(tmp_path, clean=False, lost=True),
            await life(tmp_path, clean=True),
            await life(tmp_path, clean=True),
        ]

    assert asyncio.run(lives()) == [True, True, False, True]
