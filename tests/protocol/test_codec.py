"""Are our bytes Kafka's bytes? Every message at every version, against kio's readers and writers."""

import io
import random
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

import bradbury
from bradbury.protocol.codec import read_message, write_message
from bradbury.protocol.errors import MalformedRequest
from bradbury.protocol.message_generator import formatted, generate
from bradbury.protocol.messages.metadata import MetadataRequest
from bradbury.protocol.messages.produce import ProduceRequest
from bradbury.protocol.schema import ZERO_UUID, Message, Struct

MESSAGES = Path(bradbury.__file__).parent / "protocol" / "messages"
ERROR_CODES = [int(code) for code in KioErrorCode]


def message_classes() -> list[type[Message]]:
    found = []
    for path in sorted(MESSAGES.glob("*.py")):
        if path.stem == "__init__":
            continue
        module = import_module(f"bradbury.protocol.messages.{path.stem}")
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Message) and value is not Message
        ]
    return found


LEGACY = {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (8, 1)}


def versions(cls: type[Message]) -> list[int]:
    first, last = cls.VERSIONS
    return [each for each in range(first, last + 1) if (cls.API_KEY, each) not in LEGACY]


CLASSES = [cls for cls in message_classes() if versions(cls)]
every_message = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


TIMESTAMPS = {
    "transaction_start_time_ms",
    *(f"{what}_timestamp{unit}" for what in ("issue", "expiry", "max") for unit in ("", "_ms")),
}
"""As kio reads them, which refuses -1: there is none."""


def random_value(kind, rng, name):
    if name.endswith("error_code"):  # partition_error_code, too
        return rng.choice(ERROR_CODES)
    match kind:
        case "int8":
            return rng.randint(-128, 127)
        case "int16":
            return rng.randint(-(2**15), 2**15 - 1)
        case "int32":
            return rng.choice([-1, 0, 1, rng.randint(0, 2**31 - 1)])
        case "int64" if name in TIMESTAMPS:
            return rng.randint(0, 10**12)
        case "int64":
            return rng.choice([-1, 0, rng.randint(0, 10**12)])
        case "uint16":
            return rng.randint(0, 2**16 - 1)
        case "uint32":
            return rng.randint(0, 2**32 - 1)
        case "float64":
            return rng.random()
        case "bool":
            return rng.random() < 0.5
        case "uuid":
            return UUID(int=rng.getrandbits(128))
        case "string":
            return rng.choice(["", "a", "naïve-☃", "x" * 200])
        case _:
            return rng.choice([b"", b"abc", bytes(range(256))])


def random_message(cls: type[Struct], version: int, rng: random.Random) -> Struct:
    values = {}
    for field in fields(cls):
        wire = field.metadata["wire"]
        if not wire.versions[0] <= version <= wire.versions[1]:
            continue
        nullable = wire.nullable and wire.nullable[0] <= version <= wire.nullable[1]
        if nullable and rng.random() < 0.3:
            values[field.name] = None
            continue

        def one(wire=wire, field=field):
            if wire.struct:
                return random_message(wire.struct, version, rng)
            return random_value(wire.kind, rng, field.name)

        values[field.name] = [one() for _ in range(rng.randint(0, 3))] if wire.array else one()
    return cls(**values)


@every_message
def test_our_bytes_are_kios_bytes_and_read_back_equal(cls: type[Message]) -> None:
    load = load_request_schema if cls.__name__.endswith("Request") else load_response_schema
    for version in versions(cls):
        rng = random.Random(f"{cls.__name__}{version}")
        schema = load(cls.API_KEY, version)
        for _ in range(5):
            message = random_message(cls, version, rng)
            ours = bytes(write_message(message, version))
            entity, size = entity_reader(schema)(ours, 0)
            assert size == len(ours), version
            theirs = io.BytesIO()
            entity_writer(schema)(theirs, entity)
            assert theirs.getvalue() == ours, version
            assert read_message(cls, version, ours) == message, version
            assert read_message(cls, version, memoryview(bytearray(ours))) == message, version


@every_message
def test_every_cut_is_malformed_or_a_shorter_message_never_another_exception(
    cls: type[Message],
) -> None:
    for version in versions(cls):
        message = random_message(cls, version, random.Random(7))
        whole = bytes(write_message(message, version))
        for length in range(0, len(whole), max(1, len(whole) // 60)):
            with pytest.raises(MalformedRequest):
                read_message(cls, version, whole[:length])


@settings(max_examples=30, deadline=None)
@given(garbage=st.binary(max_size=64), data=st.data())
def test_garbage_is_only_ever_malformed(garbage: bytes, data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(CLASSES))
    version = data.draw(st.sampled_from(versions(cls)))
    try:
        read_message(cls, version, garbage)
    except MalformedRequest:
        pass


def test_an_array_length_beyond_the_message_allocates_nothing() -> None:
    with pytest.raises(MalformedRequest, match="passes the end"):
        read_message(MetadataRequest, 1, b"\x7f\xff\xff\xff")


def test_an_unknown_tagged_field_is_skipped() -> None:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    body = bytes(write_message(request, 12))
    tagged = body[:-1] + bytes([1, 99, 3]) + b"new"
    assert read_message(MetadataRequest, 12, tagged) == request


def test_produce_before_version_three_has_the_layout_that_aiokafkas_oldest_classes_had() -> None:
    body = (
        b"\xff\xff\x00\x00\x03\xe8"  # acks -1, timeout 1000
        b"\x00\x00\x00\x01\x00\x01t"  # one topic "t"
        b"\x00\x00\x00\x01\x00\x00\x00\x05\x00\x00\x00\x02xy"  # partition 5, two bytes
    )
    for version in (0, 1, 2):
        request = read_message(ProduceRequest, version, body)
        assert (request.acks, request.timeout_ms) == (-1, 1000)
        assert request.topic_data[0].name == "t"
        assert request.topic_data[0].partition_data[0].index == 5
        assert request.topic_data[0].partition_data[0].records == b"xy"
        assert bytes(write_message(request, version)) == body


def test_uuids_are_never_none() -> None:
    assert read_message(MetadataRequest, 0, bytes(4)).topics == []
    assert ZERO_UUID.int == 0


def test_the_generated_files_are_current() -> None:
    for name, text in generate().items():
        assert (MESSAGES.parent / name).read_text() == formatted(text), (
            f"{name}: run `make generate`"
        )
