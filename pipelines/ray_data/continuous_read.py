"""Source of Ray Data without an end.

Ray Data reads a list of tasks that it requests once. Here the list grows: the operator below hands
out a task for each piece of the logs while downstream operators have room. The rest is Ray Data's
own: map operators, actors, back-pressure, retries and order.

Invariants:
    A task reads ranges with fixed ends: run again, it has the same records.
    At most WAITING_TASKS_PER_CPU tasks per CPU wait to run; further records stay in the log.
    Blocks are output in the order of the tasks (preserve_order), and so are a partition's records.

Source: ray/data/_internal/planner/plan_read_op.py, execution/operators/input_data_buffer.py and
the loop of execution/streaming_executor.py (Ray 2.60); these are not public, and Ray is pinned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import ray
from ray.data import DataContext, Dataset
from ray.data._internal.compute import ComputeStrategy, TaskPoolStrategy
from ray.data._internal.execution.interfaces import (
    BlockEntry,
    PhysicalOperator,
    RefBundle,
    TaskContext,
)
from ray.data._internal.execution.operators.map_operator import MapOperator
from ray.data._internal.execution.operators.map_transformer import (
    BlockMapTransformFn,
    MapTransformer,
)
from ray.data._internal.logical.interfaces import LogicalOperator, LogicalPlan, SourceOperator
from ray.data._internal.logical.operators import AbstractMap, AbstractOneToOne
from ray.data._internal.output_buffer import OutputBlockSizeOption
from ray.data._internal.planner.planner import Planner
from ray.data._internal.stats import DatasetStats
from ray.data.block import Block, BlockMetadata
from ray.data.datasource import ReadTask

from ..ranges.partition_range import PartitionRange
from .topic_datasource import RangesRead, TopicRead, metadata_of, schema_of
from .topic_follower import Followed, TopicFollower

WAITING_TASKS_PER_CPU: Final = 2
IDLE_S: Final = 0.05
"""Seconds that the loop of an execution sleeps when nothing runs. A piece wakes it."""
TASK_BYTES: Final = 100_000
"""Size that Ray Data assumes for a waiting task, in bytes; they are smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousTopics:
    """Topics and columns that a continuous Dataset reads."""

    read: TopicRead
    columns: tuple[str, ...]
    followed: Followed

    def task(self, ranges: list[PartitionRange], topic_ids: Mapping[str, str]) -> ReadTask:
        return ReadTask(
            RangesRead(replace(self.read, topic_ids=topic_ids), tuple(ranges), self.columns),
            metadata_of(self.read, ranges),
            schema=schema_of(self.read, self.columns),
        )


class ContinuousRead(AbstractMap, SourceOperator):
    """Logical operator of a continuous read."""

    def __init__(
        self,
        topics: ContinuousTopics,
        ray_remote_args: Mapping[str, Any],
        concurrency: int | None,
    ) -> None:
        super().__init__(
            name="ReadTopicContinuously",
            input_dependencies=[],
            can_modify_num_rows=True,
            ray_remote_args=dict(ray_remote_args),
            compute=TaskPoolStrategy(size=concurrency),
        )
        object.__setattr__(self, "topics", topics)  # Ray's operators are frozen

    topics: ContinuousTopics
    compute: ComputeStrategy
    ray_remote_args: dict[str, Any]

    def output_data(self) -> None:
        return None

    def estimated_num_outputs(self) -> None:
        return None

    def infer_metadata(self) -> BlockMetadata:
        return BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)

    def infer_schema(self) -> Any:
        return schema_of(self.topics.read, self.topics.columns)


