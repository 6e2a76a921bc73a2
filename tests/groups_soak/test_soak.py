"""Do groups of every client stay right while members and coordinators come, go and are killed?

The ten minutes of it are `make groups-soak`; this is one.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.tests.compatibility.support.kafka_jars import kafka_classpath
from bradbury.tests.groups_soak.checker import check, report
from bradbury.tests.groups_soak.cluster import coordinator_pids
from bradbury.tests.groups_soak.harness import SEATS, Soak
from bradbury.tests.groups_soak.history import Assigned, read_history
from bradbury.tests.groups_soak.processes import JAVA, Seat

pytestmark = pytest.mark.slow

FAULT_SECONDS = 60
NAMESPACE = "groups-soak"


def test_a_member_that_forgets_records_is_found_out(tmp_path: Path) -> None:
    """The same harness on a sound cluster: what it finds is there, not made by it."""
    seats = (Seat("careful", "confluent"), Seat("careless", "careless"))
    with bradbury.local(data_dir=str(tmp_path / "data")) as cluster:
        soak = Soak(cluster.bootstrap_servers, tmp_path, coordinators=list, seats=seats)
        outcome = soak.run(5)
    assert outcome.problems == []
    faults = check(read_history(tmp_path))
    assert {(one.kind, one.group) for one in faults} == {("skipped", "careless")}


@pytest.fixture
def cluster(ray_cluster: str, tmp_path: Path) -> Iterator[bradbury.Cluster]:
    running = bradbury.up(str(tmp_path / "data"), port=0, namespace=NAMESPACE)
    yield running
    running.down()


# a minute of faults; each run has the harness above, tests/live/groups the clients
@pytest.mark.long
@pytest.mark.ray
def test_groups_of_all_clients_lose_nothing_and_share_nothing_under_faults(
    cluster: bradbury.Cluster, tmp_path: Path
) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    has_java = kafka_classpath() is not None
    soak = Soak(
        cluster.bootstrap_servers,
        folder,
        coordinators=lambda: coordinator_pids(cluster),
        seats=tuple(seat for seat in SEATS if has_java or seat.kind != JAVA),
        seed=60,
    )
    outcome = soak.run(FAULT_SECONDS)
    assert outcome.problems == []
    assert outcome.faults["kills of coordinators"] >= 3
    assert outcome.faults["kills of members"] >= 1
    assert outcome.faults["leaves"] >= 1
    history = read_history(folder)
    assert report(check(history)) == []
    seats = {one.seat for one in soak.occupants}
    for seat in seats:  # or nothing was shown about that client
        names = {name for one in soak.occupants if one.seat == seat for name in one.names}
        assert any(one.process in names for one in history.seen), f"{seat.name} read nothing"
    assert any(isinstance(one, Assigned) and one.generation for one in history.assigned)
    assert not any(one.is_running for one in soak.occupants)
