"""Exactly once: output and position are stored together, so neither is ever ahead of the other.

    python examples/exactly_once.py

Two stores do it: a database, with output and position in one transaction, and Parquet files, where
the file's name is the position. Each skips rows that it has already; the offsets that the group
commits only say where to start. Now and then a consumer actor dies by kill -9, right before or
right after it has stored a batch, and in the end every number is there once. Starts a small
embedded Ray and ends it again.
"""

import os
import signal
import sqlite3
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import bradbury

RECORDS = 20_000
DEATHS = 4


class Mortal:
    """Dies by kill -9 in the third call of a process, DEATHS times in all; half at its end."""

    def __init__(self, folder: str) -> None:
        self.deaths = Path(folder)
        self.calls = 0

    def maybe_die(self, *, stored: bool) -> None:
        self.calls += not stored
        deaths = len(list(self.deaths.glob("death-*")))
        if self.calls == 3 and deaths < DEATHS and stored == bool(deaths % 2):
            (self.deaths / f"death-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)


def by_partition(table: pa.Table) -> list[tuple[str, pa.Table]]:
    """Rows of a batch by partition; a batch may have rows of several."""
    names = pc.binary_join_element_wise(
        table.column("topic"), table.column("partition").cast(pa.string()), "-"
    )
    return [(name, table.filter(pc.equal(names, name))) for name in names.unique().to_pylist()]


class Database(Mortal):
    """Store that writes rows and the offset after them in one transaction."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.connection = sqlite3.connect(f"{folder}/store.db", isolation_level=None, timeout=60)
        self.connection.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER)")
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS positions (part TEXT PRIMARY KEY, position INTEGER)"
        )

    def __call__(self, table: pa.Table) -> None:
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")  # from here on no other process writes
        try:
            for part, rows in by_partition(table):
                found = execute("SELECT position FROM positions WHERE part = ?", [part]).fetchone()
                new = rows.filter(pc.greater_equal(rows.column("offset"), found[0] if found else 0))
                if new.num_rows:
                    numbers = [(int(value),) for value in new.column("value").to_pylist()]
                    self.connection.executemany("INSERT INTO numbers VALUES (?)", numbers)
                    after = new.column("offset")[-1].as_py() + 1
                    execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", [part, after])
            self.maybe_die(stored=False)
            execute("COMMIT")
        except BaseException:
            execute("ROLLBACK")
            raise
        self.maybe_die(stored=True)

    @staticmethod
    def numbers(folder: str) -> list[int]:
        rows = sqlite3.connect(f"{folder}/store.db").execute("SELECT number FROM numbers")
        return [number for (number,) in rows]


class Files(Mortal):
    """Store of a file for each batch and partition, named by first offset, written atomically."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.folder = Path(folder)

    def __call__(self, table: pa.Table) -> None:
        for part, rows in by_partition(table):
            while True:
                new = rows.filter(pc.greater_equal(rows.column("offset"), self.position(part)))
                if not new.num_rows or self.write(part, new):
                    break  # otherwise another process was first: check again which rows are new
        self.maybe_die(stored=True)

    def write(self, part: str, rows: pa.Table) -> bool:
        first = rows.column("offset")[0].as_py()
        temporary = self.folder / f"{part}.{os.getpid()}.tmp"
        pq.write_table(rows.select(["offset", "value"]), temporary)
        self.maybe_die(stored=False)
        try:
            os.link(temporary, self.folder / f"{part}-{first:020}.parquet")
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        return True

    def position(self, part: str) -> int:
        """Offset after the last row of the last file."""
        last = max(self.folder.glob(f"{part}-*.parquet"), default=None)
        if last is None:
            return 0
        after: int = pq.read_table(last, columns=["offset"]).column("offset")[-1].as_py() + 1
        return after

    @staticmethod
    def numbers(folder: str) -> list[int]:
        return [
            int(value)
            for path in Path(folder).glob("*.parquet")
            for value in pq.read_table(path).column("value").to_pylist()
        ]


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        bradbury.up(folder, port=0, address="local") as up,
    ):
        with up.admin() as admin:
            admin.create_topic("numbers", partitions=4)
        with bradbury.Producer() as producer:
            producer.send_batch("numbers", [str(number) for number in range(RECORDS)]).result()
        for store in (Database, Files):
            name = store.__name__.lower()
            output = f"{folder}/{name}"
            Path(output).mkdir()
            with bradbury.ConsumerGroup(
                "numbers", name, actors=2, batch_records=200, auto_offset_reset="earliest"
            ) as group:
                group.for_each(store, fn_constructor_args=[output], stop_at_end=True).wait()
            numbers = store.numbers(output)
            twice = len(numbers) - len(set(numbers))
            missing = RECORDS - len(set(numbers))
            deaths = len(list(Path(output).glob("death-*")))
            print(f"{name}: {deaths} actors killed, missing: {missing}, twice: {twice}")


if __name__ == "__main__":
    main()
