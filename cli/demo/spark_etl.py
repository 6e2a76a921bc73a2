"""Step 5: the ETL job, a flow on Spark, whose executors are actors of the same Ray cluster.

    flights ── batch ───> delays per origin and month ──────────> Parquet, and topic `delays`
            └─ stream ──> flights two hours late, as they come ──> topic `late-flights`

The flow is flights.yaml, run as `bradbury flow run` runs it. Everything is read back
and compared: Parquet and both topics agree with the consumer actors' sums, and Spark counts as many
flights per carrier as they did.

If the Ray cluster has nodes besides the driver's, the executors run there and share no disk with
the driver: so the driver writes the Parquet files, and the stream keeps no state.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from ...discovery.extras import install_command, missing_modules
from ..terminal.failure import CommandFailed
from .delivery_check import Delays
from .log_steps import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...clients.admin.admin import Admin

DELAYS = "delays"
LATE = "late-flights"
FLOW = Path(__file__).with_name("flights.yaml")
MOST_CORES = 2
MOST_EXECUTORS = 4
EXECUTOR_MEMORY = "1g"

Result = dict[tuple[str, int], tuple[int, float | None]]
"""Number of flights and mean arrival delay in minutes, by (origin, month)."""
Late = Mapping[tuple[str, int], int]
"""Number of late flights, by (origin, month)."""


@dataclass(frozen=True, slots=True)
class EtlResult:
    """Results of the flow, as its tables have them.

    carriers, partitions: flights of each. late: late ones by month. micro_batches: of the stream.
    """

    delays: Result
    carriers: Mapping[str, int]
    partitions: Mapping[int, int]
    late: Late
    micro_batches: int


def why_not() -> str | None:
    """Reason why Spark cannot run here, in one line with the remedy; None if it can."""
    from ...pipelines.spark.jvm import check_java
    from ...pipelines.spark.tasks.spark_failure import SparkUnavailable

    if missing := missing_modules("spark"):
        return f"{missing[0]} is not installed: {install_command('spark')}"
    try:
        check_java()
    except SparkUnavailable as error:
        return str(error)
    return None


@contextmanager
def session(namespace: str, scratch: Path) -> Iterator[SparkSession]:
    """Start a Spark session: an executor on each other node with room, or else one on any node.

    Its temporary files go to `scratch`.
    """
    import ray

    from ...pipelines.spark import session as sessions
    from ...pipelines.spark.executors import on_other_nodes
    from ...pipelines.spark.jvm import DRIVER_OPTIONS, EXECUTOR_OPTIONS, MASTER_OPTIONS

    temporary = scratch / "tmp"
    temporary.mkdir(parents=True)
    group = on_other_nodes(1, EXECUTOR_MEMORY, most=MOST_EXECUTORS)
    count = 1 if group is None else group.bundle_count
    cores = 1
    jvms = [DRIVER_OPTIONS]
    nodes = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    if len(nodes) == 1:
        jvms += [EXECUTOR_OPTIONS, MASTER_OPTIONS]  # they are all on this machine
        cores = max(1, min(MOST_CORES, int(nodes[0]["Resources"].get("CPU", 1))))
    try:
        with _output_to(scratch / "spark.log"):
            spark = sessions.spark(
                "bradbury-demo",
                num_executors=count,
                executor_cores=cores,
                executor_memory=EXECUTOR_MEMORY,
                placement_group=group,
                short_lived=True,
                namespace=namespace,
                configs={
                    "spark.sql.shuffle.partitions": str(count * cores),
                    "spark.sql.warehouse.dir": str(scratch / "warehouse"),
                    **dict.fromkeys(jvms, f"-Djava.io.tmpdir={temporary}"),
                },
            )
        yield spark
    finally:
        sessions.stop_spark()
        if group is not None:
            ray.util.remove_placement_group(group)


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Redirect the output of processes that are started meanwhile to `path`, until they end.

    The JVM's warnings would garble the progress display, and the JSON on stdout.
    """
    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.flush()
    before = [os.dup(number) for number in (1, 2)]
    try:
        with path.open("ab") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        yield
    finally:
        for stream in streams:
            stream.flush()
        for number, kept in enumerate(before, start=1):
            os.dup2(kept, number)
            os.close(kept)


