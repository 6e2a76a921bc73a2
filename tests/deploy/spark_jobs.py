"""The jobs of Spark besides the demo's, one after another in one session, each checked.

    python spark_jobs.py --folder DIR                      executors on other nodes of the Ray
                                                           cluster that this machine belongs to
    python spark_jobs.py --folder DIR --local --bootstrap HOST:PORT        Spark in this process

`load` to Parquet and to Delta, `mirror` to another cluster and `migrate`, `flow run` twice, and a
stream with state. They read a topic of JSON objects with `carrier` and `arr_delay`, as the demo
leaves it, and what they wrote is counted and compared with a batch over that topic. The commands
are run by their own entry point, in this process: so they take its session.

DIR: a directory that all nodes see, as a shared file system: executors write tables and state there.
What was seen is in DIR/jobs.json; the first difference ends it with exit code 1. Runs where only Bradbury is installed, not its tests.
"""

import argparse
import contextlib
import io
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import ray
from pyspark.sql import DataFrame, SparkSession, functions as f

import bradbury
from bradbury.cli.main import run as run_command
from bradbury.discovery.extras import missing_modules
from bradbury.pipelines.spark.executors import executor_work, on_other_nodes
from bradbury.pipelines.spark.session import local_session, stop_spark

EXECUTOR_MEMORY = "1g"
MOST_EXECUTORS = 2
FIELDS = "carrier string, arr_delay int"
LATE = "jobs-late"
TOTALS = "jobs-totals"
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


class Different(Exception):
    """A job's result is not what a batch over the same topic has. In words."""


