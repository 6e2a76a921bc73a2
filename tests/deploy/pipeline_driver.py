"""A declarative pipeline whose tasks run on other machines: `spark-pipelines run` at a session on RayDP.

    python pipeline_driver.py --folder DIR

The session has Spark Connect's server as a plugin, and `spark-pipelines` is told where it is. The
pipeline is examples/declarative_pipeline, which lies in `jobs` beside this program: from the topic of flights
to one of those that are late. It runs twice: the second run finds nothing new. What was seen is in
DIR/pipeline.json.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyspark
from jobs.checks import Different, expect
from jobs.ray_jobs import values
from jobs.session import on_other_machines

import bradbury
from bradbury.pipelines.spark.executors import executor_work

TOPIC = "departures"
LATE = "late-flights"
LATER_THAN = 15
RUN_SECONDS = 300
PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
PIPELINE = Path(__file__).parent / "jobs" / "declarative_pipeline"


def written(folder: Path) -> Path:
    """The specification of the pipeline, a copy with a topic and a storage of its own."""
    copy = folder / "declarative_pipeline"
    shutil.copytree(PIPELINE, copy)
    spec, code = copy / "spark-pipeline.yml", copy / "transformations" / "late_flights.py"
    spec.write_text(spec.read_text().replace("file:///tmp/late-flights", f"file://{folder}/kept"))
    code.write_text(code.read_text().replace('"subscribe", "flights"', f'"subscribe", "{TOPIC}"'))
    return spec


def run(spec: Path, port: int) -> None:
    """`spark-pipelines run` of the pipeline. Raises Different."""
    home = Path(pyspark.__file__).parent
    program = str(home / "bin" / "spark-pipelines")
    done = subprocess.run(
        [program, "run", "--remote", f"sc://127.0.0.1:{port}", "--spec", str(spec)],
        cwd=spec.parent,
        env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    if done.returncode:
        raise Different(f"spark-pipelines ended with {done.returncode}: {done.stdout}{done.stderr}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def late(flights: list[bytes]) -> Counter[str]:
    """How many flights of these each aircraft was late with."""
    rows = [json.loads(value) for value in flights]
    return Counter(one["tail"] for one in rows if (one["delay"] or 0) > LATER_THAN)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--replication-factor", type=int, default=-1)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    configs = {
        "spark.plugins": PLUGIN,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    with on_other_machines("pipeline", configs=configs) as (spark, servers):
        with bradbury.Admin(servers) as admin, bradbury.Producer(servers) as producer:
            for topic in (TOPIC, LATE):
                admin.create_topic(topic, 4, given.replication_factor)
            rows = [
                (f"N{number % 300}", json.dumps({"tail": f"N{number % 300}", "delay": number % 60}))
                for number in range(20_000)
            ]
            producer.send_batch(TOPIC, rows).result(60)
        wanted = late(values(servers, TOPIC))
        spec = written(given.folder)
        try:
            for _ in range(2):
                run(spec, port)
                expect("late flights by aircraft", late(values(servers, LATE)), wanted)
        except Different as error:
            print(error, file=sys.stderr)
            return 1
        seen = {
            "late": wanted.total(),
            "driver": spark.conf.get("spark.driver.host"),
            "tasks": {one.host: one.completed_tasks for one in executor_work(spark)},
        }
    (given.folder / "pipeline.json").write_text(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
