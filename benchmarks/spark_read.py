"""Spark batch read, rows per second, compared with any Python source.

    python -m bradbury.benchmarks.spark_read --rows 2000000 --value-bytes 100 --runs 5
    python -m bradbury.benchmarks.spark_read --near     # files, and tasks at leaders, beside it

One process holds the broker, Spark runs on local[2]; both share the machine's cores. In each round
two queries run in turn: ours over a topic, and a source that yields one Arrow batch of the same
shape again and again from memory. Their ratio survives a busy machine, the figures do not. The
first rounds warm the JVM up. With --near the others are ours with localFiles, and read_local, whose
tasks prefer the leader's host: on one machine every task is there, so its ratio to localFiles is
what placing costs, not what it gains.
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

import bradbury
from bradbury.pipelines.spark.local_read import read_local
from bradbury.pipelines.spark.session import local_session


class Synthetic(DataSource):
    """Source of the same rows from memory: no log, no decoding."""

    @classmethod
    def name(cls) -> str:
        return "synthetic"

    def reader(self, schema):
        return SyntheticReader(schema, dict(self.options.items()))


class SyntheticReader(DataSourceReader):
    def __init__(self, schema, options) -> None:
        self.schema = schema
        self.rows = int(options["rows"])
        self.batch_rows = int(options["batchrows"])
        self.value_bytes = int(options["valuebytes"])
        self.tasks = int(options["tasks"])

    def partitions(self):
        return [InputPartition(number) for number in range(self.tasks)]

    def read(self, partition) -> Iterator[pa.RecordBatch]:
        count, width = self.batch_rows, self.value_bytes
        ends = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * width)
        value = pa.Array.from_buffers(
            pa.binary(), count, [None, ends, pa.py_buffer(bytes(count * width))]
        )
        columns = {
            "key": pa.nulls(count, pa.binary()),
            "value": value,
            "topic": pa.repeat(pa.scalar("bench"), count),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "offset": pa.array(np.arange(count)),
            "timestamp": pa.array(np.arange(count), pa.timestamp("us", "UTC")),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), count),
        }
        schema = to_arrow_schema(self.schema, timezone="UTC")
        batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        for _ in range(self.rows // self.tasks // count):
            yield batch


def produce(cluster, rows: int, value_bytes: int, partitions: int) -> None:
    cluster.admin().create_topic("bench", partitions)
    values = pa.array([bytes(value_bytes)] * 100_000, pa.binary())
    with bradbury.Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        for start in range(0, rows, len(values)):
            for partition in range(partitions):
                share = min(len(values), rows - start) // partitions
                producer.send_batch(
                    "bench", pa.table({"value": values.slice(0, share)}), partition=partition
                )


def timed(frame) -> float:
    begun = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun


def compare_near(spark, plain, arguments) -> None:
    options = {"batchRows": arguments.batch_rows}
    files = spark.read.format("bradbury").options(subscribe="bench", localFiles=True, **options)
    frames = (plain, files.load(), read_local(spark, "bench", options=options))
    print("round      sockets        files   read_local    files / sockets   read_local / sockets")
    ratios = []
    for number in range(1, arguments.runs + 1):
        speeds = [arguments.rows / timed(frame) for frame in frames]
        ratios.append([speed / speeds[0] for speed in speeds[1:]])
        shown = "   ".join(f"{speed / 1e6:6.2f} M/s" for speed in speeds)
        print(f"{number:5}  {shown}   " + "   ".join(f"{ratio:6.2f}" for ratio in ratios[-1]))
    warm = np.median(np.array(ratios[1:] or ratios), axis=0)
    print(f"median without the first: files {warm[0]:.2f}, read_local {warm[1]:.2f} of sockets")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--batch-rows", type=int, default=20_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--near", action="store_true")
    arguments = parser.parse_args()
    rows = arguments.rows
    with bradbury.local() as cluster:
        produce(cluster, rows, arguments.value_bytes, arguments.partitions)
        spark = local_session(master=arguments.master, bootstrap=cluster.bootstrap_servers)
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(Synthetic)
        ours = (
            spark.read.format("bradbury")
            .option("subscribe", "bench")
            .option("batchRows", arguments.batch_rows)
            .load()
        )
        assert ours.count() == rows
        value_only = (
            spark.read.format("bradbury")
            .option("subscribe", "bench")
            .option("batchRows", arguments.batch_rows)
            .schema("value binary")
            .load()
        )
        ceiling = (
            spark.read.format("synthetic")
            .schema(ours.schema)
            .options(
                rows=rows,
                tasks=arguments.partitions,
                batchRows=arguments.batch_rows,
                valueBytes=arguments.value_bytes,
            )
            .load()
        )
        print(f"{rows:,} rows of {arguments.value_bytes} bytes, {arguments.partitions} partitions")
        if arguments.near:
            compare_near(spark, ours, arguments)
            spark.stop()
            return
        print("round   7 columns   value only   synthetic    7 columns / synthetic")
        for number in range(1, arguments.runs + 1):
            speeds = [rows / timed(frame) for frame in (ours, value_only, ceiling)]
            shown = "   ".join(f"{speed / 1e6:6.2f} M/s" for speed in speeds)
            print(f"{number:5}  {shown}    {speeds[0] / speeds[2]:6.0%}")
        spark.stop()


if __name__ == "__main__":
    main()