class Jobs:
    """The jobs, and what they share. Each returns what was seen."""

    def __init__(
        self, spark: SparkSession, servers: str, topic: str, folder: Path, replicas: int
    ) -> None:
        self._spark = spark
        self._servers = servers
        self._topic = topic
        self._folder = folder
        with bradbury.Admin(servers) as admin:
            partitions = len(admin.describe_topics([topic])[0].partitions)
            for made in (LATE, TOTALS):
                admin.create_topic(made, partitions, replicas)
        self._rows = self._read(topic).count()

    def load_parquet(self) -> str:
        table = self._folder / "loaded"
        said = self._command("load", self._topic, "--to", table, "--engine", "spark")
        self._expect("the load", said["records"], self._rows)
        found = self._spark.read.parquet(str(table)).select("partition", "offset").distinct()
        self._expect("the table's places in the topic", found.count(), self._rows)
        again = self._command("load", self._topic, "--to", table, "--engine", "spark")
        self._expect("a load where nothing is new", again["records"], 0)
        return f"{self._rows:,} rows"

    def load_delta(self) -> str:
        if missing_modules("delta"):
            return "not tried: deltalake is not installed"
        from deltalake import DeltaTable

        table = self._folder / "delta"
        words = ("--to", table, "--format", "delta", "--engine", "spark")
        self._expect("the load", self._command("load", self._topic, *words)["records"], self._rows)
        found = DeltaTable(table).to_pyarrow_dataset().count_rows()
        self._expect("the table's rows", found, self._rows)
        return f"{found:,} rows"

    def mirror(self) -> str:
        """To a cluster in this process; and a migration of another topic, compared by it."""
        with bradbury.local() as other:
            to = other.bootstrap_servers
            here = ("--from", self._servers)
            said = self._command("mirror", self._topic, *here, "--alias", "jobs", bootstrap=to)
            self._expect("the mirror", said["records"], self._rows)
            found = self._read(f"jobs.{self._topic}", to)
            self._expect("the mirrored topic", found.count(), self._rows)
            late = self._read(LATE).count()
            moved = ("--topics", LATE, "--groups", "none-of-them", "--once")
            said = self._command("migrate", *here, *moved, bootstrap=to)
            self._expect("the migration", said["records"], late)
            checks = self._command("migrate", "verify", *here, bootstrap=to)
            compared = sum(one["target"]["records"] for one in checks if one["same"])
            self._expect("records that are the same in both clusters", compared, late)
        return f"{self._rows:,} records mirrored, {late:,} migrated and the same"

    def flow(self) -> str:
        """Twice: the second run finds nothing new."""
        file = self._folder / "jobs.yaml"
        file.write_text(FLOW.format(topic=self._topic, fields=FIELDS, late=LATE))
        flights = self._flights()
        late = flights.where("arr_delay >= 60").groupBy("carrier").count()
        wanted = {row["carrier"]: row["count"] for row in late.collect()}
        for records in (self._rows, 0):
            said = self._command("flow", "run", file, "--once")
            self._expect("records that the flow has read", said["late"]["records"], records)
            written = Counter(key for key, _ in self._committed(LATE))
            self._expect(f"the topic {LATE}", dict(written), wanted)
            table = self._spark.read.parquet(str(self._folder / "tables" / "late"))
            rows = {
                one["carrier"]: one["count"] for one in table.groupBy("carrier").count().collect()
            }
            self._expect("the table of late flights", rows, wanted)
            counts = ds.dataset(self._folder / "tables" / "carriers").to_table().to_pylist()
            self._expect("the sum of flights", sum(one["flights"] for one in counts), self._rows)
        return f"{sum(wanted.values()):,} of {self._rows:,} records in a topic and in a table"

    def stateful_stream(self) -> str:
        """Flights by carrier, kept up to date; in the end each key's last record is the count."""
        source = (
            self._spark.readStream.format("bradbury")
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self._rows // 3 + 1)
            .load()
        )
        counted = _parsed(source).groupBy("carrier").count()
        query = (
            counted.selectExpr("carrier AS key", "cast(count AS string) AS value")
            .writeStream.format("bradbury")
            .outputMode("complete")
            .option("topic", TOTALS)
            .option("checkpointLocation", str(self._folder / "totals"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        if error := query.exception():
            raise Different(f"the stream has failed: {error}")
        wanted = {row["carrier"]: row["count"] for row in self._by_carrier().collect()}
        last = {key: int(value) for key, value in self._committed(TOTALS)}
        self._expect("the totals of the stream", last, wanted)
        batches = {one["batchId"] for one in query.recentProgress if one["numInputRows"]}
        if len(batches) < 3:
            raise Different(f"the stream had {len(batches)} micro-batches, so hardly any state")
        return f"{len(wanted)} totals of {self._rows:,} records in {len(batches)} micro-batches"

    def _command(self, *words: object, bootstrap: str | None = None) -> Any:
        """`bradbury` with these words and --json; the JSON that it prints."""
        line = [*map(str, words), "--json", "--bootstrap", bootstrap or self._servers]
        # Not on the terminal that `ray submit` makes, on which they would draw their progress.
        out, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            code = run_command(line)
            is_ours = (sys.stdout is out, sys.stderr is said)
        if code:
            ended = f"`bradbury {' '.join(line)}` ended with exit code {code}"
            raise Different(f"{ended}: {said.getvalue()}")
        if not out.getvalue():  # seen once: all of it was on the terminal
            where = f"still redirected at its end: {is_ours}; on stderr: {said.getvalue()!r}"
            raise Different(f"`bradbury {' '.join(line)}` printed nothing here ({where})")
        return _json_in(out.getvalue())

    def _expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise Different(f"{what}: {found}, not {wanted}")

    def _read(self, topic: str, servers: str | None = None) -> DataFrame:
        return (
            self._spark.read.format("bradbury")
            .option("kafka.bootstrap.servers", servers or self._servers)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .load()
        )

    def _flights(self) -> DataFrame:
        return _parsed(self._read(self._topic))

    def _by_carrier(self) -> DataFrame:
        return self._flights().groupBy("carrier").count()

    def _committed(self, topic: str) -> list[tuple[str, str]]:
        """Key and value of all committed records, each partition in order."""
        rows = self._read(topic).orderBy("partition", "offset")
        chosen = rows.selectExpr("cast(key AS string) AS key", "cast(value AS string) AS value")
        return [(row["key"], row["value"]) for row in chosen.collect()]


def _json_in(output: str) -> Any:
    """The JSON in it, which is one piece; Ray prints what its workers print beside it."""
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if line[:1] in ("{", "["))
    found, _ = json.JSONDecoder().raw_decode("\n".join(lines[start:]))
    return found


def _parsed(rows: DataFrame) -> DataFrame:
    value = f.from_json(f.col("value").cast("string"), FIELDS)
    return rows.select(value.alias("it")).select("it.*")


@contextlib.contextmanager
def session(*, local: bool, bootstrap: str | None) -> Iterator[tuple[SparkSession, str]]:
    """A session, and the brokers' addresses."""
    settings = {"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}
    if local:
        assert bootstrap is not None, "--local needs --bootstrap"
        spark = local_session(
            "jobs", master="local[4]", short_lived=True, bootstrap=bootstrap, configs=settings
        )
        try:
            yield spark, bootstrap
        finally:
            spark.stop()
        return
    servers = bradbury.connect().bootstrap_servers
    group = on_other_nodes(1, EXECUTOR_MEMORY, most=MOST_EXECUTORS)
    assert group is not None, "no other node of the Ray cluster has room for an executor"
    try:
        yield (
            bradbury.spark(
                "jobs",
                num_executors=group.bundle_count,
                executor_memory=EXECUTOR_MEMORY,
                placement_group=group,
                short_lived=True,
                configs=settings,
            ),
            servers,
        )
    finally:
        stop_spark()
        ray.util.remove_placement_group(group)
        ray.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--bootstrap")
    parser.add_argument("--replication-factor", type=int, default=-1)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    seen: dict[str, Any] = {}
    with session(local=given.local, bootstrap=given.bootstrap) as (spark, servers):
        jobs = Jobs(spark, servers, given.topic, given.folder, given.replication_factor)
        for job in (
            jobs.load_parquet,
            jobs.load_delta,
            jobs.flow,
            jobs.stateful_stream,
            jobs.mirror,
        ):
            began = time.monotonic()
            try:
                found = job()
            except Different as error:
                print(f"{job.__name__}: {error}", file=sys.stderr)
                return 1
            seen[job.__name__] = f"{found}, {time.monotonic() - began:.0f} s"
        seen["driver"] = spark.conf.get("spark.driver.host")
        seen["tasks"] = {one.host: one.completed_tasks for one in executor_work(spark)}
    # Not on stdout, where Spark and Ray print what their processes say.
    (given.folder / "jobs.json").write_text(json.dumps(seen, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
