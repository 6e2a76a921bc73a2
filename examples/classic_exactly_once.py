"""Exactly once by means of 0.7: a reader keeps its offset in one transaction with its output.

python examples/classic_exactly_once.py

The reader is killed in the middle, twice, and resumes at the offset in its own database.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import bradbury
from bradbury.classic import (
    EARLIEST_TIME,
    FetchRequest,
    InvalidMessageSize,
    SimpleConsumer,
)

COUNT = 10_000


def read_all(host: str, port: int, database: str, *, die_after: int) -> None:
    """Copy the topic to `database`, from its stored offset; die after `die_after` messages."""
    output = sqlite3.connect(database)
    output.execute("CREATE TABLE IF NOT EXISTS amounts (amount INTEGER)")
    output.execute("CREATE TABLE IF NOT EXISTS progress (offset INTEGER)")
    consumer = SimpleConsumer(host, port)
    row = output.execute("SELECT offset FROM progress").fetchone()
    offset = row[0] if row else consumer.get_offsets_before("amounts", 0, EARLIEST_TIME, 1)[0]
    max_size = 1000
    while True:
        try:
            found = list(consumer.fetch(FetchRequest("amounts", 0, offset, max_size)))
        except InvalidMessageSize:
            max_size *= 2  # as in every 0.7 consumer
            continue
        if not found:
            return
        for message, next_offset in found:
            output.execute("INSERT INTO amounts VALUES (?)", [int(message.payload or b"0")])
            offset = next_offset
            die_after -= 1
            if die_after == 0:
                os.kill(os.getpid(), signal.SIGKILL)  # what is not committed is lost
        output.execute("DELETE FROM progress")
        output.execute("INSERT INTO progress VALUES (?)", [offset])
        output.commit()  # both or neither


if __name__ == "__main__" and len(sys.argv) > 1:
    host, port, database, die_after = sys.argv[1:]
    read_all(host, int(port), database, die_after=int(die_after))
elif __name__ == "__main__":
    with bradbury.local() as cluster, tempfile.TemporaryDirectory() as folder:
        host, port = cluster.bootstrap_servers.rsplit(":", 1)
        with cluster.admin() as admin:
            admin.create_topic("amounts")
        with bradbury.Producer(cluster.bootstrap_servers, batch_size=4000) as producer:
            producer.send_batch("amounts", [b"%d" % number for number in range(COUNT)]).result()

        database = str(Path(folder) / "output.db")
        for die_after in (3_333, 4_444, -1):
            done = subprocess.run(
                [sys.executable, __file__, host, port, database, str(die_after)], check=False
            )
            [there] = sqlite3.connect(database).execute("SELECT count(*) FROM amounts").fetchone()
            print(f"reader ended with {done.returncode}, output has {there:,}")
        [total] = sqlite3.connect(database).execute("SELECT sum(amount) FROM amounts").fetchone()
        print(f"sum: {total:,}, expected {sum(range(COUNT)):,}")