def run_etl(folder: Path, servers: str) -> EtlResult:
    """Run the flow to the current end of its topic; its tables and checkpoints go to `folder`."""
    from ...pipelines.flows.flow import FlowFailed
    from ...pipelines.flows.run_flow import run_flow

    # Paths in a flow are as seen from its file.
    file = shutil.copy(FLOW, folder)
    try:
        progress = run_flow(file, once=True, bootstrap_servers=servers)
    except FlowFailed as error:
        raise CommandFailed(f"the flow on Spark failed: {error}") from None
    carriers: Counter[str] = Counter()
    partitions: Counter[int] = Counter()
    late: Counter[tuple[str, int]] = Counter()
    for row in pq.read_table(folder / "tables" / "counts").to_pylist():
        carriers[row["carrier"]] += row["flights"]
        partitions[row["partition"]] += row["flights"]
        late[row["origin"], row["month"]] += row["late"]
    micro_batches = sum(one.batches for one in progress if one.target == "late")
    delays = read_parquet(folder / "tables" / "delays")
    return EtlResult(delays, carriers, partitions, late, micro_batches)


def read_parquet(path: Path) -> Result:
    """Read the table of mean delays without Spark."""
    return {
        (row["origin"], row["month"]): (row["flights"], row["mean_delay"])
        for row in pq.read_table(path).to_pylist()
    }


def read_delays(bootstrap: str) -> Result:
    """Read topic `delays` with a plain consumer."""
    return {
        (row["origin"], row["month"]): (row["flights"], row.get("mean_delay"))
        for row in _read_topic(DELAYS, bootstrap)
    }


def read_late(bootstrap: str) -> Late:
    """Read topic `late-flights` with a plain consumer; a task that ran twice wrote rows twice."""
    places = {row["row"]: (row["origin"], row["month"]) for row in _read_topic(LATE, bootstrap)}
    return Counter(places.values())


def _read_topic(topic: str, bootstrap: str) -> Iterator[dict[str, Any]]:
    from ...clients.consumer.consumer import Consumer

    with Consumer(topic, bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            yield from map(json.loads, consumer.poll(500).column("value").to_pylist())


def rows_by_leader(admin: Admin, partitions: Mapping[int, int]) -> dict[str, int]:
    """Count rows by the host of the node that leads their partition."""
    hosts = {broker.node_id: broker.host for broker in admin.describe_cluster().brokers}
    (topic,) = admin.describe_topics([TOPIC])
    rows: Counter[str] = Counter()
    for partition in topic.partitions:
        host = hosts.get(partition.leader, "no leader")
        rows[host] += partitions.get(partition.partition, 0)
    return dict(sorted(rows.items()))


def compare(
    batch: EtlResult, by_carrier: Mapping[str, Delays], late: Late, others: Mapping[str, Result]
) -> None:
    """Raise CommandFailed if two ways to compute the same result differ."""
    if +Counter(late) != +Counter(batch.late):
        raise CommandFailed(_difference(f"topic {LATE!r}", late, batch.late))
    for name, other in others.items():
        if other != batch.delays:
            raise CommandFailed(_difference(name, other, batch.delays))
    counted = {carrier: delays.flights for carrier, delays in by_carrier.items()}
    if batch.carriers != counted:
        raise CommandFailed(_difference("Spark's count per carrier", batch.carriers, counted))


def _difference(name: str, found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> str:
    wrong = sorted(
        key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)
    )
    key = wrong[0]
    return (
        f"{name} is wrong in {len(wrong)} places: for {key} it has "
        f"{found.get(key)}, not {expected.get(key)}; run it again with --keep and compare"
    )
