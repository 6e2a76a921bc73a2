"""`bradbury.SchemaRegistry`: schemas by id and by subject, from a registry with Confluent's API.

    registry = bradbury.SchemaRegistry("http://localhost:8081")
    registry.latest("flights-value")

Invariants: an id always stands for the same schema, so each is requested once per process;
the latest version of a subject is requested each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from .registered_schema import RegisteredSchema, SchemaType
from .registry_request import RegistryAddress, RegistryFailed, ask

TIMEOUT_S: Final = 10.0
MOST_DEPTH: Final = 32
"""Maximum depth of references that is followed."""
_TYPES: Final = ("AVRO", "JSON", "PROTOBUF")

_kept: dict[str, dict[int, RegisteredSchema]] = {}
"""Schemas by id, for each registry's URL."""


class SchemaRegistry:
    """Client of one schema registry.

    url: http:// or https://, with USER:PASSWORD@ before the host if the registry requires them.

    timeout_s: seconds for one try; see registry_request for the failures that are retried.
    Threads may share one. Certificates are checked by those of the system, or of SSL_CERT_FILE.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Check the address; nothing is requested yet. Raises ValueError: it is no address."""
        self._address = RegistryAddress(url)
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"SchemaRegistry({self._address.shown!r})"

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Schema of an id. Raises NotInRegistry, RegistryFailed."""
        return self._schema(schema_id, 0)

    def latest(self, subject: str) -> RegisteredSchema:
        """Newest version of a subject. Raises NotInRegistry, RegistryFailed."""
        return self._schema(self._id_of(subject, "latest"), 0)

    def register(
        self,
        subject: str,
        schema: str,
        schema_type: SchemaType,
        references: Sequence[Mapping[str, Any]] = (),
    ) -> int:
        """Register a schema as a version of the subject, unless it is one; return its id.

        references: {"name": ..., "subject": ..., "version": ...} of each.

        Raises:
            RegistryFailed: it is no schema, not compatible with earlier versions, or not allowed.
        """
        body = _body(schema, schema_type, references)
        answer = self._asked(f"/subjects/{_quoted(subject)}/versions", _schema_of(subject), body)
        return self._number(answer, "id")

    def find(
        self,
        subject: str,
        schema: str,
        schema_type: SchemaType,
        references: Sequence[Mapping[str, Any]] = (),
    ) -> tuple[int, int]:
        """Id of a schema that is registered, and its version in the subject.

        Raises:
            NotInRegistry: it is no version of the subject. RegistryFailed.
        """
        body = _body(schema, schema_type, references)
        answer = self._asked(f"/subjects/{_quoted(subject)}", _schema_of(subject), body)
        return self._number(answer, "id"), self._number(answer, "version")

    def _id_of(self, subject: str, version: int | str) -> int:
        path = f"/subjects/{_quoted(subject)}/versions/{version}"
        what = f"subject {subject!r}" + (f", version {version}" if version != "latest" else "")
        return self._number(self._asked(path, what), "id")

    def _schema(self, schema_id: int, depth: int) -> RegisteredSchema:
        # Concurrent threads may each send the request, and store equal schemas.
        kept = _kept.setdefault(self._address.url, {})
        found = kept.get(schema_id)
        if found is None:
            found = kept[schema_id] = self._asked_schema(schema_id, depth)
        return found

    def _asked_schema(self, schema_id: int, depth: int) -> RegisteredSchema:
        if depth > MOST_DEPTH:
            raise RegistryFailed(
                f"the schema registry {self._address.shown}: the references of schemas lie more "
                f"than {MOST_DEPTH} deep; make them shorter"
            )
        what = f"schema id {schema_id}"
        answer = self._asked(f"/schemas/ids/{schema_id}", what)
        try:
            schema_type: Any = answer.get("schemaType") or "AVRO"
            text = str(answer["schema"])
            named = [
                (str(each["name"]), str(each["subject"]), int(each["version"]))
                for each in answer.get("references") or ()
            ]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._nonsense(answer) from None
        if schema_type not in _TYPES:
            raise RegistryFailed(
                f"{what} of {self._address.shown} is of the type {schema_type}; there are "
                f"{', '.join(_TYPES)} here"
            )
        if schema_type == "PROTOBUF":
            # There is no compiler for .proto files here, but the registry has one.
            described = self._asked(f"/schemas/ids/{schema_id}?format=serialized", what)
            text = str(described.get("schema", text)) if isinstance(described, dict) else text
        references = tuple(
            (name, self._schema(self._id_of(subject, version), depth + 1))
            for name, subject, version in named
        )
        return RegisteredSchema(schema_id, schema_type, text, references)

    def _asked(self, path: str, what: str, body: dict[str, Any] | None = None) -> Any:
        return ask(self._address, path, what, body, timeout_s=self._timeout_s)

    def _number(self, answer: Any, name: str) -> int:
        found = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(found, int):
            raise self._nonsense(answer)
        return found

    def _nonsense(self, answer: Any) -> RegistryFailed:
        return RegistryFailed(
            f"what answers at {self._address.shown} is no schema registry: it says "
            f"{str(answer)[:100]!r}; give the address of one that has Confluent's API"
        )


def _body(
    schema: str, schema_type: SchemaType, references: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema}
    if schema_type != "AVRO":  # old registries know no other type, nor its name
        body["schemaType"] = schema_type
    if references:
        body["references"] = [dict(each) for each in references]
    return body


def _schema_of(subject: str) -> str:
    return f"this schema of subject {subject!r}"


def _quoted(subject: str) -> str:
    return quote(subject, safe="")
