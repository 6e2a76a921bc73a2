"""Is a topic of a flow that is missing said with its part, and what can be done?"""

from collections.abc import Callable

import pytest

from bradbury.pipelines.flows.flow import Flow, FlowFailed, FlowSource, FlowStep, FlowTarget
from bradbury.pipelines.flows.flow_topics import check_topics_of
from bradbury.pipelines.ranges.fetch_options import FetchOptions
from bradbury.pipelines.ranges.reading_client import reading_client


def flow_of(source: FlowSource, target: FlowTarget) -> Flow:
    return Flow(
        name="delays",
        engine="spark",
        sources=(source,),
        steps=(FlowStep(name="late", sql="SELECT * FROM flights"),),
        targets=(target,),
        checkpoint="checkpoints/delays",
    )


def test_a_missing_topic_is_to_be_created(bootstrap: str, new_topic: Callable[..., str]) -> None:
    client = reading_client(bootstrap, FetchOptions())
    one, two = new_topic(1), new_topic(1)
    into_topic = FlowTarget(name="late", of="late", topic=one)
    into_table = FlowTarget(name="late", of="late", table="late")
    nowhere = FlowTarget(name="late", of="late", topic="nowhere")
    from_both = FlowSource(name="flights", topic=f"{one}, {two}")
    for good in (
        flow_of(from_both, into_topic),
        flow_of(from_both, into_table),
        flow_of(FlowSource(name="flights", table="flights"), into_table),
        flow_of(
            FlowSource(
                name="flights", topic="nowhere", options={"kafka.bootstrap.servers": "other:9092"}
            ),
            into_table,
        ),
    ):
        check_topics_of(good, client)
    for bad, part in (
        (flow_of(from_both, nowhere), "targets.late"),
        (
            flow_of(FlowSource(name="flights", topic=f"{one},nowhere"), into_topic),
            "sources.flights",
        ),
    ):
        with pytest.raises(FlowFailed) as refused:
            check_topics_of(bad, client)
        assert str(refused.value) == (
            f"{part}: topic 'nowhere' does not exist; create it with "
            "`bradbury topics create nowhere`"
        )
