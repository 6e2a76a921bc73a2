"""Does a continuous replay bring what is added to a table, once, until it is told to stop?"""

import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bradbury
from bradbury.tests.support.child_process import ChildProcess
from bradbury.tests.support.committed_records import committed_records

NewTopic = Callable[..., str]


def send(bootstrap: str, topic: str, start: int, end: int) -> None:
    with bradbury.Producer(bootstrap) as producer:
        for number in range(start, end):
            producer.send(topic, str(number))


def values(bootstrap: str, topic: str) -> list[int]:
    return [int(each.value) for each in committed_records(bootstrap, topic)]


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_what_is_loaded_meanwhile_comes_in_order_and_the_next_one_goes_on(
    bootstrap: str,
    new_topic: NewTopic,
    catalog: dict[str, str],
    tmp_path: Path,
    table_format: str,
) -> None:
    topic, again = new_topic(), new_topic()
    table = str(tmp_path / "table")
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "format": table_format}
    if table_format == "iceberg":
        table = "plant.turbines"
        options["catalog_properties"] = catalog
    send(bootstrap, topic, 0, 10)
    bradbury.load(topic, table, **options)
    stop, progress = threading.Event(), [0]

    def keep(done: Any) -> None:
        progress[0] = done.records

    def replay() -> Any:
        return bradbury.replay(
            table,
            again,
            continuous=True,
            look_interval_s=0.1,
            stop=stop,
            on_progress=keep,
            **options,
        )

    def until(count: int) -> None:
        while progress[0] < count:
            assert not running.done(), running.result()
            time.sleep(0.02)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(replay)
        try:
            until(10)
            for end in (20, 30):
                send(bootstrap, topic, end - 10, end)
                bradbury.load(topic, table, **options)
                until(end)
        finally:
            stop.set()
        assert running.result(60).records == 30
    send(bootstrap, topic, 30, 35)
    bradbury.load(topic, table, **options)
    assert bradbury.replay(table, again, **options).records == 5
    assert values(bootstrap, again) == list(range(35))


def test_files_that_do_not_say_what_is_new_are_refused(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"value": ["1"]}), tmp_path / "table.parquet")
    with pytest.raises(ValueError, match="new rows in it cannot be detected"):
        bradbury.replay(str(tmp_path), new_topic(), bootstrap_servers=bootstrap, continuous=True)


def test_ctrl_c_ends_the_command_with_what_it_has(
    bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, again = new_topic(), new_topic()
    send(bootstrap, topic, 0, 10)
    bradbury.load(topic, str(tmp_path), bootstrap_servers=bootstrap)
    command = [sys.executable, "-m", "bradbury.cli", "replay", str(tmp_path), "--to", again]
    with ChildProcess(
        [*command, "--continuous", "--bootstrap", bootstrap], stderr=PIPE, text=True
    ) as running:
        try:
            assert running.stderr is not None
            line = running.stderr.readline()
            assert "10 records so far" in line, line + running.stderr.read()
            running.send_signal(signal.SIGINT)
            assert "10 records into" in running.stderr.read()
            assert running.wait(60) == 0
        finally:
            running.kill()  # or a failure would wait for it
    assert values(bootstrap, again) == list(range(10))
