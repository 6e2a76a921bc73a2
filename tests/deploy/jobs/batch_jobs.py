"""Jobs that end: loads into tables and back into a topic, a flow, a mirror and a migration."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from jobs.checks import Different, expect
from jobs.scene import FIELDS, Scene

import bradbury
from bradbury.discovery.extras import missing_modules
from bradbury.pipelines.loads.load import LoadProgress

LATE = "jobs-late"
AGAIN = "jobs-again"
GROWING = "jobs-growing"
PART = 5_000
FLOW = """
name: jobs
sources:
  flights: {{topic: {topic}, value: json, schema: "{fields}"}}
  all_flights: {{topic: {topic}, value: json, schema: "{fields}", stream: false}}
steps:
  late: {{sql: "SELECT carrier, arr_delay, _partition AS source_partition, _offset AS source_offset
    FROM flights WHERE arr_delay >= 60"}}
  carriers: {{sql: "SELECT carrier, count(*) AS flights FROM all_flights GROUP BY carrier"}}
targets:
  late: {{of: late, topic: {late}, key: carrier}}
  table: {{of: late, table: tables/late, partition_by: carrier}}
  carriers: {{of: carriers, table: tables/carriers}}
"""


class BatchJobs:
    """The jobs. Each returns what was seen, and is compared with a batch over the same topic."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        scene.make_topics(LATE, AGAIN, GROWING)

    def load_parquet(self) -> str:
        scene, table = self._scene, self._scene.folder / "loaded"
        said = scene.command("load", scene.topic, "--to", table, "--engine", "spark")
        expect("the load", said["records"], scene.rows)
        self._expect_places(table, scene.topic, scene.rows)
        again = scene.command("load", scene.topic, "--to", table, "--engine", "spark")
        expect("a load where nothing is new", again["records"], 0)
        return f"{scene.rows:,} rows"

    def load_delta(self) -> str:
        if missing_modules("delta"):
            return "not tried: deltalake is not installed"
        from deltalake import DeltaTable

        scene, table = self._scene, self._scene.folder / "delta"
        words = ("--to", table, "--format", "delta", "--engine", "spark")
        expect("the load", scene.command("load", scene.topic, *words)["records"], scene.rows)
        found = DeltaTable(table).to_pyarrow_dataset().count_rows()
        expect("the table's rows", found, scene.rows)
        return f"{found:,} rows"

    def load_iceberg(self) -> str:
        if missing_modules("iceberg"):
            return "not tried: pyiceberg is not installed"
        from pyiceberg.catalog import load_catalog

        scene, folder = self._scene, self._scene.folder / "iceberg"
        folder.mkdir()
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
        }
        words: list[object] = ["--to", "jobs.flights", "--format", "iceberg", "--engine", "spark"]
        for name, value in catalog.items():
            words += ["--catalog-property", f"{name}={value}"]
        for records in (scene.rows, 0):
            said = scene.command("load", scene.topic, *words)
            expect("the load", said["records"], records)
        table = load_catalog("default", **catalog).load_table("jobs.flights")
        places = table.scan(selected_fields=("partition", "offset")).to_arrow()
        expect("the table's rows", places.num_rows, scene.rows)
        distinct = places.group_by(["partition", "offset"]).aggregate([]).num_rows
        expect("the table's places in the topic", distinct, scene.rows)
        return f"{scene.rows:,} rows"

    def load_continuously(self) -> str:
        """By executors, ended in between: what came before, meanwhile and after is there once."""
        scene, table = self._scene, self._scene.folder / "growing"
        self._send(0)
        commits = 0
        for run, goal in enumerate((2 * PART, 4 * PART)):
            loaded = 2 * PART * run
            if run:
                self._send(2)
            stop = threading.Event()
            followed = threading.Event()

            def seen(
                progress: LoadProgress,
                loaded: int = loaded,
                goal: int = goal,
                run: int = run,
                stop: threading.Event = stop,
                followed: threading.Event = followed,
            ) -> None:
                if loaded + progress.records >= goal:
                    stop.set()
                elif not followed.is_set():
                    followed.set()
                    self._send(2 * run + 1)

            done = bradbury.load(
                GROWING,
                str(table),
                engine="spark",
                bootstrap_servers=scene.servers,
                continuous=True,
                commit_interval_s=1,
                stop=stop,
                on_progress=seen,
            )
            expect("records of a continuous load", done.records, 2 * PART)
            if done.commits < 2:
                raise Different(f"the continuous load had {done.commits} commit: it did not go on")
            commits += done.commits
        self._expect_places(table, GROWING, 4 * PART)
        return f"{4 * PART:,} rows in {commits} commits of two runs"

    def replay(self) -> str:
        """The Parquet table as records of another topic, each in its partition, in its order."""
        scene, table = self._scene, self._scene.folder / "loaded"
        words = ("--to", AGAIN, "--keep-partitions")
        for records in (scene.rows, 0):
            said = scene.command("replay", table, *words)
            expect("the replay", said["records"], records)
        expect("the replayed topic", scene.contents(AGAIN), scene.contents(scene.topic))
        return f"{scene.rows:,} records with the keys and values that they had"

    def flow(self) -> str:
        """Twice: the second run finds nothing new."""
        scene = self._scene
        file = scene.folder / "jobs.yaml"
        file.write_text(FLOW.format(topic=scene.topic, fields=FIELDS, late=LATE))
        late = scene.flights().where("arr_delay >= 60").groupBy("carrier").count()
        wanted = {row["carrier"]: row["count"] for row in late.collect()}
        for records in (scene.rows, 0):
            said = scene.command("flow", "run", file, "--once")
            expect("records that the flow has read", said["late"]["records"], records)
            written = Counter(key for key, _ in scene.committed(LATE))
            expect(f"the topic {LATE}", dict(written), wanted)
            table = scene.spark.read.parquet(str(scene.folder / "tables" / "late"))
            rows = {
                one["carrier"]: one["count"] for one in table.groupBy("carrier").count().collect()
            }
            expect("the table of late flights", rows, wanted)
            counts = ds.dataset(scene.folder / "tables" / "carriers").to_table().to_pylist()
            expect("the sum of flights", sum(one["flights"] for one in counts), scene.rows)
        return f"{sum(wanted.values()):,} of {scene.rows:,} records in a topic and in a table"

    def mirror(self) -> str:
        """To a cluster in this process; and a migration of another topic, compared by it."""
        scene = self._scene
        with bradbury.local() as other:
            to = other.bootstrap_servers
            here = ("--from", scene.servers)
            said = scene.command("mirror", scene.topic, *here, "--alias", "jobs", bootstrap=to)
            expect("the mirror", said["records"], scene.rows)
            found = scene.read(f"jobs.{scene.topic}", to)
            expect("the mirrored topic", found.count(), scene.rows)
            late = scene.read(LATE).count()
            moved = ("--topics", LATE, "--groups", "none-of-them", "--once")
            said = scene.command("migrate", *here, *moved, bootstrap=to)
            expect("the migration", said["records"], late)
            checks = scene.command("migrate", "verify", *here, bootstrap=to)
            compared = sum(one["target"]["records"] for one in checks if one["same"])
            expect("records that are the same in both clusters", compared, late)
        return f"{scene.rows:,} records mirrored, {late:,} migrated and the same"

    def _send(self, part: int) -> None:
        rows: list[tuple[str, str]] = [
            (str(number), f"record {number}") for number in range(part * PART, (part + 1) * PART)
        ]
        with bradbury.Producer(self._scene.servers) as producer:
            producer.send_batch(GROWING, rows).result(60)

    def _expect_places(self, table: Path, topic: str, rows: int) -> None:
        """Each record of the topic is in the table once, by its partition and offset."""
        places: Any = self._scene.spark.read.parquet(str(table)).select("partition", "offset")
        expect("the table's rows", places.count(), rows)
        there = self._scene.read(topic).select("partition", "offset")
        expect("places of the topic that are not in the table", there.exceptAll(places).count(), 0)
