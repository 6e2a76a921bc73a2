"""What the jobs share: the topic, the session, and the ways to look at both."""

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as f

import bradbury
from bradbury.cli.main import run as run_command

FIELDS = "carrier string, arr_delay int"


class Different(Exception):
    """A job's result is not what a batch over the same topic has. In words."""


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

    def make_topics(self, *names: str, **configs: str) -> None:
        """Topics with as many partitions as the scene's."""
        with bradbury.Admin(self.servers) as admin:
            for name in names:
                admin.create_topic(name, self.partitions, self.replicas, configs=configs)

    def command(self, *words: object, bootstrap: str | None = None) -> Any:
        """`bradbury` with these words and --json; the JSON that it prints.

        By its own entry point, in this process, whose session of Spark it takes.
        """
        line = [*map(str, words), "--json", "--bootstrap", bootstrap or self.servers]
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
        return json_in(out.getvalue())

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


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Different(f"{what}: {found}, not {wanted}")


def parsed(rows: DataFrame) -> DataFrame:
    value = f.from_json(f.col("value").cast("string"), FIELDS)
    return rows.select(value.alias("it")).select("it.*")


def json_in(output: str) -> Any:
    """The JSON in it, which is one piece; Ray prints what its workers print beside it."""
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if line[:1] in ("{", "["))
    found, _ = json.JSONDecoder().raw_decode("\n".join(lines[start:]))
    return found
