"""Is a target whose topic is missing said with what can be done in a flow?"""

from collections.abc import Callable

import pytest

from bradbury.pipelines.flows.flow import FlowFailed, FlowTarget
from bradbury.pipelines.flows.target_topics import check_topic_of
from bradbury.pipelines.ranges.fetch_options import FetchOptions
from bradbury.pipelines.ranges.reading_client import reading_client


def test_a_missing_topic_is_to_be_created(bootstrap: str, new_topic: Callable[..., str]) -> None:
    client = reading_client(bootstrap, FetchOptions())
    check_topic_of(FlowTarget(name="late", of="late", topic=new_topic(1)), client)
    check_topic_of(FlowTarget(name="late", of="late", table="late"), client)
    with pytest.raises(FlowFailed) as refused:
        check_topic_of(FlowTarget(name="late", of="late", topic="nowhere"), client)
    assert str(refused.value) == (
        "targets.late: topic 'nowhere' does not exist; create it with `bradbury topics create nowhere`"
    )
