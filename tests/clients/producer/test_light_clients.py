"""Does a process that handles little load little? pandas and numba take a second or two to import."""

import subprocess
import sys
from collections.abc import Callable

PROGRAM = """
import sys
import pyarrow as pa
import bradbury
from bradbury.classic import ConsumerConnector
from bradbury.pipelines.ranges.value_decoder import ValueDecoder
from bradbury.protocol.columns.columns import decode_batches
from bradbury.protocol.records.records import encode_records

def loaded():
    return [name for name in ("pandas", "numba") if name in sys.modules]

servers, topic = sys.argv[1:]
with bradbury.Producer(servers) as producer:
    for number in range(1_000):
        producer.send(topic, b'{"number": %d}' % number, key=b"key")
    producer.send_batch(topic, [b'{"number": 1000}', b'{"number": 1001}']).result()
    producer.send_batch(topic, [("key", '{"number": 1002}'), (None, '{"number": 1003}')]).result()
print("producer", loaded())
with bradbury.Consumer(topic, bootstrap=servers, auto_offset_reset="earliest") as consumer:
    count = 0
    while count < 1_004:
        count += consumer.poll(5_000).num_rows
    assert not consumer.poll(10).num_rows
    consumer.seek_to_beginning()
    assert sum(1 for record in consumer.records(1_000)) == 1_004
print("consumer", loaded())
settings = {"bootstrap.servers": servers, "groupid": topic, "consumer.timeout.ms": 5_000}
with ConsumerConnector.create(settings) as connector:
    [stream] = connector.create_message_streams({topic: 1})[topic]
    assert [next(stream).offset for number in range(100)] == [*range(100)]
    connector.commit_offsets()
print("streams", loaded())
batch = encode_records([(0, None, b'{"number": 5}', ())] * 1_000)
records = decode_batches(batch, topic=topic, partition=0, fetch_offset=0)
numbers = ValueDecoder("json", pa.schema([("number", pa.int64())])).column(records)
print("json", loaded(), len(numbers), numbers[0]["number"])
"""


def test_clients_that_handle_little_import_neither_pandas_nor_numba(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, bootstrap, new_topic()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == ["producer []", "consumer []", "streams []", "json [] 1000 5"]
