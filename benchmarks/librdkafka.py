"""librdkafka's own batch calls through ctypes: a client that is not the bottleneck.

confluent-kafka's Python calls cost about 1 us per record, which would measure the client. The
library it ships is called here directly: records are produced and consumed by the thousand.
"""

from __future__ import annotations

import ctypes
import time
from importlib.metadata import files


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


def load() -> ctypes.CDLL:
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


PRODUCER, CONSUMER = 0, 1
OFFSET_BEGINNING = -2


class Client:
    """One producer or consumer of one topic's partition 0."""

    def __init__(self, kind: int, servers: str, topic: str, settings: dict[str, str]) -> None:
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
        """Seconds until `count` records of `size` bytes are acknowledged."""
        library = self._library
        payload = ctypes.create_string_buffer(b"x" * size, size)
        block = 10_000
        messages = (Message * block)()
        address = ctypes.addressof(payload)
        started = time.perf_counter()
        left = count
        copy = 0x2
        while left:
            wanted = min(block, left)
            for index in range(wanted):
                message = messages[index]
                message.payload, message.len, message.err = address, size, 0
            taken = library.rd_kafka_produce_batch(self._topic, 0, copy, messages, wanted)
            left -= taken
            library.rd_kafka_poll(self._handle, 0 if taken == wanted else 1)
        while library.rd_kafka_outq_len(self._handle):
            library.rd_kafka_poll(self._handle, 5)
        return time.perf_counter() - started

    def consume(self, count: int) -> float:
        """Seconds until `count` records have been taken from the beginning on.

        The callback is a C function that ignores its arguments, so no Python runs per record.
        """
        library = self._library
        ignore = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
        started = time.perf_counter()
        library.rd_kafka_consume_start(self._topic, 0, ctypes.c_int64(OFFSET_BEGINNING))
        got = 0
        while got < count:
            taken = library.rd_kafka_consume_callback(self._topic, 0, 1000, ignore, None)
            got += max(taken, 0)
        seconds = time.perf_counter() - started
        library.rd_kafka_consume_stop(self._topic, 0)
        return seconds
