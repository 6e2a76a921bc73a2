"""Is it shown how far a flow of Ray Data is while a round of it runs; and are null keys taken?"""

from collections.abc import Sequence
from pathlib import Path

import pytest

import bradbury
from bradbury.pipelines.flows.flow_progress import FlowProgress
from bradbury.tests.support.committed_records import committed_records

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STEPS = """
import numpy as np


def keyless(batch):
    return {"key": np.array([None] * len(batch["value"]), dtype=object), "value": batch["value"]}


flow = {
    "name": "TOPIC",
    "sources": {"records": {"topic": "TOPIC"}},
    "steps": {"keyless": {"map_batches": keyless, "options": {"batch_format": "numpy"}}},
    "targets": {"out": {"topic": "TOPIC-out", "key": "key"}},
}
"""


def test_progress_comes_with_each_batch_of_a_round(
    cluster: bradbury.Cluster, topic: str, tmp_path: Path
) -> None:
    with cluster.admin() as admin:
        admin.create_topic(f"{topic}-out", 1)
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        for partition in range(4):
            producer.send_batch(topic, [b"x"] * 10, partition=partition).result(60)
    path = tmp_path / "flow.py"
    path.write_text(STEPS.replace("TOPIC", topic))
    seen: list[FlowProgress] = []

    def on_progress(found: Sequence[FlowProgress]) -> None:
        seen.extend(found)

    bradbury.run_flow(
        path, once=True, bootstrap_servers=cluster.bootstrap_servers, on_progress=on_progress
    )
    assert (seen[0].records, seen[0].behind) == (0, 40)
    in_round = [one for one in seen if not one.batches]
    assert len({one.records for one in in_round}) > 2, seen
    assert all(one.records + (one.behind or 0) == 40 for one in seen if one.records is not None)
    assert [one.per_second > 0 for one in in_round] == [False] + [True] * (len(in_round) - 1)
    assert (seen[-1].records, seen[-1].batches, seen[-1].behind) == (40, 1, 0)
    written = committed_records(cluster.bootstrap_servers, f"{topic}-out")
    assert [(one.key, one.value) for one in written] == [(None, b"x")] * 40
