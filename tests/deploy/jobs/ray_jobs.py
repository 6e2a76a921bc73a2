"""Jobs of Ray, without Spark: a load by its tasks, and a flow whose steps are functions of batches."""

import json
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import ray
from jobs.checks import Different, expect, make_topics

import bradbury

SCORES = "jobs-scores"
STEPS = '''
import json, ray


def score(batch):
    """The carrier of each flight, its delay in hours, and the node that says so."""
    node = ray.get_runtime_context().get_node_id()
    flights = [json.loads(value) for value in batch["value"]]
    return {
        "key": [one["carrier"] for one in flights],
        "hours": [(one["arr_delay"] or 0) / 60 for one in flights],
        "node": [node] * len(flights),
    }
'''
FLOW = """
name: jobs-scores
sources: {{flights: {{topic: {topic}, value: utf8}}}}
steps: {{score: {{map_batches: "jobs_steps.py:score", options: {{batch_size: 10000}}}}}}
targets: {{scores: {{topic: {scores}, key: key}}}}
"""


class RayJobs:
    """The jobs. Each returns what was seen, and is compared with what a consumer reads."""

    def __init__(self, servers: str, topic: str, folder: Path, replicas: int) -> None:
        self._servers = servers
        self._topic = topic
        self._folder = folder
        make_topics(servers, topic, replicas, SCORES)
        flights = [json.loads(value) for value in values(servers, topic)]
        self._rows = len(flights)
        self._by_carrier = Counter(one["carrier"] for one in flights)

    def ray_load(self) -> str:
        table = self._folder / "loaded-by-ray"
        for records in (self._rows, 0):
            done = bradbury.load(
                self._topic, str(table), engine="ray", tasks=4, bootstrap_servers=self._servers
            )
            expect("the load", done.records, records)
        places = ds.dataset(table, format="parquet").to_table(columns=["partition", "offset"])
        expect("the table's rows", places.num_rows, self._rows)
        distinct = places.group_by(["partition", "offset"]).aggregate([]).num_rows
        expect("the table's places in the topic", distinct, self._rows)
        nodes = nodes_of("run_task")
        if len(nodes) < 2:
            raise Different(f"the tasks of the load ran on {len(nodes)} node")
        return f"{self._rows:,} rows by tasks on {len(nodes)} nodes"

    def ray_flow(self) -> str:
        """Twice: the second run finds nothing new."""
        (self._folder / "jobs_steps.py").write_text(STEPS)
        file = self._folder / "jobs-scores.yaml"
        file.write_text(FLOW.format(topic=self._topic, scores=SCORES))
        for records in (self._rows, 0):
            (done,) = bradbury.run_flow(file, once=True, bootstrap_servers=self._servers)
            expect("records that the flow has read", done.records, records)
        scores = [json.loads(value) for value in values(self._servers, SCORES)]
        expect("scores by carrier", Counter(one["key"] for one in scores), self._by_carrier)
        nodes = Counter(one["node"] for one in scores)
        if len(nodes) < 2:
            raise Different(f"the steps of the flow ran on {len(nodes)} node")
        return f"{nodes.total():,} records by tasks on {len(nodes)} nodes"


def values(servers: str, topic: str) -> list[bytes]:
    """Of all committed records."""
    found: list[bytes] = []
    with bradbury.Consumer(
        topic, bootstrap=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        ends = consumer.end_offsets()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            found += consumer.poll(500).column("value").to_pylist()
    return found


def nodes_of(function: str) -> set[str]:
    """The addresses of the nodes on which Ray has run tasks of this name."""
    return {event["pid"] for event in ray.timeline() if function in str(event["name"])}
