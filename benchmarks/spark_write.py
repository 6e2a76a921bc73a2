"""Spark batch write, rows per second: exactly once compared with at least once.

    python -m bradbury.benchmarks.spark_write --rows 400000 --value-bytes 100 --runs 10

One process holds the broker, Spark runs on local[2]; both share the machine's cores. In each round
the same rows are written with both guarantees, the order changing from round to round: their ratio
survives a busy machine, the figures do not. Exactly once is at its dearest: each task takes its
transactional id over again, as the first batch of a query does.
"""

import argparse
import statistics
import time

import bradbury
from bradbury.pipelines.spark.session import local_session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    rows = arguments.rows
    with bradbury.local() as cluster:
        cluster.admin().create_topic("bench", arguments.partitions)
        spark = local_session(master=arguments.master, bootstrap=cluster.bootstrap_servers)
        spark.sparkContext.setLogLevel("ERROR")
        frame = spark.range(0, rows, 1, arguments.tasks).selectExpr(
            f"lpad(string(id), {arguments.value_bytes}, '0') as value"
        )

        def timed(number: int, guarantee: str) -> float:
            writer = frame.write.format("bradbury").option("topic", "bench").mode("append")
            writer = writer.option("deliveryGuarantee", guarantee)
            if guarantee == "exactly-once":
                writer = writer.option("sinkId", "bench").option("batchId", number)
            begun = time.perf_counter()
            writer.save()
            return time.perf_counter() - begun

        print(f"{rows:,} rows of {arguments.value_bytes} bytes by {arguments.tasks} tasks")
        print("round   at least once   exactly once   exactly once / at least once")
        ratios = []
        for number in range(1, arguments.warm_up + arguments.runs + 1):
            order = ["at-least-once", "exactly-once"][:: 1 if number % 2 else -1]
            took = {guarantee: timed(number, guarantee) for guarantee in order}
            ratio = took["at-least-once"] / took["exactly-once"]
            speeds = [rows / took[name] / 1e6 for name in ("at-least-once", "exactly-once")]
            is_warm = number > arguments.warm_up
            print(
                f"{number:5}   {speeds[0]:8.2f} M/s    {speeds[1]:8.2f} M/s    {ratio:8.0%}"
                f"{'' if is_warm else '   (warm-up)'}",
                flush=True,
            )
            if is_warm:
                ratios.append(ratio)
        print(f"median ratio {statistics.median(ratios):.0%}")
        spark.stop()


if __name__ == "__main__":
    main()
