"""A mirror whose Ray actors copy, from a cluster in this process into the machines': they are to be killed.

    python mirror_driver.py --folder DIR

Records come until there is a file DIR/enough. When they are mirrored, the topic is compared with
its source: every key, value and timestamp, in the order of each partition, once. What was seen is
in DIR/mirror.json.
"""

import argparse
import json
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import bradbury

TOPIC = "take-offs"
ALIAS = "west"
PARTITIONS = 6
ACTORS = 3
BATCH = 100
PAUSE_SECONDS = 0.1
MOST_SECONDS = 600
REPLICAS = 3

Record = tuple[bytes, bytes, object]


def produce(servers: str, enough: Path, stop: threading.Event, sent: list[int]) -> None:
    """Numbered records, 1,000 a second at most; their number is added to `sent`."""
    number = 0
    with bradbury.Producer(servers) as producer:
        while not enough.exists() and not stop.wait(PAUSE_SECONDS):
            rows = [(f"UA{n % 1000}", str(n)) for n in range(number, number + BATCH)]
            producer.send_batch(TOPIC, rows).result(60)
            number += BATCH
    sent.append(number)


def contents(servers: str, topic: str) -> dict[int, list[Record]]:
    """Key, value and timestamp of all committed records, by partition."""
    found: defaultdict[int, list[Record]] = defaultdict(list)
    with bradbury.Consumer(
        topic, bootstrap=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        ends = consumer.end_offsets()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            table = consumer.poll(500)
            columns = [table.column(name) for name in ("partition", "key", "value", "timestamp")]
            for partition, *record in zip(*(one.to_pylist() for one in columns), strict=True):
                found[partition].append(tuple(record))
    return dict(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    home = bradbury.connect().bootstrap_servers
    with bradbury.local() as west:
        with west.admin() as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        stop, sent = threading.Event(), []
        source = west.bootstrap_servers
        producing = threading.Thread(target=produce, args=(source, folder / "enough", stop, sent))
        producing.start()
        try:
            with bradbury.Mirror(
                TOPIC,
                {ALIAS: source},
                bootstrap_servers=home,
                actors=ACTORS,
                replication_factor=REPLICAS,
            ) as mirror:
                while producing.is_alive():
                    mirror.wait(1.0)
                deadline = time.monotonic() + MOST_SECONDS
                (count,) = sent
                while (found := records_in(home)) < count and time.monotonic() < deadline:
                    mirror.wait(1.0)
        finally:
            stop.set()
            producing.join()
        there, here = contents(source, TOPIC), contents(home, f"{ALIAS}.{TOPIC}")
    wrong = [partition for partition in there if here.get(partition) != there[partition]]
    seen = {"records": count, "mirrored": found, "partitions": len(there), "wrong": wrong}
    (folder / "mirror.json").write_text(json.dumps(seen))
    return 0


def records_in(servers: str) -> int:
    return sum(len(records) for records in contents(servers, f"{ALIAS}.{TOPIC}").values())


if __name__ == "__main__":
    sys.exit(main())
