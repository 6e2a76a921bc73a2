"""`bradbury.run_flow`: runs a flow to the current ends of its topics, or until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ..ranges.read_arguments import servers_of
from .flow import FlowFailed
from .flow_file import read_flow
from .flow_progress import FlowProgress


def run_flow(
    path: str | Path,
    *,
    once: bool = False,
    bootstrap_servers: str | Sequence[str] | None = None,
    stop: threading.Event | None = None,
    on_progress: Callable[[Sequence[FlowProgress]], None] = lambda progress: None,
) -> list[FlowProgress]:
    """Run the flow that a file describes; returns the progress of each target.

    Run again, it resumes: with Spark from the checkpoint directory, with Ray Data from the offsets
    of its group, which are committed with the records.

    Args:
        path: FLOW.yaml or FLOW.py; see docs/flows.md.
        once: return when all records that existed at the call are processed.
        bootstrap_servers: None: found as by all clients.
        stop: event whose setting ends a flow that is not `once`.
        on_progress: called about twice a second; with Ray Data before and after each round, and
            after each batch that comes out of the steps.

    Raises:
        ValueError: the file is no flow.
        FlowFailed: a part of it has failed; the text names the file and the part.
        NotInRegistry, RegistryFailed: of a source with a schema_registry, as `read_topic`.
        SparkUnavailable, RayDataMissing: the engine of its steps is not available.
        UnknownTopicOrPartition, ConnectionFailed, KafkaError, OSError.
    """
    flow = read_flow(path)
    servers = servers_of(bootstrap_servers)
    stopped = stop or threading.Event()
    try:
        if flow.engine == "ray":
            from .ray_flow import RayFlow

            return RayFlow(flow, servers).run(stopped, on_progress, once=once)
        from .spark_flow import SparkFlow

        with SparkFlow(flow, servers) as running:
            return running.run(stopped, on_progress, once=once)
    except FlowFailed as error:
        raise FlowFailed(f"{path}: {error}") from error.__cause__
