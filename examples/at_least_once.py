"""At least once: a batch is committed when it is processed. Nothing is lost, some is repeated.

    python examples/at_least_once.py

Two consumer actors note every number. Now and then one of them dies by kill -9 right after it has
processed a batch, and before that is committed. Ray restarts it, and it resumes at the last
commit: that batch is processed again. Starts a small embedded Ray and ends it again.
"""

import os
import signal
import tempfile
from pathlib import Path

import pyarrow as pa

import bradbury

RECORDS = 20_000
DEATHS = 4


class Note:
    """Appends each number to a file. Dies, now and then, after it has done so."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.calls = 0

    def __call__(self, table: pa.Table) -> None:
        numbers = [int(value) for value in table.column("value").to_pylist()]
        self.calls += 1
        self.write(numbers)
        self.maybe_die()

    def write(self, numbers: list[int]) -> None:
        with (self.folder / f"notes-{os.getpid()}").open("a") as file:
            file.write("".join(f"{number}\n" for number in numbers))

    def maybe_die(self) -> None:
        """Die by kill -9, in the third call of a process, DEATHS times in all."""
        if self.calls == 3 and len(list(self.folder.glob("death-*"))) < DEATHS:
            (self.folder / f"death-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)


with tempfile.TemporaryDirectory() as folder, bradbury.up(folder, port=0, address="local") as up:
    output = Path(folder, "output")
    output.mkdir()
    with up.admin() as admin:
        admin.create_topic("numbers", partitions=4)
    with bradbury.Producer() as producer:
        producer.send_batch("numbers", [str(number) for number in range(RECORDS)]).result()

    with bradbury.ConsumerGroup(
        "numbers",
        "notes",
        actors=2,
        batch_records=200,
        auto_offset_reset="earliest",
    ) as group:
        group.for_each(Note, fn_constructor_args=[str(output)], stop_at_end=True).wait()

    lines = [int(line) for path in output.glob("notes-*") for line in path.read_text().split()]
    print(f"actors killed: {len(list(output.glob('death-*')))}")
    print(f"missing: {RECORDS - len(set(lines)):,}")
    print(f"processed twice: {len(lines) - len(set(lines)):,}")
