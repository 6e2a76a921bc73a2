"""A table of any format that records are loaded into, and records that say which they are."""

import time
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.catalog import load_catalog

import bradbury

START_MS = (time.time_ns() // 86_400_000_000_000 - 4) * 86_400_000
"""A midnight that retention spares."""
NAMED = "plant.turbines"


def send(bootstrap: str, topic: str, start: int, end: int, partitions: int) -> None:
    """A record a minute."""
    with bradbury.Producer(bootstrap) as producer:
        for partition in range(partitions):
            numbers = range(start + partition, end, partitions)
            table = pa.table(
                {
                    "value": [str(number) for number in numbers],
                    "timestamp": [START_MS + number * 60_000 for number in numbers],
                }
            )
            producer.send_batch(topic, table, partition=partition).result(60)


class Table:
    """Of one format, with the arguments that `load` and `rows` need."""

    def __init__(self, table_format: str, folder: Path, catalog: dict[str, str]) -> None:
        self.format = table_format
        self.to = NAMED if table_format == "iceberg" else str(folder / "table")
        self.options: dict[str, Any] = {"format": table_format, "value_decoder": "utf8"}
        if table_format == "iceberg":
            self.options["catalog_properties"] = catalog

    def rows(self) -> pa.Table:
        if self.format == "iceberg":
            found: pa.Table = self.iceberg().scan().to_arrow()
            return found
        if self.format == "delta":
            return pa.table(deltalake.DeltaTable(self.to).to_pyarrow_table())
        return ds.dataset(self.to, format="parquet", partitioning="hive").to_table()

    def files(self) -> int:
        """How many the rows are in, as readers of the format see it."""
        if self.format == "iceberg":
            return len(list(self.iceberg().scan().plan_files()))
        if self.format == "delta":
            return len(deltalake.DeltaTable(self.to).file_uris())
        return len([one for one in Path(self.to).rglob("*.parquet") if "_bradbury" not in str(one)])

    def iceberg(self) -> Any:
        catalog = load_catalog("default", **self.options["catalog_properties"])
        return catalog.load_table(NAMED)

    def values(self) -> list[int]:
        return sorted(int(value) for value in self.rows()["value"].to_pylist())
