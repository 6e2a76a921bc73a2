"""Items <-> the value of a record.

    key    b"bq1" and the number of items, 4 bytes, big-endian
    value  a pickled list of them

A record with another key is one item, the bytes of its value, as any Kafka client may write it.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import Any, Final

from ray import cloudpickle

from ....protocol.errors import MessageTooLarge

MAGIC: Final = b"bq1"
MAX_RECORD_BYTES: Final = 64 * 1024 * 1024
MAX_VALUE_BYTES: Final = MAX_RECORD_BYTES - 1024
"""Maximum bytes of a value: the rest is for key, headers, and those of the batch."""
_COUNT: Final = struct.Struct(">3sI")
_PLAIN: Final = frozenset({bytes, str, int, float, bool, type(None)})
"""Types that pickle writes as cloudpickle does, five times as fast."""


def is_plain(item: Any) -> bool:
    """Whether an item can always be pickled and unpickled."""
    return type(item) in _PLAIN


def encode_items(items: Sequence[Any]) -> tuple[bytes, bytes]:
    """Encode items to the key and value of a record.

    Raises MessageTooLarge, and errors of pickling.
    """
    items = list(items)
    dumps = pickle.dumps if _PLAIN.issuperset(map(type, items)) else cloudpickle.dumps
    value = dumps(items, protocol=5)
    if len(value) > MAX_VALUE_BYTES:
        what = "the items of a batch have" if len(items) > 1 else "the item has"
        raise MessageTooLarge(
            f"{what} {len(value)} bytes, and {MAX_VALUE_BYTES} is the most: put what is large into "
            "Ray's object store, and its ObjectRef into the queue"
        )
    return _COUNT.pack(MAGIC, len(items)), value


def count_items(key: bytes | None) -> int:
    """Number of items of a record."""
    if key is None or len(key) != _COUNT.size or not key.startswith(MAGIC):
        return 1
    return int(_COUNT.unpack(key)[1])


def decode_items(is_pickled: bool, value: bytes | memoryview) -> list[Any]:
    """Decode items. Raises errors of unpickling, e.g. ModuleNotFoundError."""
    if not is_pickled:
        return [bytes(value)]
    items: list[Any] = pickle.loads(value)  # noqa: S301 -- as Ray does with objects of tasks
    return items


def is_pickled(key: bytes | None) -> bool:
    return key is not None and len(key) == _COUNT.size and key.startswith(MAGIC)
