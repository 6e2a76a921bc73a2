"""Damage of real frames: what a broken or hostile peer sends instead of a request."""

import random
import struct
from collections.abc import Iterator

from bradbury.handlers.server.table import APIS
from bradbury.protocol.codec import write_message
from bradbury.protocol.header import close_frame, write_request_header
from tests.support.wire.sample_requests import Sample, sample_request

LENGTHS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x7f")


def frame_of(api_key: int, version: int, sample: Sample, number: int = 1) -> bytes:
    """A whole, valid frame, its size included."""
    flexible = version >= APIS[api_key].first_flexible
    out = write_request_header(api_key, version, number, "hostile", flexible=flexible)
    request = sample_request(api_key, version, sample)
    return bytes(close_frame(write_message(request, version, out)))


def flips(frame: bytes, rng: random.Random, count: int | None = None) -> Iterator[bytes]:
    """One byte changed: everywhere, or in `count` places."""
    places = range(len(frame)) if count is None else rng.choices(range(len(frame)), k=count)
    for place in places:
        changed = bytearray(frame)
        changed[place] ^= rng.randint(1, 255)
        yield bytes(changed)


def cuts(frame: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield frame[: rng.randrange(len(frame))]


def extensions(frame: bytes, rng: random.Random) -> Iterator[bytes]:
    yield frame + rng.randbytes(rng.randint(1, 200))
    yield frame + bytes(200)


def length_bombs(frame: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    """Somewhere there is a length that promises two thousand million of something."""
    for _ in range(count):
        length = rng.choice(LENGTHS)
        place = rng.randrange(len(frame))
        yield frame[:place] + length + frame[place + len(length) :]


def damaged(frame: bytes, rng: random.Random, count: int) -> Iterator[bytes]:
    """About 4 x `count` variants of a frame, without its size."""
    yield from flips(frame, rng, count)
    yield from cuts(frame, rng, count)
    yield from length_bombs(frame, rng, count)
    yield from extensions(frame, rng)


def with_size(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame
