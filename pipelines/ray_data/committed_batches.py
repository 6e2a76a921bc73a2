"""`bradbury.committed_batches`: batches of a continuous Dataset, committed one after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .ray_data_missing import require_ray_data

if TYPE_CHECKING:
    from ray.data import Dataset


def committed_batches(dataset: Dataset, **batching: Any) -> Iterator[Any]:
    """Batches of a continuous Dataset; each is committed when the next one is requested.

        ds = bradbury.read_topic("flights", trigger="continuous", group_id="report")
        for batch in bradbury.committed_batches(ds.map_batches(delays), batch_format="pandas"):
            store(batch)

    A driver that is killed resumes after the last committed batch: a batch that it received later
    is delivered again. To avoid storing it twice, store the columns topic, partition and offset
    with it.

    Args:
        dataset: made by `read_topic(trigger="continuous", group_id=...)`; its rows have the columns
            partition and offset, and topic if there are several topics.
        batching: arguments of `Dataset.iter_batches`: batch_size (None: whole blocks),
            batch_format, ...; prefetch_batches is 0, as the newest batch would otherwise wait for
            the one after it.

    Raises:
        ValueError: the Dataset is not continuous, or has no group; its rows are not in order.
        DataLoss: records were deleted before they were read.
        KafkaError: the commit failed.
        RayDataMissing: the extra [data] is not installed.
    """
    require_ray_data()
    from .continuous_output import iterate_committed

    return iterate_committed(dataset, **batching)
