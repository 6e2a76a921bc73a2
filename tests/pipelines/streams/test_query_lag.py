"""Is the lag of a query taken from its progress as Spark reports it? Of a real query: test_progress_of_a_query."""

import json
from typing import Any

from bradbury.pipelines.spark.query_lag import offsets_behind


def progress(*sources: tuple[Any, Any]) -> dict[str, Any]:
    return {"sources": [{"latestOffset": one, "endOffset": other} for one, other in sources]}


def test_each_source_has_the_lag_of_its_partitions() -> None:
    latest = {"t": {"0": 50, "1": 7, "2": 4}, "u": {"0": 1}}
    done = {"t": {"0": 20, "1": 7}, "u": {"0": 3}, "@topics": {"t": "an id"}}
    one = {("t", 0): 30, ("t", 1): 0, ("t", 2): 4, ("u", 0): 0}
    assert offsets_behind(progress((latest, done))) == [one]
    as_text = (json.dumps(latest), json.dumps(done))
    assert offsets_behind(progress(as_text, (latest, latest))) == [one, dict.fromkeys(one, 0)]


def test_what_is_not_known_is_none() -> None:
    known = {"t": {"0": 5}}
    assert offsets_behind(None) == []
    assert offsets_behind(progress((None, known), (known, None))) == [None, None]
    assert offsets_behind(progress(("2026-07-01T12:00", "no JSON"), ("7", "5"))) == [None, None]
