"""Do records of an aborted transaction stay out of what a flow of Spark makes?"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import bradbury
from bradbury.tests.support.committed_records import committed_records

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]  # long: a session of Spark

FLOW = """
name: aborted
sources:
  orders: {{topic: {orders}, value: json, schema: "n int, who string"}}
  people: {{topic: {people}, value: json, schema: "who string, at string", stream: false}}
  dirty:
    topic: {people}
    value: json
    schema: "who string, at string"
    stream: false
    options: {{Kafka.Isolation.Level: read_uncommitted}}
steps:
  joined: {{sql: "SELECT n, at FROM orders JOIN people USING (who)"}}
  all_people: {{sql: "SELECT at FROM dirty"}}
targets:
  joined: {{of: joined, topic: {joined}}}
  all_people: {{of: all_people, topic: {seen}}}
"""


def test_aborted_records_of_streams_and_of_views_have_no_effect(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    assert SparkSession.getActiveSession() is spark, "the flow makes none"
    names = {name: new_topic() for name in ("orders", "people", "joined", "seen")}
    with bradbury.Producer(bootstrap, transactional_id=f"before-{names['orders']}") as producer:
        for which, end in ((1, producer.abort), (2, producer.commit)):
            producer.begin()
            producer.send(names["orders"], json.dumps({"n": which, "who": "ada"}))
            producer.send(names["people"], json.dumps({"who": "ada", "at": f"home {which}"}))
            producer.flush()
            end()
    (tmp_path / "flow.yaml").write_text(FLOW.format(**names))
    bradbury.run_flow(tmp_path / "flow.yaml", once=True, bootstrap_servers=bootstrap)

    def values(topic: str) -> list[object]:
        return [json.loads(one.value or b"{}") for one in committed_records(bootstrap, topic)]

    assert values(names["joined"]) == [{"n": 2, "at": "home 2"}]
    # An option of the flow's own wins, in whatever case Spark takes it.
    assert values(names["seen"]) == [{"at": "home 1"}, {"at": "home 2"}]
