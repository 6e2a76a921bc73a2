"""Does a Spark Declarative Pipeline, as the example has it, read a topic and write one, once each?"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bradbury
from bradbury.pipelines.spark.session import import_paths
from bradbury.tests.support.committed_records import committed_records

EXAMPLE = Path(bradbury.__file__).parent / "examples" / "declarative_pipeline"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.deep  # two runs of spark-pipelines, each with a JVM of Spark Connect
def test_the_example_writes_each_late_flight_once_and_goes_on(
    bootstrap: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(2), new_topic(2)
    pipeline = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, pipeline)
    spec, code = pipeline / "spark-pipeline.yml", pipeline / "transformations" / "late_flights.py"
    spec.write_text(spec.read_text().replace("file:///tmp/late-flights", f"file://{tmp_path}/kept"))
    text = code.read_text().replace('"topic": "late-flights"', f'"topic": "{target}"')
    code.write_text(text.replace('"subscribe", "flights"', f'"subscribe", "{source}"'))
    programs = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "BRADBURY_BOOTSTRAP": bootstrap,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(import_paths()),  # of a wheel: empty
    }
    for start, end in ((0, 30), (30, 45)):
        with bradbury.Producer(bootstrap) as producer:
            for number in range(start, end):
                flight = {"tail": f"t{number % 3}", "delay": number}
                producer.send(source, json.dumps(flight), key=flight["tail"])
        done = subprocess.run(
            ["spark-pipelines", "run", "--spec", str(spec)],
            cwd=pipeline,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = [json.loads(each.value) for each in committed_records(bootstrap, target)]
        assert sorted(each["delay"] for each in found) == list(range(16, end))
