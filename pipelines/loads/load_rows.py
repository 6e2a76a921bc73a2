"""Conversion of records to rows of a table.

offset bigint, key binary, value (binary, or what the decoder makes), topic string, partition
int, timestamp timestamp (UTC, microseconds: what Spark, Delta and DuckDB all have),
timestamp_type int, headers map<string, binary>; and `day` or `hour`, by which the table is
partitioned: of the record's timestamp, in UTC ("2026-07-01", "2026-07-01-12")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...clients.wire.cluster_client import ClusterClient
from ..ranges.partition_range import PartitionRange, ReadLimits
from ..ranges.range_reader import RangeReader
from ..ranges.reading_client import load_kernels
from ..ranges.topic_columns import SCHEMA, check_columns, topic_table
from ..ranges.value_decoder import ValueDecoder

TIMESTAMP: Final = pa.timestamp("us", "UTC")
FORMATS: Final = {"day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
ROWS_AT_ONCE: Final = 100_000


class LoadRows:
    """Reader of records as rows of a table. schema: pyarrow.Schema of the table."""

    def __init__(
        self, columns: Sequence[str] | None, decoder: ValueDecoder, partition_by: str | None
    ) -> None:
        """Raises ValueError: an unknown column, or a decoder whose type depends on the values."""
        self._columns = SCHEMA.names if columns is None else check_columns(columns)
        self._decoder = decoder
        self.partition_by = partition_by
        if partition_by is not None and partition_by not in FORMATS:
            raise ValueError(f"partition_by is {partition_by!r}; use {' or '.join(FORMATS)}")
        fields = [pa.field(name, self._type_of(name)) for name in self._columns]
        if partition_by is not None:
            fields.append(pa.field(partition_by, pa.string()))
        self.schema: Any = pa.schema(fields)

    def _type_of(self, name: str) -> Any:
        if name == "timestamp":
            return TIMESTAMP
        raw = SCHEMA.field(name).type
        found = self._decoder.type_of(raw) if name == "value" else raw
        if found is None:
            raise ValueError(
                "a table needs the type of its column value before the first record: use "
                "value_decoder 'raw', 'utf8', 'json', 'avro' or 'protobuf'"
            )
        return found

    def read(
        self, client: ClusterClient, ranges: Sequence[PartitionRange], limits: ReadLimits
    ) -> Iterator[Any]:
        """Record batches of these ranges, partition by partition, offsets ascending.

        Raises:
            DataLoss, UndecodableValue, KafkaError.
        """
        needed = list(dict.fromkeys([*self._columns, "timestamp"]))
        load_kernels(sum(one.size for one in ranges))
        with RangeReader(client, limits) as reader:
            for decoded in reader.read(ranges):
                if len(decoded):
                    table = self._decoder.decode(topic_table(decoded, needed), decoded)
                    yield from self._rows(table).to_batches(max_chunksize=ROWS_AT_ONCE)

    def _rows(self, table: Any) -> Any:
        times = table.column("timestamp")
        arrays = []
        for field in self.schema:
            if field.name == self.partition_by:
                # A record without a timestamp has -1.
                moments = pc.cast(pc.max_element_wise(times, 0), pa.timestamp("ms"))
                arrays.append(pc.strftime(moments, FORMATS[field.name]))
            elif field.name == "timestamp":
                arrays.append(pc.cast(pc.cast(times, pa.timestamp("ms", "UTC")), TIMESTAMP))
            else:
                arrays.append(table.column(field.name))
        return pa.table(arrays, schema=self.schema)


def by_partition(batch: Any, name: str | None) -> Iterable[tuple[str | None, Any]]:
    """Rows of `batch` by value of the partition column, without that column."""
    if name is None:
        yield None, batch
        return
    rest = [each for each in batch.schema.names if each != name]
    column = batch.column(name)
    for value in pc.unique(column).to_pylist():
        yield value, batch.filter(pc.equal(column, value)).select(rest)