class ContinuousInput(PhysicalOperator):
    """Physical operator that hands out tasks as records arrive."""

    def __init__(self, data_context: DataContext, topics: ContinuousTopics) -> None:
        super().__init__("Input", [], data_context)
        self._topics = topics
        self._follower: TopicFollower | None = None
        self._handed_out = 0
        self._most_waiting = 0

    def start(self, options: Any, block_ref_counter: Any) -> None:
        super().start(options, block_ref_counter)
        cpus = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
        self._most_waiting = max(1, WAITING_TASKS_PER_CPU * cpus)
        self._follower = TopicFollower(self._topics.followed)

    def has_next(self) -> bool:
        if self._follower is None or self._is_execution_marked_finished:
            return False
        if self._waiting() >= self._most_waiting:
            return False
        self._follower.want()
        return self._follower.has_piece

    def _waiting(self) -> int:
        """Number of tasks that downstream operators have not started."""
        begun = [each.metrics.num_inputs_received for each in self.output_dependencies]
        return self._handed_out - min(begun, default=0)

    def _get_next_inner(self) -> RefBundle:
        assert self._follower is not None
        task = self._topics.task(self._follower.take(), self._follower.topic_ids)
        metadata = BlockMetadata(
            num_rows=1, size_bytes=TASK_BYTES, exec_stats=None, input_files=None
        )
        reference: Any = ray.put(task)
        bundle = RefBundle((BlockEntry(reference, metadata),), owns_blocks=False, schema=None)
        self._handed_out += 1
        self._metrics.on_input_received(bundle)
        return bundle

    def refresh_state(self) -> None:
        """Called in each turn of the loop; sleeps if no task runs, as nothing else waits then."""
        super().refresh_state()  # type: ignore[no-untyped-call]
        if self._follower is not None and not self._is_something_running():
            self._follower.wait(IDLE_S)

    def _is_something_running(self) -> bool:
        behind = list(self.output_dependencies)
        while behind:
            operator = behind.pop()
            if operator.num_active_tasks() or operator.has_next():
                return True
            behind += operator.output_dependencies
        return False

    def has_execution_finished(self) -> bool:
        return bool(self._is_execution_marked_finished)

    def mark_execution_finished(self) -> None:
        super().mark_execution_finished()  # type: ignore[no-untyped-call]
        self._end()

    def _do_shutdown(self, force: bool) -> None:
        self._end()
        super()._do_shutdown(force)

    def _end(self) -> None:
        if self._follower is not None:
            self._follower.close()

    def get_stats(self) -> dict[str, Any]:
        return {}

    def extra_resource_usage(self) -> Any:
        return None

    def _add_input_inner(self, refs: RefBundle, input_index: int) -> None:
        raise ValueError("a source has no inputs")


def _plan(
    operator: ContinuousRead, _: list[PhysicalOperator], data_context: DataContext
) -> PhysicalOperator:
    def read(tasks: Iterable[ReadTask], __: TaskContext) -> Iterable[Block]:
        for task in tasks:
            yield from task()

    transform = BlockMapTransformFn(
        read,
        output_block_size_option=OutputBlockSizeOption.of(
            target_max_block_size=data_context.target_max_block_size
        ),
    )
    return MapOperator.create(
        MapTransformer([transform]),
        ContinuousInput(data_context, operator.topics),
        data_context,
        name=operator.name,
        compute_strategy=operator.compute,
        ray_remote_args=operator.ray_remote_args,
        isolate_workers=data_context.isolate_read_workers,
    )


Planner._DEFAULT_PLAN_FNS[ContinuousRead] = _plan


def continuous_dataset(
    topics: ContinuousTopics, ray_remote_args: Mapping[str, Any], concurrency: int | None
) -> Dataset:
    context = DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    context.execution_no_progress_timeout_s = -1  # an hour without records is not an error
    plan = LogicalPlan(ContinuousRead(topics, ray_remote_args, concurrency), context)
    return Dataset(plan, context, DatasetStats(metadata={}, parent=None))


def continuous_source(dataset: Dataset) -> ContinuousTopics | None:
    """Topics that a Dataset reads continuously; None: the Dataset is not continuous.

    Raises:
        ValueError: a downstream operator needs all rows, or mixes them with others.
    """
    operators: list[LogicalOperator] = list(dataset._logical_plan.dag.post_order_iter())
    sources = [each for each in operators if isinstance(each, ContinuousRead)]
    if not sources:
        return None
    for each in operators:
        if not isinstance(each, AbstractOneToOne):
            raise ValueError(  # noqa: TRY004 -- the type of the argument is right
                f"{each.name} cannot be applied to a continuous Dataset whose offsets are "
                "committed: it needs all rows, or mixes them with others; use map_batches, map, "
                "filter and columns"
            )
    return sources[0].topics
