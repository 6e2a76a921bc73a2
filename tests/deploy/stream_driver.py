"""The driver of six streams with state, whose executors are on other machines: it is to be killed.

    python stream_driver.py --folder DIR

The queries are those of examples/stateful_streams.py, which lies in `jobs` beside this program: windows with a
watermark, two streams joined, duplicates dropped within the watermark, transformWithState,
foreachBatch, and totals kept up to date in a compacted topic. Run again, they go on by their
checkpoints in DIR. When they have read everything, each topic is compared with what a batch
computes of the same input; what was seen is in DIR/streams.json.
"""

import argparse
import json
import sys
from pathlib import Path

from jobs import stateful_streams as streams
from jobs.session import on_other_machines
from pyspark import cloudpickle

from bradbury.pipelines.spark.executors import executor_work

MOST_RECORDS = {"clicks": 150, "orders": 13, "payments": 9}
"""Of a batch, by topic: 25 batches for each query, more than the example has, for more deaths."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    folder: Path = parser.parse_args().folder
    cloudpickle.register_pickle_by_value(streams)
    streams.PER_BATCH |= MOST_RECORDS
    configs = {"spark.sql.streaming.stateStore.providerClass": streams.STATE_STORE}
    with on_other_machines("streams", executor_cores=2, configs=configs) as (spark, servers):
        for query in streams.start(spark, folder / "checkpoints"):
            query.awaitTermination()
        seen = {
            "differences": streams.differences(spark, servers),
            "tasks": [(one.host, one.completed_tasks) for one in executor_work(spark)],
        }
    (folder / "streams.json").write_text(json.dumps(seen, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
