"""The queries of examples/stateful_streams.py on executors of a Ray cluster: a driver to be killed.

    python -m bradbury.tests.pipelines.streams.driver_on_ray RAY_ADDRESS SERVERS FOLDER

Ends when the queries have read everything, and prints as JSON what `differences` of the example
finds, as its last line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ray
from pyspark import cloudpickle

import bradbury
from bradbury.examples import stateful_streams as streams
from bradbury.pipelines.spark.session import stop_spark


def main(address: str, servers: str, folder: str) -> None:
    cloudpickle.register_pickle_by_value(streams)
    ray.init(address=address, namespace="bradbury", log_to_driver=False)
    spark = bradbury.spark(
        "driver-on-ray",
        executor_cores=2,
        executor_memory="1g",
        short_lived=True,
        bootstrap=servers,
        configs={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.stateStore.providerClass": streams.STATE_STORE,
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    for query in streams.start(spark, Path(folder)):
        query.awaitTermination()
    print(json.dumps(streams.differences(spark, servers)), flush=True)
    stop_spark()


if __name__ == "__main__":
    main(*sys.argv[1:])
