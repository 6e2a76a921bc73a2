"""A small ETL with Spark: JSON out of a topic, an average, into Parquet and into another topic.

    python examples/spark_etl.py                          # a cluster in this process, local Spark
    python examples/spark_etl.py --bootstrap host:9092    # a cluster that runs already
    python examples/spark_etl.py --ray                    # brokers, executors on a Ray cluster
    started here

Needs Java 17 or 21 and the extra of Spark: `pip install -e '.[spark]'` in a checkout.
"""

import argparse
import contextlib
import json
import random
import tempfile
from pathlib import Path

import bradbury
from bradbury.pipelines.spark.session import SparkUnavailable, local_session, stop_spark
from bradbury.protocol.errors import TopicAlreadyExists


def produce_orders(bootstrap: str, count: int) -> None:
    """Produce orders as JSON, keyed by city."""
    with bradbury.Admin(bootstrap) as admin:
        for topic in ("orders", "spending"):
            with contextlib.suppress(TopicAlreadyExists):
                admin.create_topic(topic, partitions=4)
    cities = ("Lisbon", "Oslo", "Quito", "Hanoi")
    with bradbury.Producer(bootstrap) as producer:
        for number in range(count):
            city = random.choice(cities)
            order = {"id": number, "city": city, "amount": round(random.uniform(1, 100), 2)}
            producer.send("orders", key=city, value=json.dumps(order))


def run(spark, folder: Path) -> None:
    """Extract, transform, load; then print both results."""
    from pyspark.sql import functions as f

    orders = (
        spark.read.format("bradbury")
        .option("subscribe", "orders")
        .load()
        .select(
            f.from_json(f.col("value").cast("string"), "id long, city string, amount double").alias(
                "order"
            )
        )
        .select("order.*")
    )
    spending = orders.groupBy("city").agg(
        f.count("*").alias("orders"), f.round(f.avg("amount"), 2).alias("average")
    )
    spending.write.mode("overwrite").parquet(str(folder / "spending"))
    (
        spark.read.parquet(str(folder / "spending"))
        .selectExpr("city as key", "to_json(struct(*)) as value")
        .write.format("bradbury")
        .option("topic", "spending")
        .mode("append")
        .save()
    )
    print("in Parquet:")
    spark.read.parquet(str(folder / "spending")).orderBy("city").show()
    print("in topic 'spending':")
    written = spark.read.format("bradbury").option("subscribe", "spending").load()
    written.selectExpr(
        "cast(key as string) as key", "partition", "offset", "cast(value as string) as value"
    ).orderBy("key").show(truncate=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", help="host:port of a running cluster")
    parser.add_argument(
        "--ray", action="store_true", help="run brokers and executors on an embedded Ray"
    )
    parser.add_argument("--orders", type=int, default=20_000)
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bradbury-etl-")))
        if arguments.ray:
            cluster = bradbury.up(str(folder / "data"), port=0, address="local")
            stack.callback(cluster.down)
            bootstrap = cluster.bootstrap_servers
        else:
            bootstrap = (
                arguments.bootstrap or stack.enter_context(bradbury.local()).bootstrap_servers
            )
        produce_orders(bootstrap, arguments.orders)
        try:
            if arguments.ray:
                spark = bradbury.spark("spark-etl", bootstrap=bootstrap)
                stack.callback(stop_spark)
            else:
                spark = local_session("spark-etl", bootstrap=bootstrap)
                stack.callback(spark.stop)
        except SparkUnavailable as error:
            raise SystemExit(str(error)) from None
        spark.sparkContext.setLogLevel("ERROR")
        run(spark, folder)


if __name__ == "__main__":
    main()
