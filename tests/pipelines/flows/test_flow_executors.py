"""Does a flow with `executors` run on Spark's executors in the Ray cluster that it is told?"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray

import bradbury
from bradbury.tests.support.committed_records import committed_records

pytestmark = [
    pytest.mark.spark,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.long,  # a RayDP session of its own
]

FLOW = """
name: on-executors
executors: 1
sources:
  flights: {topic: executed-in, value: json, schema: "tail string, delay double"}
steps:
  where:
    python: steps.py:with_places
    of: [flights]
targets:
  out: {topic: executed-out, key: tail}
"""
STEPS = '''
from pyspark.sql import functions as f


def with_places(flights):
    """`place`: the process that has made the row."""
    @f.udf("string")
    def place(tail):
        import psutil

        return " ".join(" ".join(each.cmdline()) for each in psutil.Process().parents())

    return flights.where("delay > 1").withColumn("place", place("tail"))
'''


def test_its_rows_are_made_by_executors_and_each_once(ray_cluster: str, tmp_path: Path) -> None:
    assert ray.is_initialized()
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "steps.py").write_text(STEPS)
    with bradbury.local() as cluster:
        with cluster.admin() as admin:
            for topic in ("executed-in", "executed-out"):
                admin.create_topic(topic, partitions=2)
        for first in (0, 4):
            with bradbury.Producer(cluster.bootstrap_servers) as producer:
                for number in range(first, first + 4):
                    flight = {"tail": f"t{number}", "delay": number}
                    producer.send("executed-in", json.dumps(flight), key=f"t{number}")
            words = [
                sys.executable,
                "-m",
                "bradbury.cli",
                "flow",
                "run",
                str(tmp_path / "flow.yaml"),
            ]
            ran = subprocess.run(
                [*words, "--once", "--bootstrap", cluster.bootstrap_servers],
                env={**os.environ, "RAY_ADDRESS": ray_cluster},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=400,
                check=False,
            )
            assert ran.returncode == 0, ran.stderr
        rows = [
            json.loads(each.value or b"{}")
            for each in committed_records(cluster.bootstrap_servers, "executed-out")
        ]
    assert sorted(row["delay"] for row in rows) == [2, 3, 4, 5, 6, 7]
    assert all("raydp" in row["place"].lower() for row in rows), rows
