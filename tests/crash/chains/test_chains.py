"""What do kill -9, SIGSTOP and zombies cost those who read, process and write in transactions? Time.

Half a minute of one, on one node, in each run; of three more by `make test-long`, of the others by
`make test-deep`; all, for longer, by `make crash`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bradbury.tests.compatibility.support.kafka_jars import require_kafka, unavailable_reason
from bradbury.tests.crash.run import run_transactions
from bradbury.tests.support.ray.ray_nodes import RayNode

from .chain_nemesis import CHAIN_NEMESES, ONE_PROCESS
from .chain_run import ChainFigures, run_chain
from .one_process_clusters import KafkaProcess, OwnProcess

pytestmark = pytest.mark.slow

FAULT_SECONDS = 20


def is_good(figures: ChainFigures, wrong: list[str], least_faults: int) -> None:
    assert not wrong, "\n".join(wrong)
    assert figures.is_good
    assert figures.faults >= least_faults
    assert figures.transactions > 50
    assert figures.aborted_records > 0


@pytest.mark.long  # three nodes; each run has the chain below, on one
@pytest.mark.ray
@pytest.mark.parametrize(
    ("name", "least_faults"),
    [
        ("T1", 3),
        ("T2", 2),
        ("T8", 2),
        *(pytest.param(name, 2, marks=pytest.mark.deep) for name in ("T0", "T3", "T6")),
    ],
)
def test_nothing_is_torn_lost_or_doubled(
    nodes: list[RayNode], tmp_path: Path, name: str, least_faults: int
) -> None:
    figures, wrong = run_transactions(
        nodes,
        tmp_path,
        CHAIN_NEMESES[name],
        FAULT_SECONDS,
        seed=15,
        java=not unavailable_reason(),
        least_faults=least_faults,
    )
    is_good(figures, wrong, least_faults)


@pytest.mark.long  # a minute of kills
def test_nothing_is_torn_lost_or_doubled_by_a_death_of_all_brokers(tmp_path: Path) -> None:
    with OwnProcess(tmp_path) as cluster:
        figures, wrong = run_chain(
            cluster, tmp_path, ONE_PROCESS, FAULT_SECONDS, seed=15, java=False, least_faults=3
        )
    is_good(figures, wrong, 3)


# --- against Apache Kafka: the chain itself is right, and finds what is wrong ----------------------


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaProcess]:
    require_kafka()
    with KafkaProcess(tmp_path) as cluster:
        yield cluster


@pytest.mark.java
@pytest.mark.deep
def test_apache_kafka_is_found_to_be_right(kafka: KafkaProcess, tmp_path: Path) -> None:
    figures, wrong = run_chain(
        kafka, tmp_path, ONE_PROCESS, FAULT_SECONDS, seed=15, replication_factor=1, least_faults=3
    )
    is_good(figures, wrong, 3)


def finds(kind: str) -> Callable[[ChainFigures], bool]:
    return lambda figures: figures.kinds.get(kind, 0) > 0


@pytest.mark.java
@pytest.mark.deep
def test_a_reader_that_reads_uncommitted_records_is_found(
    kafka: KafkaProcess, tmp_path: Path
) -> None:
    figures, _ = run_chain(
        kafka,
        tmp_path,
        CHAIN_NEMESES["T0"],
        5,
        isolation="read_uncommitted",
        java=False,
        replication_factor=1,
        least_faults=1,
    )
    assert finds("aborted-read")(figures)


@pytest.mark.java
@pytest.mark.deep
def test_a_copier_that_commits_its_offsets_outside_of_the_transaction_is_found(
    kafka: KafkaProcess, tmp_path: Path
) -> None:
    """What it aborts is never copied again."""
    figures, _ = run_chain(
        kafka,
        tmp_path,
        CHAIN_NEMESES["T0"],
        5,
        careless=True,
        java=False,
        replication_factor=1,
        least_faults=1,
    )
    assert finds("chain")(figures)
