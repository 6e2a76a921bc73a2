"""A consumer group in one handle: members that share partitions, and workers that process.

    python examples/consumer_group.py

One member feeds four workers, more than the topic has partitions; records of one key stay in order.
Two more workers come while it runs: no rebalance, nothing lost. Starts a small embedded Ray and
ends it again.
"""

import tempfile

import pyarrow as pa
from rich import print as show

import bradbury

RECORDS = 100_000


class Averages:
    """Averages, constructed once in each worker, as are models or connections."""

    def __init__(self) -> None:
        self.sums: dict[bytes, tuple[int, int]] = {}

    def __call__(self, table: pa.Table) -> dict[bytes, float]:
        for key, value in zip(
            table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True
        ):
            count, total = self.sums.get(key, (0, 0))
            self.sums[key] = count + 1, total + int(value)
        return {key: total / count for key, (count, total) in self.sums.items()}


with tempfile.TemporaryDirectory() as folder, bradbury.up(folder, port=0, address="local") as up:
    with up.admin() as admin:
        admin.create_topic("readings", partitions=2)
    readings = [(f"sensor-{n % 50}", str(n % 100)) for n in range(RECORDS)]
    with bradbury.Producer() as producer:
        producer.send_batch("readings", readings).result()

    with bradbury.ConsumerGroup(
        "readings",
        "averages",
        actors=1,
        workers=4,
        order="key",
        batch_records=2_000,
        auto_offset_reset="earliest",
    ) as group:
        sensors = set()
        for number, averages in enumerate(group.map(Averages, stop_at_end=True)):
            sensors.update(averages)
            if number == 5:
                group.resize(workers=6)
        status = group.status()
        show(status)
    print(f"sensors: {len(sensors)}")
    print(f"records: {sum(member.records for member in status.members):,}, lag: {status.lag}")
