"""Executors of a session on Ray: resources, placement, and completed tasks."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .tasks.spark_failure import SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from ray.util.placement_group import PlacementGroup

EXECUTOR_CPU: Final = "spark.ray.raydp_spark_executor.actor.resource.cpu"
LEAST_MEMORY: Final = 471_859_200
"""Least memory of an executor in bytes: Spark requires 1.5 times its reserved 300 MiB."""
MEBIBYTE: Final = 1024**2
NODE_ID_LABEL: Final = "ray.io/node-id"
"""Label that Ray gives every node."""

_SIZE: Final = re.compile(r"(\d+)([kmgtp]?)b?")
_UNITS: Final = {"k": 1, "": 2, "m": 2, "g": 3, "t": 4, "p": 5}
"""Powers of 1024. A number without unit is in MiB, as Spark's setting."""


@dataclass(frozen=True, slots=True)
class ExecutorWork:
    """Work done by an executor. host: address of the executor and of its Ray node."""

    host: str
    completed_tasks: int


def memory_bytes(text: str) -> int:
    """Bytes of a size such as "512m" or "1g".

    Raises:
        SparkUnavailable: the text is not a size, or less than Spark accepts.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise SparkUnavailable(
            f"executor_memory={text!r} is not a size: "
            "use a whole number with its unit, '512m' or '1g'"
        )
    size: int = int(match[1]) * 1024 ** _UNITS[match[2]]
    if size < LEAST_MEMORY:
        raise SparkUnavailable(
            f"executor_memory={text!r} is too little: Spark needs {LEAST_MEMORY // MEBIBYTE} MiB "
            "for each executor at least; use '512m' or more"
        )
    return size


def check_room(
    nodes: Iterable[Mapping[str, float]],
    *,
    num_executors: int,
    executor_cores: int,
    executor_memory: str,
    settings: Mapping[str, str],
) -> None:
    """Check that executors fit: RayDP would wait for resources forever, without a message.

    nodes: total resources of each Ray node that is alive.

    Raises:
        SparkUnavailable: they do not fit even if the cluster is idle. One line with the remedy.
    """
    memory = memory_bytes(executor_memory)
    cpus = float(settings.get(EXECUTOR_CPU, executor_cores))
    nodes = list(nodes)
    by_cpus = [_times(node.get("CPU", 0.0), cpus) for node in nodes]
    by_memory = [_times(node.get("memory", 0.0), memory) for node in nodes]
    if sum(by_cpus) < num_executors:
        has = ", ".join(f"{node.get('CPU', 0.0):g}" for node in nodes)
        raise SparkUnavailable(
            f"{num_executors} executors of {cpus:g} CPUs do not fit in this Ray cluster, whose "
            f"nodes have {has}: ask for fewer, add nodes, or let executors count for less, "
            f"from Python with configs={{{EXECUTOR_CPU!r}: '0.1'}}"
        )
    if sum(map(min, by_cpus, by_memory)) < num_executors:
        has = ", ".join(f"{node.get('memory', 0.0) // MEBIBYTE:.0f}" for node in nodes)
        raise SparkUnavailable(
            f"{num_executors} executors of {memory // MEBIBYTE} MiB do not fit in this Ray "
            f"cluster, whose nodes have {has} MiB: ask for fewer or smaller ones, or add nodes"
        )


def _times(has: float, each: float) -> int:
    return int(has / each + 1e-9) if each else 2**31


def on_other_nodes(
    executor_cores: int, executor_memory: str, *, most: int, timeout_s: float = 60
) -> PlacementGroup | None:
    """Reserve resources for an executor on each of up to `most` nodes other than this process's.

    None if no other node has the CPUs and memory, or they are in use. The caller must release the
    group: ray.util.remove_placement_group.
    """
    ray: Any = importlib.import_module("ray")
    here = ray.get_runtime_context().get_node_id()
    bundle = {"CPU": float(executor_cores), "memory": float(memory_bytes(executor_memory))}
    others = [
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"]
        and node["NodeID"] != here
        and all(node["Resources"].get(name, 0.0) >= wanted for name, wanted in bundle.items())
    ][:most]
    if not others:
        return None
    group: PlacementGroup = ray.util.placement_group(
        [bundle] * len(others),
        strategy="SPREAD",
        bundle_label_selector=[{NODE_ID_LABEL: node_id} for node_id in others],
    )
    if not group.wait(timeout_s):
        ray.util.remove_placement_group(group)
        return None
    return group


def executors_are_here(session: SparkSession) -> bool:
    """Whether all executors of the session are on the driver's machine, and so share its disk."""
    here = session.conf.get("spark.driver.host")
    return all(work.host == here for work in executor_work(session))


def executor_work(session: SparkSession) -> list[ExecutorWork]:
    """Work that each executor of the session has done so far, also of ended ones."""
    store: Any = session.sparkContext._jsc.sc().statusStore()
    executors = store.executorList(False)
    found = []
    for number in range(executors.size()):
        one = executors.apply(number)
        if one.id() != "driver":
            host, _, _ = one.hostPort().rpartition(":")
            found.append(ExecutorWork(host, one.completedTasks()))
    return sorted(found, key=lambda work: work.host)
