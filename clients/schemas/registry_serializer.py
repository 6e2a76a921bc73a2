"""`bradbury.RegistrySerializer`: values -> bytes that begin with the id of a registry's schema.

    serialize = bradbury.RegistrySerializer("http://localhost:8081", "flights", "avro", schema)
    producer.send("flights", serialize({"tail": "N14228", "delay": 2.0}))

Invariants:
    All requests to the registry are made by the constructor. A serializer can be pickled, and
    tasks of Ray and Spark that get one need no registry.
    Its bytes are those of Confluent's serializers (tests/clients/schemas compares them).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...discovery.extras import install_command
from .avro_errors import describe_error
from .protobuf_schema import dependencies, described, message_indexes
from .registered_schema import SCHEMA_TYPES, RegisteredSchema
from .schema_registry import SchemaRegistry
from .wire_format import encode_message_indexes, prefix

FORMATS: Final = tuple(SCHEMA_TYPES)


class RegistrySerializer:
    """Callable that makes bytes of a value; None stays None, a tombstone.

    Values: for avro what fastavro writes (a dict for a record), for json what the json module
    writes, checked by the JSON Schema; for protobuf messages of the class.
    """

    def __init__(
        self,
        registry: str | SchemaRegistry,
        topic: str,
        value_format: str,
        schema: Any = None,
        *,
        subject: str | None = None,
        register: bool = True,
    ) -> None:
        """Register the schema, or look it up.

        Args:
            registry: its address, http://HOST:PORT, or a SchemaRegistry.
            topic: topic of the values; it names the subject.
            value_format: "avro", "json" or "protobuf".
            schema: an Avro schema or a JSON Schema, as a dict or JSON, or the class that protoc has
                generated; None: the latest of the subject (not with protobuf).
            subject: None: TOPIC-value, as of Confluent's serializers; for keys say TOPIC-key.
            register: False: it must be a version of the subject already.

        Raises:
            ValueError: an argument is invalid; fastavro is missing.
            NotInRegistry: the subject has no such schema (register=False), or no schema at all.
            RegistryFailed: the registry refuses the schema, or cannot be asked.
        """
        if value_format not in FORMATS:
            raise ValueError(
                f"value_format is {value_format!r}; use {', '.join(map(repr, FORMATS))}"
            )
        if isinstance(registry, str):
            registry = SchemaRegistry(registry)
        subject = f"{topic}-value" if subject is None else subject
        self._format = value_format
        self._references: dict[str, str] = {}
        if value_format == "protobuf":
            if not hasattr(schema, "DESCRIPTOR"):
                raise ValueError("schema must be a class that protoc has generated")
            file = schema.DESCRIPTOR.file
            references = _registered_files(registry, file, register=register)
            text = described(file)
            self._indexes = encode_message_indexes(message_indexes(schema.DESCRIPTOR))
            self._schema: Any = schema
        elif schema is None:
            latest = registry.latest(subject)
            _check_type(latest, value_format, subject)
            self._references = {name: one.schema for name, one in latest.all_references()}
            self._schema = latest.schema
        else:
            text = schema if isinstance(schema, str) else json.dumps(_without_marks(schema))
            references = []
            self._schema = text
        self._encode = self._encoder()  # checks the schema before it is registered
        if schema is None:
            self.schema_id = latest.schema_id
        elif register:
            self.schema_id = registry.register(
                subject, text, SCHEMA_TYPES[value_format], references
            )
        else:
            self.schema_id, _ = registry.find(subject, text, SCHEMA_TYPES[value_format], references)
        self._prefix = prefix(self.schema_id)

    def __getstate__(self) -> dict[str, Any]:
        return {name: one for name, one in vars(self).items() if name != "_encode"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._encode = self._encoder()

    def __call__(self, value: Any) -> bytes | None:
        """Bytes of a value. Raises ValueError: it does not match the schema."""
        return None if value is None else self._prefix + self._encode(value)

    def column(self, values: Any) -> Any:
        """Binary Arrow column of the values of a table (its rows), an Arrow column or a sequence.

        Raises ValueError: a value does not match the schema; the text has its number.
        """
        import pyarrow as pa

        rows = values
        if hasattr(values, "to_pylist"):
            rows = values.to_pylist(maps_as_pydicts="strict")
        found = []
        for place, value in enumerate(rows):
            try:
                found.append(self(value))
            except ValueError as error:
                raise ValueError(f"value {place}: {error}") from None
        return pa.array(found, pa.binary())

    def _encoder(self) -> Callable[[Any], bytes]:
        match self._format:
            case "avro":
                return _avro_encoder(self._schema, self._references)
            case "json":
                return _json_encoder(self._schema, self._references)
        return self._message

    def _message(self, value: Any) -> bytes:
        if not isinstance(value, self._schema):
            raise ValueError(  # noqa: TRY004 -- one kind of error for what is not of the schema
                f"{type(value).__name__} is not a {self._schema.DESCRIPTOR.full_name}"
            )
        content: bytes = value.SerializeToString()
        return self._indexes + content


def _without_marks(schema: Any) -> Any:
    """Schema without the marks that fastavro.parse_schema leaves in what it returns."""
    if not isinstance(schema, Mapping):
        return schema
    return {name: one for name, one in schema.items() if not str(name).startswith("__")}


def _check_type(latest: RegisteredSchema, value_format: str, subject: str) -> None:
    if latest.schema_type != SCHEMA_TYPES[value_format]:
        raise ValueError(
            f"the latest schema of subject {subject!r} is of the type {latest.schema_type}, and "
            f"value_format is {value_format!r}"
        )


def _registered_files(
    registry: SchemaRegistry, file: Any, *, register: bool
) -> list[Mapping[str, Any]]:
    """References to the files that a .proto file imports.

    Their subjects are the names of the files, as with Confluent's clients.
    """
    found: list[Mapping[str, Any]] = []
    for each in dependencies(file):
        references = _registered_files(registry, each, register=register)
        if register:
            registry.register(each.name, described(each), "PROTOBUF", references)
        _, version = registry.find(each.name, described(each), "PROTOBUF", references)
        found.append({"name": each.name, "subject": each.name, "version": version})
    return found


def _avro_encoder(schema: str, references: Mapping[str, str]) -> Callable[[Any], bytes]:
    try:
        import fastavro
    except ImportError:
        raise ValueError(
            f"value_format='avro' needs fastavro, which is missing: {install_command('avro')}"
        ) from None
    named: dict[str, Any] = {}
    for text in references.values():
        fastavro.parse_schema(json.loads(text), named_schemas=named)
    try:
        parsed = fastavro.parse_schema(json.loads(schema), named_schemas=named)
    except Exception as error:  # noqa: BLE001 -- it has several, and KeyError and TypeError
        raise ValueError(f"schema is not an Avro schema: {describe_error(error)}") from None

    def encode(value: Any) -> bytes:
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, parsed, value)
        except Exception as error:  # noqa: BLE001 -- any error that a value of another type causes
            raise ValueError(
                f"does not match the schema: {type(error).__name__}: {error}"
            ) from None
        return stream.getvalue()

    return encode


def _json_encoder(schema: str, references: Mapping[str, str]) -> Callable[[Any], bytes]:
    import jsonschema.validators
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    try:
        content = json.loads(schema)
        kind = jsonschema.validators.validator_for(content, jsonschema.Draft7Validator)
        kind.check_schema(content)
    except (ValueError, jsonschema.SchemaError) as error:
        said = getattr(error, "message", None) or error
        raise ValueError(f"schema is not a JSON Schema: {said}") from None
    others: Any = Registry().with_resources(
        (name, Resource.from_contents(json.loads(text), DRAFT7))
        for name, text in references.items()
    )
    validator = kind(content, registry=others)

    def encode(value: Any) -> bytes:
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except TypeError as error:
            raise ValueError(f"does not match the schema: {error}") from None
        for wrong in validator.iter_errors(value):
            raise ValueError(f"does not match the schema: {wrong.json_path}: {wrong.message}")
        return text.encode()

    return encode
