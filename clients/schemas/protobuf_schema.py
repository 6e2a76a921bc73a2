"""Protobuf descriptors <-> the text that a registry stores.

A registry returns a file's descriptor in base64 for `format=serialized`, and accepts one in place
of a .proto file; Confluent's clients use both. So nothing here parses .proto files.

The files of google/protobuf/ that a file imports come from the library: clients register none of
them.
"""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .registered_schema import RegisteredSchema

BUILT_IN: Final = "google/protobuf/"
_FILE_NAME: Final = "schema-{}.proto"


class NoDescriptor(ValueError):
    """A Protobuf schema of which the registry returns the .proto text only, not its descriptor."""


class ProtobufFile:
    """A file of Protobuf messages, made of a registered schema and its references.

    Raises NoDescriptor; ValueError: it does not fit together.
    """

    def __init__(self, registered: RegisteredSchema) -> None:
        from google.protobuf import descriptor_pool

        pool = descriptor_pool.DescriptorPool()
        own = _FILE_NAME.format(registered.schema_id)
        files = [
            _file(name, one) for name, one in (*registered.all_references(), (own, registered))
        ]
        known = {file.name for file in files}
        try:
            for file in files:
                for name in file.dependency:
                    _add_built_in(pool, name, known)
                pool.Add(file)
            self._file = pool.FindFileByName(own)
        except (TypeError, KeyError) as error:  # what the two implementations of protobuf raise
            said = " ".join(str(error).split())[:300]
            raise ValueError(
                f"the Protobuf schema with id {registered.schema_id} does not fit together with "
                f"its references: {said}"
            ) from None

    def message(self, indexes: Sequence[int]) -> Any:
        """Descriptor of the message with these indexes. Raises ValueError: there is none."""
        found: Any = None
        for index in indexes:
            within = self._messages() if found is None else found.nested_types
            if index >= len(within):
                raise ValueError(f"its schema has no message with the indexes {list(indexes)}")
            found = within[index]
        return found

    def _messages(self) -> list[Any]:
        return list(self._file.message_types_by_name.values())  # in the order of the file


def message_class(descriptor: Any) -> Any:
    """Class of a message, as protoc would have generated it."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(descriptor)


def message_indexes(descriptor: Any) -> tuple[int, ...]:
    """Indexes of a message in its file, from the outermost message inwards."""
    indexes: list[int] = []
    current = descriptor
    while current is not None:
        outer = current.containing_type
        within = (
            outer.nested_types
            if outer is not None
            else list(current.file.message_types_by_name.values())
        )
        names = [each.full_name for each in within]
        indexes.insert(0, names.index(current.full_name))
        current = outer
    return tuple(indexes)


def described(file: Any) -> str:
    """Descriptor of a file in base64, which a registry accepts in place of the .proto text."""
    return base64.standard_b64encode(file.serialized_pb).decode()


def dependencies(file: Any) -> Iterator[Any]:
    """Imported files that must be registered, too."""
    for each in file.dependencies:
        if not each.name.startswith(BUILT_IN):
            yield each


def _add_built_in(pool: Any, name: str, known: set[str]) -> None:
    """Add a file of google/protobuf with its imports.

    known: names of the files that the pool has, or will have.
    """
    if name in known or not name.startswith(BUILT_IN):
        return
    try:
        module = importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
    except ImportError:
        return  # the pool refuses the file that imports it, with the name
    known.add(name)
    for each in module.DESCRIPTOR.dependencies:
        _add_built_in(pool, each.name, known)
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _file(name: str, registered: RegisteredSchema) -> Any:
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    found = descriptor_pb2.FileDescriptorProto()
    try:
        found.ParseFromString(base64.b64decode(registered.schema.encode(), validate=True))
    except (binascii.Error, DecodeError):
        raise NoDescriptor(
            f"the registry has the Protobuf schema with id {registered.schema_id} only as the text "
            "of a .proto file (it does not know format=serialized); give the class that protoc has "
            "generated of it"
        ) from None
    found.name = name  # the name by which others import it may differ from the descriptor's own
    return found
