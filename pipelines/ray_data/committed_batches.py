"""`bradbury.committed_batches`: what comes out of a continuous Dataset, and then its offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .ray_data_missing import require_ray_data

if TYPE_CHECKING:
    from ray.data import Dataset


def committed_batches(dataset: Dataset, **batching: Any) -> Iterator[Any]:
    """The batches of a continuous Dataset; each is committed when the next one is asked for.

        ds = bradbury.read_topic("flights", trigger="continuous", group_id="report")
        for batch in bradbury.committed_batches(ds.map_batches(delays), batch_format="pandas"):
            store(batch)

    A driver that is killed goes on behind the last batch that was committed: a batch that it had
    before that comes again. Who must not store it twice stores the columns topic, partition and
    offset with it.

    Args:
        dataset: of `read_topic(trigger="continuous", group_id=...)`; its rows have the columns
            partition and offset, and topic if there are several.
        batching: of `Dataset.iter_batches`: batch_size (None: as they come), batch_format, ...;
            prefetch_batches is 0, or the newest batch would wait for the one after it.

    Raises:
        ValueError: the Dataset is not continuous, or has no group; its rows are not in order.
        DataLoss: records were deleted before they were read.
        KafkaError: the brokers do not commit.
        RayDataMissing: the extra [data] is not installed.
    """
    require_ray_data()
    from .continuous_output import iterate_committed

    return iterate_committed(dataset, **batching)
