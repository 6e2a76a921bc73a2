"""What the jobs of Spark share: the topic, the session, and the ways to look at both."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jobs.checks import command, make_topics
from pyspark.sql import DataFrame, SparkSession, functions as f

import bradbury

FIELDS = "carrier string, arr_delay int"


@dataclass
class Scene:
    """A topic of JSON objects with FIELDS, and where tables and checkpoints go."""

    spark: SparkSession
    servers: str
    topic: str
    folder: Path
    replicas: int

    @cached_property
    def rows(self) -> int:
        return self.read(self.topic).count()

    @cached_property
    def partitions(self) -> int:
        with bradbury.Admin(self.servers) as admin:
            return len(admin.describe_topics([self.topic])[0].partitions)

    def make_topics(self, *names: str) -> None:
        make_topics(self.servers, self.topic, self.replicas, *names)

    def command(self, *words: object, bootstrap: str | None = None) -> Any:
        """`bradbury` with these words, in the session of Spark."""
        return command(bootstrap or self.servers, *words)

    def read(self, topic: str, servers: str | None = None) -> DataFrame:
        return (
            self.spark.read.format("bradbury")
            .option("kafka.bootstrap.servers", servers or self.servers)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .load()
        )

    def flights(self) -> DataFrame:
        return parsed(self.read(self.topic))

    def by_carrier(self) -> dict[str, int]:
        """How many flights each carrier has, as a batch counts them."""
        counted = self.flights().groupBy("carrier").count()
        return {row["carrier"]: row["count"] for row in counted.collect()}

    def committed(self, topic: str) -> list[tuple[str, str]]:
        """Key and value of all committed records, each partition in order."""
        rows = self.read(topic).orderBy("partition", "offset")
        chosen = rows.selectExpr("cast(key AS string) AS key", "cast(value AS string) AS value")
        return [(row["key"], row["value"]) for row in chosen.collect()]

    def contents(self, topic: str) -> dict[int, tuple[int, int]]:
        """Of each partition the number of records, and a sum of what their keys and values are."""
        one = f.xxhash64("key", "value").cast("decimal(38, 0)")
        summed = self.read(topic).groupBy("partition").agg(f.count("*"), f.sum(one))
        return {row[0]: (row[1], int(row[2])) for row in summed.collect()}


def parsed(rows: DataFrame) -> DataFrame:
    value = f.from_json(f.col("value").cast("string"), FIELDS)
    return rows.select(value.alias("it")).select("it.*")
