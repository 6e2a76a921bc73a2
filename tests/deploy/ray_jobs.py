"""The jobs of Ray Data, without Spark: a load and a flow, by tasks on several nodes, each checked.

    python ray_jobs.py --folder DIR

Like spark_jobs.py, on the Ray cluster that this machine belongs to; what was seen is in
DIR/ray-jobs.json. DIR: a directory that all nodes see.
"""

import argparse
import json
import sys
from pathlib import Path

import ray
from jobs.checks import Different, seen_by
from jobs.ray_jobs import RayJobs

import bradbury


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--replication-factor", type=int, default=-1)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    servers = bradbury.connect().bootstrap_servers
    try:
        jobs = RayJobs(servers, given.topic, given.folder, given.replication_factor)
        seen = seen_by([jobs.ray_load, jobs.ray_flow])
    except Different as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        ray.shutdown()
    (given.folder / "ray-jobs.json").write_text(json.dumps(seen, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
