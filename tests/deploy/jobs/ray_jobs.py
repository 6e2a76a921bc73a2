"""Jobs of Ray Data: a load by its tasks, and a flow whose steps are functions of batches."""

from collections import Counter

import pyarrow.dataset as ds
import ray
from jobs.scene import Different, Scene, expect

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
steps: {{score: {{map_batches: "jobs_steps.py:score", options: {{batch_size: 20000}}}}}}
targets: {{scores: {{topic: {scores}, key: key}}}}
"""


class RayJobs:
    """The jobs. Each returns what was seen; the session of Spark only compares."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        scene.make_topics(SCORES)

    def ray_load(self) -> str:
        scene, table = self._scene, self._scene.folder / "loaded-by-ray"
        words = ("--to", table, "--engine", "ray", "--tasks", 4)
        for records in (scene.rows, 0):
            said = scene.command("load", scene.topic, *words)
            expect("the load", said["records"], records)
        places = ds.dataset(table, format="parquet").to_table(columns=["partition", "offset"])
        expect("the table's rows", places.num_rows, scene.rows)
        distinct = places.group_by(["partition", "offset"]).aggregate([]).num_rows
        expect("the table's places in the topic", distinct, scene.rows)
        nodes = nodes_of("run_task")
        if len(nodes) < 2:
            raise Different(f"the tasks of the load ran on {len(nodes)} node")
        return f"{scene.rows:,} rows by tasks on {len(nodes)} nodes"

    def ray_flow(self) -> str:
        """Twice: the second run finds nothing new."""
        scene = self._scene
        (scene.folder / "jobs_steps.py").write_text(STEPS)
        file = scene.folder / "jobs-scores.yaml"
        file.write_text(FLOW.format(topic=scene.topic, scores=SCORES))
        for records in (scene.rows, 0):
            said = scene.command("flow", "run", file, "--once")
            expect("records that the flow has read", said["scores"]["records"], records)
        scores = scene.read(SCORES).selectExpr(
            "cast(key AS string) AS key",
            "from_json(cast(value AS string), 'hours double, node string') AS it",
        )
        summed = scores.groupBy("key").agg({"key": "count"}).collect()
        expect("scores by carrier", {row[0]: row[1] for row in summed}, scene.by_carrier())
        nodes = Counter({row[0]: row[1] for row in scores.groupBy("it.node").count().collect()})
        if len(nodes) < 2:
            raise Different(f"the steps of the flow ran on {len(nodes)} node")
        return f"{nodes.total():,} records by tasks on {len(nodes)} nodes"


def nodes_of(function: str) -> set[str]:
    """The addresses of the nodes on which Ray has run tasks of this name."""
    return {event["pid"] for event in ray.timeline() if function in str(event["name"])}
