"""Do damaged bytes reach anything but MalformedRequest, and do they ever cost much?"""

import random

import pytest
from hypothesis import given, settings, strategies as st

from bradbury.handlers.server.table import APIS
from bradbury.protocol.codec import MAX_TAGS, read_message, write_message, write_uvarint
from bradbury.protocol.errors import MalformedRequest
from bradbury.protocol.header import read_request_header, skip_tags
from bradbury.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from bradbury.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.support.wire.hostile import frame_of
from tests.support.wire.sample_requests import Sample, every_version, sample_request

CASES = [pytest.param(key, v, id=f"{APIS[key].name}-v{v}") for key, v in every_version()]


def body_of(key: int, version: int) -> bytes:
    return bytes(write_message(sample_request(key, version, Sample()), version))


@pytest.mark.parametrize(("key", "version"), CASES)
def test_every_byte_changed_and_every_cut_is_read_or_malformed(key: int, version: int) -> None:
    body = body_of(key, version)
    rng = random.Random(f"{key} {version}")
    for place in range(len(body)):
        for value in {0, 0x7F, 0x80, 0xFF, rng.randrange(256)}:
            changed = body[:place] + bytes([value]) + body[place + 1 :]
            for bound in (None, 1000):
                try:
                    read_message(APIS[key].request, version, changed, max_elements=bound)
                except MalformedRequest:
                    pass
        with pytest.raises(MalformedRequest):
            read_message(APIS[key].request, version, body[:place])


@pytest.mark.parametrize(("key", "version"), CASES)
def test_a_bounded_reader_reads_the_same(key: int, version: int) -> None:
    body = body_of(key, version)
    cls = APIS[key].request
    assert read_message(cls, version, body, max_elements=100) == read_message(cls, version, body)


@pytest.mark.parametrize("version", [1, 4, 9, 12])
def test_elements_are_counted_over_all_arrays(version: int) -> None:
    names = [MetadataRequestTopic(name="n") for _ in range(100)]
    body = bytes(write_message(MetadataRequest(topics=names), version))
    assert read_message(MetadataRequest, version, body, max_elements=100).topics == names
    with pytest.raises(MalformedRequest, match="more elements"):
        read_message(MetadataRequest, version, body, max_elements=99)


def test_elements_of_nested_arrays_count_too() -> None:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=list(range(50)))
    groups = [OffsetFetchRequestGroup(group_id="g", topics=[topic] * 10) for _ in range(10)]
    body = bytes(write_message(OffsetFetchRequest(groups=groups), 8))
    total = 10 + 100 + 5000
    assert read_message(OffsetFetchRequest, 8, body, max_elements=total).groups == groups
    with pytest.raises(MalformedRequest, match="more elements"):
        read_message(OffsetFetchRequest, 8, body, max_elements=total - 1)


def tags(*fields: tuple[int, bytes], count: int | None = None) -> bytes:
    out = bytearray()
    write_uvarint(len(fields) if count is None else count, out)
    for tag, body in fields:
        write_uvarint(tag, out)
        write_uvarint(len(body), out)
        out += body
    return bytes(out)


def test_tagged_fields_are_bounded_in_number() -> None:
    many = [(number, b"") for number in range(MAX_TAGS)]
    assert skip_tags(tags(*many), 0) == len(tags(*many))
    with pytest.raises(MalformedRequest, match="too many"):
        skip_tags(tags(*many, (MAX_TAGS, b"")), 0)
    request = bytes(write_message(MetadataRequest(topics=None), 12))
    assert read_message(MetadataRequest, 12, request[:-1] + tags(*many)).topics is None
    with pytest.raises(MalformedRequest, match="too many"):
        read_message(MetadataRequest, 12, request[:-1] + tags(*many, (MAX_TAGS, b"")))


def test_a_tagged_field_cannot_reach_beyond_its_size() -> None:
    from bradbury.protocol.messages.fetch import FetchRequest

    request = bytes(write_message(FetchRequest(), 12))
    good = request[:-1] + tags((0, b"\x03id"))  # cluster_id "id"
    assert read_message(FetchRequest, 12, good).cluster_id == "id"
    longer = request[:-1] + b"\x01\x00\x01\x03id"  # size 1, but the text has three bytes
    with pytest.raises(MalformedRequest, match="longer than its size"):
        read_message(FetchRequest, 12, longer)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=60))
def test_any_header_is_read_or_malformed(data: bytes) -> None:
    try:
        header = read_request_header(data)
        assert 10 <= header.body_position <= len(data)
        skip_tags(data, header.body_position)
    except MalformedRequest:
        pass


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_frames_cut_and_joined_anywhere_are_read_or_malformed(data: st.DataObject) -> None:
    """Two real frames, the head of one and the tail of the other."""
    pairs = st.sampled_from(every_version())
    (key, version), (other_key, other_version) = data.draw(pairs), data.draw(pairs)
    head = frame_of(key, version, Sample())[4:]
    tail = frame_of(other_key, other_version, Sample())[4:]
    mixed = head[: data.draw(st.integers(8, len(head)))]
    mixed += tail[data.draw(st.integers(0, len(tail))) :]
    try:
        header = read_request_header(mixed)
        position = header.body_position
        if version >= APIS[key].first_flexible:
            position = skip_tags(mixed, position)
        read_message(APIS[key].request, version, mixed, position)
    except MalformedRequest:
        pass
