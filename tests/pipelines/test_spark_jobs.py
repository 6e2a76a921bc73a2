"""Do loads, a replay, a flow, reads, a mirror and a stream with state agree with a batch, in one session?

The program that `make deploy-test` runs on a `ray up` cluster, here with Spark in its own process.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import bradbury
from bradbury.cli.demo.flights import load_flights

PROGRAM = Path(__file__).parents[1] / "deploy" / "spark_jobs.py"
ROWS = 20_000

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]


def test_each_job_has_what_a_batch_has(tmp_path: Path) -> None:
    with bradbury.local() as cluster:
        with cluster.admin() as admin, bradbury.Producer(cluster.bootstrap_servers) as producer:
            admin.create_topic("flights", 4)
            # Without their timestamps, by which retention would delete them.
            records = load_flights(ROWS).records.select(["key", "value"])
            producer.send_batch("flights", records).result(60)
        words = ["--local", "--bootstrap", cluster.bootstrap_servers, "--folder", str(tmp_path)]
        done = subprocess.run(
            [sys.executable, str(PROGRAM), *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads((tmp_path / "jobs.json").read_text())
    assert seen["load_parquet"].startswith("20,000 rows"), seen
    assert seen["load_iceberg"].startswith("20,000 rows"), seen
    assert seen["load_continuously"].startswith("20,000 rows in "), seen
    assert seen["replay"].startswith("20,000 records"), seen
    assert "carriers by SQL" in seen["topic_view"], seen
    assert "totals of 20,000 records" in seen["stateful_stream"], seen
