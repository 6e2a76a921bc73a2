"""Compiles a reader and a writer for each (message class, version), on first use.

Runs of fixed-size fields become one precompiled struct; the rest is straight-line code, so a small
request is read in one or two microseconds. Unlike Kafka's Java classes nothing is validated on
writing: a field that the version lacks is omitted.

Reading accepts any buffer, copies strings, and slices `bytes` and `records` without a copy: such a
slice lives as long as the receive buffer does. Unknown tagged fields are skipped (KIP-482). Array
lengths are checked against the remaining bytes before anything is allocated. Reading any bytes
raises no exception but MalformedRequest.

Source of the encodings: KIP-482 (compact, tags), KIP-893 (nullable structs),
https://kafka.apache.org/protocol. Oracle in the tests: kio's own readers and writers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache, lru_cache
from struct import Struct as Packer, error as struct_error
from typing import Any, Final, TypeVar
from uuid import UUID

from .buffer import Buffer
from .errors import MalformedRequest
from .schema import Message, Struct, Versions, Wire

M = TypeVar("M", bound=Message)

MAX_TAGS: Final = 256
"""Most tags in one section; Kafka's messages have at most a dozen."""

FIXED: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}


def read_message(
    cls: type[M],
    version: int,
    buffer: Buffer,
    position: int = 0,
    *,
    max_elements: int | None = None,
    source: Buffer | None = None,
) -> M:
    """Read a body that fills the rest of `buffer`; bytes after it are ignored, as in Kafka.

    Args:
        source: the same bytes, of which `bytes` and `records` become slices; None: `buffer`. (For a
            short memoryview pass a copy as `buffer`: reading it takes half the time.)
        max_elements: of all arrays together. A byte of a hostile body can cost fifty bytes of
            objects, so bodies that may be long are read with a limit.

    Raises:
        MalformedRequest: cut off, a length beyond the end, invalid UTF-8, too many elements.
    """
    key: Any = cls
    try:
        if max_elements is None:
            read = _reader(key, version)
            message = read(buffer, position, len(buffer), buffer if source is None else source)
        else:
            read = _reader(key, version, bounded=True)
            message = read(
                buffer, position, len(buffer), buffer if source is None else source, max_elements
            )
    except (struct_error, IndexError, UnicodeDecodeError, MalformedRequest) as error:
        raise MalformedRequest(f"{cls.__name__} v{version}: {error}") from None
    return message  # type: ignore[no-any-return]


