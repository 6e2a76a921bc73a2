"""The jobs of Spark besides the demo's, one after another in one session, each checked.

    python spark_jobs.py --folder DIR                      executors on other nodes of the Ray
                                                           cluster that this machine belongs to
    python spark_jobs.py --folder DIR --local --bootstrap HOST:PORT        Spark in this process

They read a topic of JSON objects with `carrier` and `arr_delay`, as the demo leaves it, and what
they wrote is counted and compared with a batch over that topic. The commands are run by their own
entry point, in this process: so they take its session.

    jobs/batch_jobs     `load` to Parquet, Delta and Iceberg, also continuously, `replay` of a table,
                        `flow run`, `mirror` to another cluster and `migrate`
    jobs/read_jobs      a view for SQL, a read near the brokers, a stream with state

DIR: a directory that all nodes see, as a shared file system: executors write tables and state there.
What was seen is in DIR/jobs.json; the first difference ends it with exit code 1. Runs where only
Bradbury is installed, not its tests: `jobs` lies beside it.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs import batch_jobs, read_jobs, scene
from jobs.batch_jobs import BatchJobs
from jobs.checks import Different, seen_by
from jobs.read_jobs import ReadJobs
from jobs.scene import Scene
from jobs.session import in_this_process, on_other_machines
from pyspark import cloudpickle

from bradbury.pipelines.spark.executors import executor_work


def jobs_of(scene: Scene) -> list[Callable[[], str]]:
    """In their order: some read what others have written."""
    batch, read = BatchJobs(scene), ReadJobs(scene)
    return [
        batch.load_parquet,
        batch.load_delta,
        batch.load_iceberg,
        batch.load_continuously,
        batch.replay,
        batch.flow,
        read.topic_view,
        read.read_local,
        read.stateful_stream,
        batch.mirror,
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--bootstrap")
    parser.add_argument("--replication-factor", type=int, default=-1)
    parser.add_argument("--only", help="names of jobs, with commas")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for module in (scene, batch_jobs, read_jobs):
        cloudpickle.register_pickle_by_value(module)  # executors do not have it
    with contextlib.ExitStack() as stack:
        if given.local:
            assert given.bootstrap is not None, "--local needs --bootstrap"
            spark, servers = stack.enter_context(in_this_process(given.bootstrap)), given.bootstrap
        else:
            spark, servers = stack.enter_context(on_other_machines("jobs"))
        place = Scene(spark, servers, given.topic, given.folder, given.replication_factor)
        only = given.only and given.only.split(",")
        try:
            seen: dict[str, Any] = dict(
                seen_by(job for job in jobs_of(place) if not only or job.__name__ in only)
            )
        except Different as error:
            print(error, file=sys.stderr)
            return 1
        seen["driver"] = spark.conf.get("spark.driver.host")
        seen["tasks"] = {one.host: one.completed_tasks for one in executor_work(spark)}
    # Not on stdout, where Spark and Ray print what their processes say.
    (given.folder / "jobs.json").write_text(json.dumps(seen, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
