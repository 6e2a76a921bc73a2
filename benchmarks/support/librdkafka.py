"""librdkafka's own batch calls through ctypes: a client that is not the bottleneck.

confluent-kafka's Python calls cost about 1 us per record, which would measure the client. The
library it ships is called here directly: records are produced and consumed by the thousand, and a
few lines of C (compiled on the spot with `cc`) throw consumed ones away.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from functools import cache
from importlib.metadata import files
from pathlib import Path

DRAIN = """
#include <stddef.h>
#include <sys/types.h>
typedef struct {
    int err; void *topic; int partition; void *payload; size_t size; void *key; size_t key_size;
    long offset; void *private;
} message;
typedef ssize_t (*take)(void *, int, int, message **, size_t);
typedef void (*destroy)(message *);
void drain(take take_batch, destroy destroy_message, void *topic, long count) {
    static message *batch[100000];
    while (count > 0) {
        /* It waits until there are as many as it is asked for: never for more than are left. */
        ssize_t taken = take_batch(topic, 0, 1000, batch, count < 100000 ? count : 100000);
        for (ssize_t i = 0; i < taken; i++) {
            count -= batch[i]->err == 0;
            destroy_message(batch[i]);
        }
    }
}
"""


class Message(ctypes.Structure):
    _fields_ = [
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]


@cache
def load() -> ctypes.CDLL:
    _keep_memory()
    path = next(
        file.locate()
        for file in files("confluent-kafka") or ()
        if "librdkafka" in file.name and ".so" in file.name
    )
    library = ctypes.CDLL(str(path))
    for name in (
        "rd_kafka_conf_new",
        "rd_kafka_new",
        "rd_kafka_topic_new",
        "rd_kafka_topic_conf_new",
    ):
        getattr(library, name).restype = ctypes.c_void_p
    return library


def _keep_memory() -> None:
    """Make malloc keep freed memory, as in a producer that runs for days.

    Otherwise hundreds of megabytes of messages would be returned to the system after each round and
    requested again in the next one, which costs a third of the client's speed on a virtual machine.
    """
    trim_threshold, mmap_threshold = -1, -3
    libc = ctypes.CDLL(None)
    libc.mallopt(trim_threshold, 2**31 - 1)
    libc.mallopt(mmap_threshold, 32 * 1024 * 1024)


@cache
def drain_library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "drain.c", Path(folder) / "drain.so"
        source.write_text(DRAIN)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", target, source], check=True)
        return ctypes.CDLL(str(target))


PRODUCER, CONSUMER = 0, 1
OFFSET_BEGINNING = -2
DO_NOT_COPY = 0


class Client:
    """A producer of one partition of a topic, or a consumer of its partition 0."""

    def __init__(
        self, kind: int, servers: str, topic: str, settings: dict[str, str], *, partition: int = 0
    ) -> None:
        self._partition = partition
        self._library = load()
        error = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        for key, value in ({"bootstrap.servers": servers} | settings).items():
            code = self._library.rd_kafka_conf_set(conf, key.encode(), value.encode(), error, 512)
            if code != 0:
                raise ValueError(error.value.decode())
        handle = self._library.rd_kafka_new(kind, conf, error, 512)
        if not handle:
            raise ValueError(error.value.decode())
        self._handle = ctypes.c_void_p(handle)
        self._topic = ctypes.c_void_p(
            self._library.rd_kafka_topic_new(self._handle, topic.encode(), None)
        )

    def close(self) -> None:
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._handle)

    def produce(self, count: int, size: int) -> float:
        """Seconds until `count` records of `size` bytes are acknowledged.

        As `rdkafka_performance -P` does it: all records are the same bytes, which librdkafka does
        not copy before it puts them into a batch. The list of them is made once: filling it in for
        each call took 0.2-0.4 us of Python a record, more than a broker spends on it.
        """
        library = self._library
        payload = ctypes.create_string_buffer(b"x" * size, size)
        block = 10_000
        messages = (Message * block)(
            *[Message(payload=ctypes.addressof(payload), len=size) for _ in range(block)]
        )
        started = time.perf_counter()
        left = count
        while left:
            wanted = min(block, left)
            taken = library.rd_kafka_produce_batch(
                self._topic, self._partition, DO_NOT_COPY, messages, wanted
            )
            left -= taken
            library.rd_kafka_poll(self._handle, 0 if taken == wanted else 1)
        while library.rd_kafka_outq_len(self._handle):
            library.rd_kafka_poll(self._handle, 1)
        return time.perf_counter() - started

    def consume(self, count: int) -> float:
        """Seconds from the first to the last of `count` records, from the beginning on.

        The time before the first is left out: half a second for the library's metadata requests.
        """
        library = self._library
        drain = drain_library().drain
        library.rd_kafka_consume_start(self._topic, 0, ctypes.c_int64(OFFSET_BEGINNING))
        calls = (
            ctypes.cast(library.rd_kafka_consume_batch, ctypes.c_void_p),
            ctypes.cast(library.rd_kafka_message_destroy, ctypes.c_void_p),
            self._topic,
        )
        drain(*calls, ctypes.c_long(1))
        started = time.perf_counter()
        drain(*calls, ctypes.c_long(count - 1))
        seconds = time.perf_counter() - started
        library.rd_kafka_consume_stop(self._topic, 0)
        return seconds
