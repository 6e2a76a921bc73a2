"""Do values of JSON and Arrow become what they say, or an error that names them, whatever they are?"""

import json
import random

import pyarrow as pa
import pytest

from bradbury.pipelines.ranges.value_decoder import UndecodableValue, ValueDecoder
from bradbury.tests.support.decoded_values import decoded_values

FIELDS = pa.schema(
    [
        ("place", pa.struct([("miles", pa.int32()), ("code", pa.string())])),
        ("legs", pa.list_(pa.struct([("share", pa.float64())]))),
        ("name", pa.string()),
        ("late", pa.bool_()),
        ("number", pa.int64()),
    ]
)
WHOLE = (
    b'{"place": {"code": "1", "other": 9, "miles": 2}, "legs": [{"share": 1.5}, {"share": null}],'
    b' "name": "te\\u00fcxt", "late": true, "number": 12, "more": [1, [2, {"k": null}]]}'
)
PIECES = [
    *(b"null", b"{}", b"[]", b"{", b"}", b"[", b"]", b'"', b",", b":", b"1", b"-", b"1e9", b"true"),
    *(b"\\", b"\\u12", b"\x00", b"\n", b"\xff", b'"name"', b'"legs"', b'"":', b"9" * 20, b"NaN"),
]


def mutated(dice: random.Random) -> bytes:
    value = bytearray(WHOLE)
    for _ in range(dice.randint(0, 2)):
        start, end = sorted(dice.randrange(len(value) + 1) for _ in range(2))
        match dice.randrange(4):
            case 0:
                del value[start : min(end, start + 30)]
            case 1:
                value[start:start] = dice.choice(PIECES)
            case 2:
                value[start : start + 1] = bytes([dice.randrange(256)])
            case 3:
                value[start:end] = value[start:end] * 2
    return bytes(value)


@pytest.mark.parametrize(
    "value",
    [
        b"null",
        b"",
        b" ",
        b"1",
        b'"x"',
        b"[]",
        b'{"name": "x"} null',
        b'{"name": "x"',
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_no_object_is_named_by_its_offset(value: bytes) -> None:
    """Of values that are all `null` pyarrow ends the process."""
    decoder = ValueDecoder("json", FIELDS)
    with pytest.raises(UndecodableValue, match="flights-3 at offset 0 is not json: .* not a JSON"):
        decoder.column(decoded_values(value))
    with pytest.raises(UndecodableValue, match="flights-3 at offset 2 is not json: .* not a JSON"):
        decoder.column(decoded_values(b"{}", None, value, b"{}"))


@pytest.mark.parametrize(
    "values",
    [
        (b'{"name": "a"} {"name": "b"}', b""),
        (b'{"name": "a"} {"name": "b"}',),
        (b'{"name": "a', b'b"}'),
        (b'{"name": "}', b'{"}'),
        (b'{"place": {"miles": 1}', b'{"miles": 2}}'),
        (b'{"name": "\xff"}',),
    ],
)
def test_an_object_is_one_value_and_text_is_utf_8(values: tuple[bytes, ...]) -> None:
    with pytest.raises(UndecodableValue, match="flights-3"):
        ValueDecoder("json", FIELDS).column(decoded_values(*values))


def test_white_space_around_an_object_is_allowed() -> None:
    column = ValueDecoder("json", FIELDS).column(
        decoded_values(b' {"name": "a"}\n', b'{"name": "b"}')
    )
    assert column.field("name").to_pylist() == ["a", "b"]


def test_of_a_thousand_broken_values_each_is_refused_or_as_json_has_it() -> None:
    dice = random.Random(17)
    decoder = ValueDecoder("json", FIELDS)
    decoded = 0
    for _ in range(1_000):
        values = [mutated(dice) for _ in range(dice.choice((1, 1, 2, 5)))]
        try:
            column = decoder.column(decoded_values(*values))
        except UndecodableValue:
            continue
        column.validate(full=True)
        decoded += 1
        for value, row in zip(values, column.to_pylist(), strict=True):
            expected = json.loads(value)
            for name in ("name", "late", "number"):
                assert row[name] == expected.get(name), value
            assert (row["place"] is None) == (expected.get("place") is None)
    assert 100 < decoded < 900


# --- streams of Arrow ---------------------------------------------------------------------------


def stream() -> bytes:
    table = pa.table(
        {
            "number": pa.array([1, 2, None], pa.int64()),
            "text": ["a", "bb", None],
            "list": pa.array([[1], None, [2, 3]], pa.list_(pa.int32())),
            "code": pa.array(["x", "y", "x"]).dictionary_encode(),
            "struct": pa.array([{"a": 1}, {"a": 2}, None]),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_a_stream_that_is_none_is_named_by_its_offset() -> None:
    found = decoded_values(stream(), None, b"none")
    rows = pa.table({"value": found.values})
    with pytest.raises(UndecodableValue, match="the value of flights-3 at offset 2 is not arrow"):
        ValueDecoder("arrow").decode(rows, found)


def test_of_a_thousand_broken_streams_each_is_refused_or_has_sound_columns() -> None:
    """What pyarrow reads of such a stream, and does not validate, ends the process when it is used."""
    dice = random.Random(1)
    whole = stream()
    decoded = 0
    for _ in range(1_000):
        value = bytearray(whole)
        for _ in range(dice.randint(1, 3)):
            place = dice.randrange(len(value))
            value[place] = dice.choice((0, 1, 2, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        found = decoded_values(bytes(value))
        try:
            table = ValueDecoder("arrow").decode(pa.table({"value": found.values}), found)
        except UndecodableValue:
            continue
        table.validate(full=True)
        table.to_pylist()
        decoded += 1
    assert 50 < decoded < 950