def write_message(message: Message, version: int, out: bytearray | None = None) -> bytearray:
    """Append the body to `out` (or a new bytearray) and return it."""
    if out is None:
        out = bytearray()
    key: Any = type(message)
    _writer(key, version)(message, out)
    return out


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """(value, position after it) of an unsigned varint of at most five bytes."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedRequest("a varint is longer than five bytes")


def write_uvarint(value: int, out: bytearray) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


@lru_cache(maxsize=1024)
def _uuid(stored: bytes) -> UUID:
    """Make a UUID, whose __init__ costs some 3 us: requests name the same few topics."""
    return UUID(bytes=stored)


def _has(versions: Versions | None, version: int) -> bool:
    return versions is not None and versions[0] <= version <= versions[1]


def _wire_fields(cls: type[Struct], version: int) -> tuple[list[tuple[str, Wire]], list[Any]]:
    """(plain fields in order, tagged dataclass fields by tag) of a class in `version`."""
    plain, tagged = [], []
    for field in fields(cls):
        wire: Wire = field.metadata["wire"]
        if not _has(wire.versions, version):
            continue
        if wire.tag is None:
            plain.append((field.name, wire))
        else:
            tagged.append(field)
    tagged.sort(key=lambda field: field.metadata["wire"].tag)
    return plain, tagged


class _Source:
    """Python source being written, with the names it needs."""

    def __init__(self, flexible: bool, version: int, *, bounded: bool = False) -> None:
        self.bounded = bounded
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "MalformedRequest": MalformedRequest,
            "read_uvarint": read_uvarint,
            "write_uvarint": write_uvarint,
            "new": object.__new__,
            "uuid": _uuid,
        }
        self._variables = 0
        self.flexible = flexible
        self.version = version

    def add(self, depth: int, *lines: str) -> None:
        self.lines += ["    " * depth + line for line in lines]

    def name(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def variable(self, prefix: str) -> str:
        """Name of a local variable that no other part of the function has."""
        self._variables += 1
        return f"{prefix}_{self._variables}"

    def compile(self, function: str) -> Any:
        exec("\n".join(self.lines), self.names)  # noqa: S102 -- our own text, from our own schemas
        return self.names[function]


def _runs(plain: list[tuple[str, Wire]]) -> list[list[tuple[str, Wire]]]:
    """Groups of fields: adjacent fixed-size fields together, all others alone."""
    runs: list[list[tuple[str, Wire]]] = []
    for name, wire in plain:
        fixed = wire.kind in FIXED and not wire.array
        if fixed and runs and runs[-1][-1][1].kind in FIXED and not runs[-1][-1][1].array:
            runs[-1].append((name, wire))
        else:
            runs.append([(name, wire)])
    return runs


def _is_fixed(run: list[tuple[str, Wire]]) -> bool:
    return run[0][1].kind in FIXED and not run[0][1].array


def minimum_size(cls: type[Struct], version: int, *, flexible: bool) -> int:
    """Minimum size of one such struct in bytes: array lengths are checked with it."""
    plain, _ = _wire_fields(cls, version)
    total = 1 if flexible else 0
    for _, wire in plain:
        if wire.kind in FIXED and not wire.array:
            total += Packer(">" + FIXED[wire.kind]).size
        elif wire.array or wire.kind in ("bytes", "records"):
            total += 1 if flexible else 4
        elif wire.kind == "string":
            total += 1 if flexible else 2
        elif wire.struct is not None:
            total += 1 if _has(wire.nullable, version) else 0
    return max(total, 1)


# --- reading -------------------------------------------------------------------------------------


@cache
def _reader(cls: Any, version: int, *, bounded: bool = False) -> Callable[..., Any]:
    """Compile reader(buffer, position, end, source) -> message; see read_message.

    A bounded one has a fifth argument: the number of array elements that are allowed. All structs
    of a message are read by one function, which sets their slots itself: calls of a reader and an
    __init__ for each were a sixth of what a small request cost.
    """
    source = _Source(version >= cls.FLEXIBLE, version, bounded=bounded)
    source.add(0, f"def read(buffer, position, end, source{', budget' if bounded else ''}):")
    _read_struct(source, "value", cls, 1)
    source.add(1, "return value")
    reader: Callable[..., Any] = source.compile("read")
    return reader


def _read_struct(source: _Source, target: str, cls: Any, depth: int) -> None:
    """Write source that reads a struct into `target`: a variable."""
    plain, tagged = _wire_fields(cls, source.version)
    source.add(depth, f"{target} = new({source.name('cls', cls)})")
    is_read = {name for name, _ in plain}
    for field in fields(cls):
        if field.name not in is_read:
            _set_default(source, f"{target}.{field.name}", field, depth)
    for run in _runs(plain):
        if _is_fixed(run):
            packer = Packer(">" + "".join(FIXED[wire.kind] for _, wire in run))
            unpack = source.name("unpack", packer.unpack_from)
            targets = "".join(f"{target}.{name}, " for name, _ in run)
            source.add(
                depth, f"{targets}= {unpack}(buffer, position)", f"position += {packer.size}"
            )
            for name, wire in run:
                if wire.kind == "uuid":
                    source.add(depth, f"{target}.{name} = uuid({target}.{name})")
        else:
            _read_variable(source, f"{target}.{run[0][0]}", run[0][1], depth)
    if source.flexible:
        _read_tags(source, target, tagged, depth)


def _set_default(source: _Source, target: str, field: Any, depth: int) -> None:
    """Write source that sets a field to its default, for versions without the field."""
    wire: Wire = field.metadata["wire"]
    if field.default is not MISSING:
        is_literal = isinstance(field.default, int | str | bytes | None)
        value = repr(field.default) if is_literal else source.name("default", field.default)
        source.add(depth, f"{target} = {value}")
    elif wire.array:
        source.add(depth, f"{target} = []")
    else:
        item = source.variable("item")
        source.add(depth, f"{target} = {item} = new({source.name('cls', wire.struct)})")
        for each in fields(wire.struct):
            _set_default(source, f"{item}.{each.name}", each, depth)


def _read_length(source: _Source, depth: int, *, short: bool) -> None:
    """Write source that leaves the length in `n`; -1 is null."""
    if source.flexible:
        source.add(
            depth,
            "n = buffer[position]",
            "position += 1",
            "if n > 127:",
            "    after = buffer[position]",
            "    if after < 128:",
            "        n += (after << 7) - 128",
            "        position += 1",
            "    else:",
            "        n, position = read_uvarint(buffer, position - 1)",
            "n -= 1",
        )
    else:
        size, kind = (2, "h") if short else (4, "i")
        unpack = source.name("unpack", Packer(f">{kind}").unpack_from)
        source.add(depth, f"n, = {unpack}(buffer, position)", f"position += {size}")


def _read_variable(source: _Source, target: str, wire: Wire, depth: int) -> None:
    nullable = _has(wire.nullable, source.version)
    if wire.struct is not None and not wire.array:
        item = source.variable("item")
        if nullable:
            source.add(
                depth,
                "position += 1",
                "if buffer[position - 1] != 1:",
                f"    {target} = None",
                "else:",
            )
            depth += 1
        _read_struct(source, item, wire.struct, depth)
        source.add(depth, f"{target} = {item}")
        return
    _read_length(source, depth, short=wire.kind == "string" and not wire.array)
    source.add(depth, "if n < 0:")
    source.add(
        depth + 1,
        f"{target} = None"
        if nullable
        else "raise MalformedRequest('null where a value is required')",
    )
    source.add(depth, "else:")
    depth += 1
    if wire.array:
        _read_array(source, target, wire, depth)
        return
    source.add(
        depth,
        "after = position + n",
        "if after > end:",
        "    raise MalformedRequest('a length passes the end of the message')",
    )
    if wire.kind == "string":
        source.add(depth, f"{target} = str(buffer[position:after], 'utf-8')")
    else:
        source.add(depth, f"{target} = source[position:after]")
    source.add(depth, "position = after")


def _read_array(source: _Source, target: str, wire: Wire, depth: int) -> None:
    version = source.version
    if source.bounded:
        source.add(
            depth,
            "budget -= n",
            "if budget < 0:",
            "    raise MalformedRequest('more elements than one request may have')",
        )
    if wire.kind in FIXED:
        size = Packer(">" + FIXED[wire.kind]).size
        packer = source.name("Packer", Packer)
        source.add(
            depth,
            f"if n * {size} > end - position:",
            "    raise MalformedRequest('an array length passes the end of the message')",
            f"items = {packer}('>' + '{FIXED[wire.kind]}' * n).unpack_from(buffer, position)",
            f"position += n * {size}",
        )
        items = "[uuid(item) for item in items]" if wire.kind == "uuid" else "list(items)"
        source.add(depth, f"{target} = {items}")
        return
    if wire.struct is not None:
        smallest = minimum_size(wire.struct, version, flexible=source.flexible)
    else:
        smallest = 1 if source.flexible else (2 if wire.kind == "string" else 4)
    items, item = source.variable("items"), source.variable("item")
    source.add(
        depth,
        f"if n * {smallest} > end - position:",
        "    raise MalformedRequest('an array length passes the end of the message')",
        f"{target} = {items} = []",
        "for _ in range(n):",
    )
    if wire.struct is not None:
        _read_struct(source, item, wire.struct, depth + 1)
    else:
        _read_variable(source, item, Wire(wire.kind, wire.versions), depth + 1)
    source.add(depth + 1, f"{items}.append({item})")


def _read_tags(source: _Source, target: str, tagged: list[Any], depth: int) -> None:
    """Write source that reads a section of tagged fields into the struct in `target`."""
    count, end = source.variable("count"), source.variable("end")
    source.add(depth, f"{count} = buffer[position]", "position += 1", f"if {count}:")
    depth += 1
    source.add(
        depth,
        f"if {count} > 127:",
        f"    {count}, position = read_uvarint(buffer, position - 1)",
        f"    if {count} > {MAX_TAGS}:",
        "        raise MalformedRequest('too many tagged fields')",
        f"for _ in range({count}):",
        "    tag, position = read_uvarint(buffer, position)",
        "    size, position = read_uvarint(buffer, position)",
        f"    {end} = position + size",
        f"    if {end} > end:",
        "        raise MalformedRequest('a tagged field is cut off')",
    )
    for field in tagged:
        wire: Wire = field.metadata["wire"]
        source.add(depth + 1, f"if tag == {wire.tag}:")
        if wire.kind in FIXED and not wire.array:
            unpack = source.name("unpack", Packer(">" + FIXED[wire.kind]).unpack_from)
            source.add(depth + 2, f"v, = {unpack}(buffer, position)")
            if wire.kind == "uuid":
                source.add(depth + 2, "v = uuid(v)")
            source.add(depth + 2, f"{target}.{field.name} = v")
        else:
            _read_variable(source, f"{target}.{field.name}", wire, depth + 2)
        source.add(
            depth + 2,
            f"if position > {end}:",
            "    raise MalformedRequest('a tagged field is longer than its size')",
        )
    source.add(depth + 1, f"position = {end}")


# --- writing -------------------------------------------------------------------------------------


@cache
def _writer(
    cls: Any, version: int, flexible_from: int | None = None
) -> Callable[[Any, bytearray], None]:
    if flexible_from is None:
        assert issubclass(cls, Message)
        flexible_from = cls.FLEXIBLE
    source = _Source(version >= flexible_from, version)
    plain, tagged = _wire_fields(cls, version)
    source.add(0, "def write(value, out):")
    for run in _runs(plain):
        if _is_fixed(run):
            pack = source.name("pack", Packer(">" + "".join(FIXED[w.kind] for _, w in run)).pack)
            values = [f"value.{n}.bytes" if w.kind == "uuid" else f"value.{n}" for n, w in run]
            source.add(1, f"out += {pack}({', '.join(values)})")
        else:
            _write_variable(source, f"value.{run[0][0]}", run[0][1], flexible_from)
    if source.flexible and not tagged:
        source.add(1, "out.append(0)")
    elif source.flexible:
        _write_tags(source, tagged, flexible_from)
    if len(source.lines) == 1:
        source.add(1, "pass")
    writer: Callable[[Any, bytearray], None] = source.compile("write")
    return writer


def _write_length(source: _Source, depth: int, length: str, *, short: bool) -> None:
    if source.flexible:
        source.add(
            depth,
            f"n = {length} + 1",
            "if n < 128:",
            "    out.append(n)",
            "else:",
            "    write_uvarint(n, out)",
        )
    else:
        pack = source.name("pack", Packer(">h" if short else ">i").pack)
        source.add(depth, f"out += {pack}({length})")


def _write_null(source: _Source, depth: int, *, short: bool) -> None:
    if source.flexible:
        source.add(depth, "out.append(0)")
    else:
        null = r"b'\xff\xff'" if short else r"b'\xff\xff\xff\xff'"
        source.add(depth, f"out += {null}")


def _write_variable(
    source: _Source, value: str, wire: Wire, flexible_from: int, depth: int = 1
) -> None:
    nullable = _has(wire.nullable, source.version)
    if wire.struct is not None and not wire.array:
        write = source.name("write", _writer(wire.struct, source.version, flexible_from))
        if nullable:
            source.add(
                depth,
                f"if {value} is None:",
                "    out.append(255)",
                "else:",
                "    out.append(1)",
                f"    {write}({value}, out)",
            )
        else:
            source.add(depth, f"{write}({value}, out)")
        return
    short = wire.kind == "string" and not wire.array
    if nullable:
        source.add(depth, f"if {value} is None:")
        _write_null(source, depth + 1, short=short)
        source.add(depth, "else:")
        depth += 1
    if wire.array:
        _write_length(source, depth, f"len({value})", short=False)
        if wire.struct is not None:
            write = source.name("write", _writer(wire.struct, source.version, flexible_from))
            source.add(depth, f"for item in {value}:", f"    {write}(item, out)")
        elif wire.kind in FIXED:
            packer = source.name("Packer", Packer)
            items = f"[u.bytes for u in {value}]" if wire.kind == "uuid" else value
            source.add(
                depth, f"out += {packer}('>' + '{FIXED[wire.kind]}' * len({value})).pack(*{items})"
            )
        else:
            source.add(depth, f"for item in {value}:")
            _write_variable(
                source, "item", Wire(wire.kind, wire.versions), flexible_from, depth + 1
            )
    elif wire.kind == "string":
        source.add(depth, f"text = {value}.encode()")
        _write_length(source, depth, "len(text)", short=True)
        source.add(depth, "out += text")
    else:
        _write_length(source, depth, f"len({value})", short=False)
        source.add(depth, f"out += {value}")


def _write_tags(source: _Source, tagged: list[Any], flexible_from: int) -> None:
    """Write source for tagged fields; fields with default values are not written, as in Kafka's own
    classes.
    """
    source.add(1, "tags = []")
    for field in tagged:
        wire: Wire = field.metadata["wire"]
        if field.default is not MISSING:
            default = source.name("default", field.default)
        else:
            assert field.default_factory is not MISSING
            default = source.name("default", field.default_factory())
        source.add(1, f"if value.{field.name} != {default}:")
        source.add(2, "whole, out = out, bytearray()")
        if wire.kind in FIXED and not wire.array:
            pack = source.name("pack", Packer(">" + FIXED[wire.kind]).pack)
            text = f"value.{field.name}.bytes" if wire.kind == "uuid" else f"value.{field.name}"
            source.add(2, f"out += {pack}({text})")
        else:
            _write_variable(source, f"value.{field.name}", wire, flexible_from, 2)
        source.add(2, f"tags.append(({wire.tag}, out))", "out = whole")
    source.add(
        1,
        "write_uvarint(len(tags), out)",
        "for tag, body in tags:",
        "    write_uvarint(tag, out)",
        "    write_uvarint(len(body), out)",
        "    out += body",
    )
