"""Does every byte that we answer mean the same to others' codecs, at every version we serve?

A running broker's real answers are read by kio, kafka-python and aiokafka, each from its own copy
of Kafka's schemas, and written again: the same bytes must come out. The list of versions is the
handler table's, so a new API is asked for here, too.
"""

import io
import struct
from importlib import import_module

import pytest
from aiokafka.protocol.struct import Struct as AiokafkaStruct
from kafka.protocol.api_header import ResponseClassRegistry
from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

from bradbury.handlers.server.table import APIS
from tests.support.wire.raw_client import RawClient
from tests.support.wire.sample_requests import Sample, every_version, sample_request

for module in ("admin", "consumer", "metadata", "producer"):
    import_module(f"kafka.protocol.{module}")

CASES = [pytest.param(key, v, id=f"{APIS[key].name}-v{v}") for key, v in every_version()]


def aiokafka_responses() -> dict[tuple[int, int], type[AiokafkaStruct]]:
    found = {}
    for name in ("admin", "commit", "coordination", "fetch", "group", "metadata", "offset"):
        for value in vars(import_module(f"aiokafka.protocol.{name}")).values():
            if isinstance(value, type) and "Response_v" in value.__name__:
                found[value.API_KEY, value.API_VERSION] = value
    for value in vars(import_module("aiokafka.protocol.produce")).values():
        if isinstance(value, type) and "Response_v" in value.__name__:
            found[value.API_KEY, value.API_VERSION] = value
    return found


AIOKAFKA = aiokafka_responses()
# aiokafka's own schema of these differs from Kafka's: its DescribeAcls v2 is not flexible, and
# reads an answer with a message, such as Kafka's SECURITY_DISABLED, as a text that is too short.
AIOKAFKA_ERRS: set[tuple[int, int]] = {(29, 2)}

# kio takes an expiry for a time, and -1, with which Kafka answers a refusal, is before its first: it
# is shown 0 there. So it is where a transactional id has no transaction yet.
CREATE_DELEGATION_TOKEN = 38
"""Its refusal has three of these."""
KIO_ERRS: set[tuple[int, int]] = {
    *((CREATE_DELEGATION_TOKEN, version) for version in (1, 2, 3)),
    *((39, version) for version in (1, 2)),
    *((40, version) for version in (1, 2)),
    (65, 0),
}


@pytest.fixture(scope="module")
def sample(servers: str, sample_topic: str) -> Sample:
    return Sample.of(servers, sample_topic)


@pytest.fixture(scope="module")
def sample_topic(servers: str) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("oracle", 2, 1)])["oracle"].result(60)
    return "oracle"


def answer(servers: str, sample: Sample, key: int, version: int) -> bytes:
    """The answer without size and correlation id."""
    with RawClient(servers) as client:
        sent = client.send(sample_request(key, version, sample), version)
        frame = client.receive_frame()
    assert frame, "the broker hung up"
    assert struct.unpack_from(">i", frame) == (sent,)
    return frame[4:]


def read_by_kio(key: int, version: int, body: bytes) -> bool:
    if (key, version) in KIO_ERRS:
        body = body.replace(b"\xff" * 8, bytes(8), 3 if key == CREATE_DELEGATION_TOKEN else 1)
    try:
        schema = load_response_schema(key, version)
    except Exception:
        return False  # older than kio's lowest version
    _header, size = entity_reader(schema.__header_schema__)(b"\0\0\0\1" + body, 0)
    body = body[size - 4 :]
    entity, size = entity_reader(schema)(body, 0)
    assert size == len(body), "kio leaves bytes over"
    again = io.BytesIO()
    entity_writer(schema)(again, entity)
    assert again.getvalue() == body
    return True


def read_by_kafka_python(key: int, version: int, body: bytes) -> bool:
    cls = ResponseClassRegistry._response_class_registry.get(key)
    if cls is None or version > cls.max_version:
        return False
    flexible = cls.flexible_version_q(version) and key != 18
    body = body[1:] if flexible else body
    decoded = cls[version].decode(body)
    decoded._header = None  # its decode leaves this out, and its encode looks at it
    assert bytes(decoded.encode(version=version)) == body
    return True


def read_by_aiokafka(key: int, version: int, body: bytes) -> bool:
    cls = AIOKAFKA.get((key, version))
    if cls is None or (key, version) in AIOKAFKA_ERRS:
        return False
    body = body[1:] if version >= APIS[key].first_flexible and key != 18 else body
    rest = io.BytesIO(body)
    decoded = cls.decode(rest)
    assert rest.read() == b"", "aiokafka leaves bytes over"
    assert decoded.encode() == body
    return True


@pytest.mark.parametrize(("key", "version"), CASES)
def test_others_read_our_answer_and_write_the_same_bytes(
    servers: str, sample: Sample, key: int, version: int
) -> None:
    body = answer(servers, sample, key, version)
    readers = [
        read_by_kio(key, version, body),
        read_by_kafka_python(key, version, body),
        read_by_aiokafka(key, version, body),
    ]
    assert any(readers), "nobody else knows this version: it is unchecked"
