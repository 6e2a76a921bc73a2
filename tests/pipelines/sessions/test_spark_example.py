"""Does the example do what its text says?"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "spark_etl.py"


@pytest.mark.long  # bradbury demo does the same with Spark, and README.md
@pytest.mark.spark
@pytest.mark.slow
def test_the_spark_example_runs_and_shows_both_results() -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLE), "--orders", "2000"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3_000:]
    _, parquet, topic = run.stdout.replace("in topic", "in Parquet").split("in Parquet")
    for city in ("Lisbon", "Oslo", "Quito", "Hanoi"):
        assert city in parquet
        assert f'"city":"{city}"' in topic
