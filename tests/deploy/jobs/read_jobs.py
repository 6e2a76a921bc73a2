"""Jobs that read: by SQL, near the brokers, and as a stream with state whose progress is a group's."""

import socket
from collections.abc import Iterator

import pyarrow as pa
from jobs.checks import Different, expect
from jobs.scene import FIELDS, Scene, parsed
from pyspark.sql import functions as f

import bradbury
from bradbury.pipelines.spark.executors import executor_work
from bradbury.pipelines.spark.local_read import read_local

TOTALS = "jobs-totals"
GROUP = "jobs-totals-query"


class ReadJobs:
    """The jobs. Each returns what was seen, and is compared with a batch over the same topic."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        scene.make_topics(TOTALS)

    def topic_view(self) -> str:
        scene = self._scene
        bradbury.topic_view(
            scene.spark, scene.topic, name="jobs_flights", value="json", schema=FIELDS
        )
        asked = "SELECT carrier, count(*) AS flights FROM jobs_flights GROUP BY carrier"
        found = {row["carrier"]: row["flights"] for row in scene.spark.sql(asked).collect()}
        expect("flights by carrier", found, scene.by_carrier())
        return f"{len(found)} carriers by SQL"

    def read_local(self) -> str:
        """Tasks run where the leaders are, if an executor is there."""
        scene = self._scene
        near = read_local(scene.spark, scene.topic, schema="partition int, offset long")

        def placed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            here = socket.gethostbyname(socket.gethostname())
            for batch in batches:
                for partition in batch.column("partition").unique().to_pylist():
                    rows = sum(one == partition for one in batch.column("partition").to_pylist())
                    columns = [pa.array([partition], pa.int32()), [here], pa.array([rows])]
                    yield pa.record_batch(columns, ["partition", "host", "rows"])

        read = near.mapInArrow(placed, "partition int, host string, rows long")
        summed = read.groupBy("partition", "host").agg(f.sum("rows").alias("rows")).collect()
        expect("rows", sum(row["rows"] for row in summed), scene.rows)
        with bradbury.Admin(scene.servers) as admin:
            (topic,) = admin.describe_topics([scene.topic])
            hosts = {one.node_id: one.host for one in admin.describe_cluster().brokers}
        leaders = {one.partition: hosts[one.leader] for one in topic.partitions}
        with_executor = {one.host for one in executor_work(scene.spark)} & set(leaders.values())
        at_home = sum(row["rows"] for row in summed if leaders[row["partition"]] == row["host"])
        might = sum(row["rows"] for row in summed if leaders[row["partition"]] in with_executor)
        # Not all: where an executor is busy for longer than spark.locality.wait, another one reads.
        if might and not at_home:
            raise Different(f"no rows were read where their leaders are: {summed}, {leaders}")
        return f"{at_home:,} of {scene.rows:,} rows where their leaders are"

    def stateful_stream(self) -> str:
        """Flights by carrier, kept up to date; in the end each key's last record is the count.

        What the query has read are the offsets of a group, without lag in the end.
        """
        scene = self._scene
        source = (
            scene.spark.readStream.format("bradbury")
            .option("subscribe", scene.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", scene.rows // 3 + 1)
            .option("commitOffsets", "true")
            .option("kafka.group.id", GROUP)
            .load()
        )
        counted = parsed(source).groupBy("carrier").count()
        query = (
            counted.selectExpr("carrier AS key", "cast(count AS string) AS value")
            .writeStream.format("bradbury")
            .outputMode("complete")
            .option("topic", TOTALS)
            .option("checkpointLocation", str(scene.folder / "totals"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        if error := query.exception():
            raise Different(f"the stream has failed: {error}")
        wanted = scene.by_carrier()
        last = {key: int(value) for key, value in scene.committed(TOTALS)}
        expect("the totals of the stream", last, wanted)
        batches = {one["batchId"] for one in query.recentProgress if one["numInputRows"]}
        if len(batches) < 3:
            raise Different(f"the stream had {len(batches)} micro-batches, so hardly any state")
        with bradbury.Admin(scene.servers) as admin:
            places = [(scene.topic, number) for number in range(scene.partitions)]
            ends = {key: at.offset for key, at in admin.list_offsets(places, "latest").items()}
            shown = {key: at.offset for key, at in admin.group_offsets(GROUP).items()}
        expect(f"the offsets of group {GROUP}", shown, ends)
        totals = f"{len(wanted)} totals of {scene.rows:,} records in {len(batches)} micro-batches"
        return f"{totals}, read as group {GROUP} without lag"
