"""The six steps of `bradbury demo`, in order, and the cleanup after them.

Invariants:
    However the demo ends (done, failed, Ctrl-C), none of its processes is left, and no file except
    those of --plot and --keep.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..terminal.failure import CommandFailed, UsageError
from ..terminal.output import print_json
from .screen import Screen, Step, carrier_table, step_table

if TYPE_CHECKING:
    from ...launch.cluster import Cluster

MOST_TEMPORARY_PATH = 39
"""Maximum length of the folder's path: Ray's socket paths add 68 bytes, and 107 is the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """The options of the command.

    namespace: of a cluster that is up; None: a cluster is started, and stopped at the end.
    """

    address: str | None = None
    rows: int | None = None
    plot: Path | None = None
    require_spark: bool = False
    spark: bool = True
    keep: bool = False
    namespace: str | None = None
    replication_factor: int = 1
    as_json: bool = False


@dataclass(slots=True)
class _Demo:
    settings: DemoSettings
    screen: Screen
    folder: Path
    namespace: str
    steps: list[Step] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str, rows: int = 0) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.steps.append(Step(name, rows, time.monotonic() - began))


def run_demo(settings: DemoSettings) -> int:
    """Run all six steps; return the exit code.

    Raises:
        CommandFailed: a step failed, or a check did.
    """
    if settings.plot is not None and not settings.plot.absolute().parent.is_dir():
        raise UsageError(f"--plot {settings.plot}: its folder does not exist")
    reason = _why_no_spark(settings)
    folder = Path(tempfile.mkdtemp(prefix="bradbury-demo-"))
    demo = _Demo(
        settings,
        Screen(stderr=settings.as_json),
        folder,
        # By default its own namespace, so that a cluster that is up in the same Ray is not touched.
        namespace=settings.namespace or f"bradbury-demo-{os.getpid()}",
    )
    try:
        with _ray_folder(settings, folder):
            _run(demo, reason)
    finally:
        if settings.keep:
            demo.screen.say(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    _print_summary(demo, reason)
    return 0


def _why_no_spark(settings: DemoSettings) -> str | None:
    """Reason why step 5 cannot run, checked before the first step; None if it can."""
    if not settings.spark:
        return "--no-spark was given"
    from .spark_etl import why_not

    reason = why_not()
    if reason is not None and settings.require_spark:
        raise CommandFailed(reason)
    return reason


@contextmanager
def _ray_folder(settings: DemoSettings, folder: Path) -> Iterator[None]:
    """Let an embedded Ray put its session files into `folder`, which is removed at the end."""
    if settings.address is not None:
        yield
        return
    sessions = folder
    if len(str(folder)) > MOST_TEMPORARY_PATH:
        sessions = Path(tempfile.mkdtemp(prefix="br-", dir="/tmp"))
    before = os.environ.get("RAY_TMPDIR")
    os.environ["RAY_TMPDIR"] = str(sessions)
    try:
        yield
    finally:
        shutil.rmtree(sessions / "ray", ignore_errors=True)
        if sessions != folder:
            shutil.rmtree(sessions, ignore_errors=True)
        if before is None:
            os.environ.pop("RAY_TMPDIR", None)
        else:
            os.environ["RAY_TMPDIR"] = before


def _run(demo: _Demo, no_spark: str | None) -> None:
    import ray

    from .delivery_check import DeliveryCheck
    from .flights import load_airlines, load_flights

    settings, screen = demo.settings, demo.screen
    with screen.waiting("reading the flights"):
        flights, airlines = load_flights(settings.rows), load_airlines()
    check = DeliveryCheck(flights)
    try:
        with demo.step("[1] start"), screen.waiting("[1] starting a cluster on Ray") as on_progress:
            cluster = _cluster(demo, on_progress)
        try:
            screen.say(f"[1] up: {cluster.bootstrap_servers}")
            demo.summary["bootstrap_servers"] = cluster.bootstrap_servers
            _produce(demo, cluster, flights)
            _consume(demo, cluster, check, airlines)
            _datasets(demo, cluster, check)
            if no_spark is None:
                _etl(demo, cluster, check)
            else:
                screen.say(f"[5] Spark is skipped: {no_spark}")
        finally:
            if settings.namespace is None:
                with demo.step("[6] stop"), screen.waiting("[6] stopping"):
                    cluster.down()
    finally:
        ray.shutdown()
    _show(demo, check)


def _cluster(demo: _Demo, on_progress: Callable[[str], None]) -> Cluster:
    from ...discovery.ray_connection import LOCAL, join_ray
    from ...launch.cluster import connect, start

    settings = demo.settings
    if settings.namespace is not None:
        return connect(settings.address, demo.namespace)
    owns_ray = join_ray(settings.address or LOCAL, demo.namespace, on_progress)
    cluster = start(
        str(demo.folder / "data"), port=0, namespace=demo.namespace, on_progress=on_progress
    )
    cluster.owns_ray = owns_ray
    return cluster


def _produce(demo: _Demo, cluster: Any, flights: Any) -> None:
    from .log_steps import PARTITIONS, TOPIC, produce_flights

    task_count = max(2, min(8, int(_ray_cpus())))
    count = flights.row_count
    with cluster.admin() as admin:
        # Flights of 2013: by their timestamps retention would delete them within minutes.
        _create(demo, admin, TOPIC, PARTITIONS, {"retention.ms": "-1"})
        with (
            demo.step("[2] produce from Ray tasks", count),
            demo.screen.counting(f"[2] producing from {task_count} Ray tasks", count) as advance,
        ):
            acknowledged = produce_flights(flights, admin, demo.namespace, task_count, advance)
    if acknowledged != count:
        raise CommandFailed(f"{acknowledged:,} of {count:,} rows were acknowledged")
    demo.screen.say(f"[2] produced {count:,} rows from {task_count} Ray tasks to {TOPIC!r}")


def _create(
    demo: _Demo,
    admin: Any,
    topic: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
) -> None:
    from ...protocol.errors import TopicAlreadyExists

    try:
        admin.create_topic(topic, partitions, demo.settings.replication_factor, configs=configs)
    except TopicAlreadyExists:
        raise CommandFailed(
            f"topic {topic!r} exists already; delete it with `bradbury topics delete {topic}`"
        ) from None


def _ray_cpus() -> float:
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return resources.get("CPU", 2.0)


def _consume(demo: _Demo, cluster: Any, check: Any, airlines: dict[str, str]) -> None:
    from .log_steps import CONSUMERS, TOPIC, consume_flights

    count = demo.steps[-1].rows
    with (
        cluster.admin() as admin,
        demo.step("[3] consume with actors", count),
        demo.screen.counting(
            f"[3] consuming with {CONSUMERS} actors",
            count,
            lambda: carrier_table(check.by_carrier, airlines),
        ) as advance,
    ):
        consume_flights(check, admin, demo.namespace, advance)
    problems = check.problems()
    if problems:
        raise CommandFailed(f"topic {TOPIC!r} differs from what was sent: {'; '.join(problems)}")
    demo.screen.say(carrier_table(check.by_carrier, airlines))
    demo.screen.say(
        f"[3] consumed {check.record_count:,} rows: each exactly once, in order per key, unaltered"
    )
    demo.summary["carriers"] = {
        carrier: {"flights": delays.flights, "mean_delay": delays.mean}
        for carrier, delays in sorted(check.by_carrier.items())
    }


def _datasets(demo: _Demo, cluster: Any, check: Any) -> None:
    from ...pipelines.ray_data.ray_data_missing import RayDataMissing, require_ray_data

    try:
        require_ray_data()
    except RayDataMissing as missing:
        demo.screen.say(f"[4] Datasets are skipped: {missing}")
        return
    from .dataset_steps import CARRIERS, add_up_carriers, compare_carriers, write_carriers

    servers = cluster.bootstrap_servers
    with cluster.admin() as admin:
        _create(demo, admin, CARRIERS)
    rows = check.record_count
    with (
        demo.step("[4] Dataset to topic", rows),
        demo.screen.waiting("[4] a Ray Dataset reads the topic, writes sums"),
    ):
        write_carriers(servers)
    with (
        demo.step("[4] tasks and a queue"),
        demo.screen.waiting("[4] two Ray tasks add up the sums"),
    ):
        found = add_up_carriers(servers)
    compare_carriers(found, check.by_carrier)
    demo.screen.say(
        f"[4] a Ray Dataset summed up each batch of flights by carrier into topic {CARRIERS!r}; "
        f"two Ray tasks, each taking carriers from one queue, added up {len(found)} totals: "
        "the same as the table above"
    )


def _etl(demo: _Demo, cluster: Any, check: Any) -> None:
    from ...pipelines.spark.executors import executor_work
    from . import spark_etl

    rows = check.record_count
    servers = cluster.bootstrap_servers
    folder = demo.folder / "flow"
    folder.mkdir()
    with cluster.admin() as admin:
        for topic in (spark_etl.DELAYS, spark_etl.LATE):
            _create(demo, admin, topic)
    with ExitStack() as stack:
        with (
            demo.step("[5] start Spark on RayDP"),
            demo.screen.waiting("[5] starting Spark on RayDP"),
        ):
            opened = spark_etl.session(demo.namespace, demo.folder / "spark")
            session = stack.enter_context(opened)
        with (
            demo.step("[5] Spark batch and stream", 2 * rows),
            demo.screen.waiting("[5] Spark batch and stream"),
        ):
            batch = spark_etl.run_etl(folder, servers)
        with demo.step("[5] compare"), demo.screen.waiting("[5] comparing"):
            spark_etl.compare(
                batch,
                check.by_carrier,
                spark_etl.read_late(servers),
                {
                    f"topic {spark_etl.DELAYS!r}": spark_etl.read_delays(servers),
                    "the actors' table": {
                        key: (delays.flights, delays.mean) for key, delays in check.by_month.items()
                    },
                },
            )
        executors: Counter[str] = Counter()
        for work in executor_work(session):
            executors[work.host] += work.completed_tasks
        driver = session.conf.get("spark.driver.host")
    with cluster.admin() as admin:
        leaders = spark_etl.rows_by_leader(admin, batch.partitions)
    demo.screen.say(
        f"[5] Spark agrees with itself and with the actors: {len(batch.delays)} means of delays in "
        f"Parquet and in topic {spark_etl.DELAYS!r}, {sum(batch.late.values()):,} late flights by "
        f"batch and by {batch.micro_batches} micro-batches in topic {spark_etl.LATE!r}"
    )
    tasks = ", ".join(f"{count:,} tasks on {host}" for host, count in executors.items())
    read = ", ".join(f"{count:,} from {host}" for host, count in leaders.items())
    demo.screen.say(f"[5] executors did {tasks}; the driver was on {driver}")
    demo.screen.say(f"[5] rows read by Spark: {read}")
    demo.summary["spark"] = {
        "groups": len(batch.delays),
        "late": sum(batch.late.values()),
        "micro_batches": batch.micro_batches,
        "driver": driver,
        "tasks_by_executor": executors,
        "rows_by_leader": leaders,
    }


def _show(demo: _Demo, check: Any) -> None:
    from .charts import chart_table, write_picture

    demo.screen.say(chart_table(check.by_month))
    plot = demo.settings.plot
    if plot is not None:
        write_picture(check.by_month, plot)
        demo.summary["plot"] = str(plot)


def _print_summary(demo: _Demo, no_spark: str | None) -> None:
    screen, settings = demo.screen, demo.settings
    screen.say(step_table(demo.steps))
    if settings.plot is not None:
        screen.say(f"picture   {settings.plot}")
    data = demo.folder / "data"
    if settings.namespace is not None:
        screen.say("the cluster stays up, and the topics with it")
    elif settings.keep:
        screen.say(f"try next  bradbury up --detach --data-dir {data}")
        screen.say("          bradbury consume flights --from-beginning --max 5 --format '%k %v'")
        screen.say("          bradbury down")
    else:
        screen.say("try next  bradbury up --detach")
        screen.say("          bradbury topics create events --partitions 4")
        screen.say("          seq 1000 | bradbury produce events")
        screen.say("          bradbury consume events --from-beginning --max 10")
        screen.say(
            "          bradbury down      (the data stays; `bradbury demo --keep` keeps this)"
        )
    if settings.as_json:
        print_json(
            {
                "rows": next((step.rows for step in demo.steps if step.rows), 0),
                "steps": [
                    {
                        "step": step.name,
                        "rows": step.rows,
                        "seconds": round(step.seconds, 3),
                        "rows_per_second": step.rows_per_second and round(step.rows_per_second),
                    }
                    for step in demo.steps
                ],
                "spark": None if no_spark is None else {"skipped": no_spark},
                "kept": str(demo.folder) if settings.keep else None,
                **demo.summary,
            }
        )
