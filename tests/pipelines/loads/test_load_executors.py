"""Do the executors that a load starts have the number and the size that was asked for?"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow.dataset import dataset

import bradbury

pytestmark = [
    pytest.mark.spark,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.long,  # a RayDP session of its own
]

# The command, with a look at the session that it made: what Spark and Ray say of the executors.
PROGRAM = """
import json, sys
from bradbury.pipelines.loads import load_engine
from bradbury.pipelines.spark import job_session


def seen(session):
    import ray
    settings = session.sparkContext.getConf()
    names = ("spark.executor.instances", "spark.executor.cores", "spark.executor.memory")
    taken = ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0)
    print(json.dumps([*map(settings.get, names), session.sparkContext.defaultParallelism, taken]),
          file=sys.stderr)


run = load_engine.SparkEngine.run
load_engine.SparkEngine.run = lambda self, tasks: (
    seen(__import__("pyspark").sql.SparkSession.getActiveSession()), run(self, tasks))[1]

from bradbury.cli.main import main

main()
"""


def test_the_command_starts_executors_of_this_size(ray_cluster: str, tmp_path: Path) -> None:
    to = str(tmp_path / "table")
    with bradbury.local() as cluster:
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            cluster.admin().create_topic("sized", 2)
            producer.send_batch("sized", [b"%d" % number for number in range(1_000)]).result(60)
        words = ["load", "sized", "--to", to, "--value", "utf8", "--engine", "spark"]
        words += ["--executors", "1", "--executor-cores", "2", "--executor-memory", "600m"]
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words, "--bootstrap", cluster.bootstrap_servers],
            env={**os.environ, "RAY_ADDRESS": ray_cluster},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
    told = next(line for line in ran.stderr.splitlines() if line.startswith('["'))
    instances, cores, memory, parallelism, cpus = json.loads(told)
    assert (instances, cores) == ("1", "2")
    assert memory.lower().startswith("600m") or memory == str(600 * 2**20)
    assert parallelism == 2
    assert cpus >= 2
    rows = dataset(to, format="parquet").to_table()
    assert sorted(map(int, rows["value"].to_pylist())) == list(range(1_000))
