"""A schema registry for tests: HTTP, with the calls of Confluent's API that clients of it make.

It keeps text and compares text; it knows no schema language. Protobuf is kept as it is registered:
by its descriptor in base64, or, where `describes_protobuf` is off, as the text of the file only.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import unquote, urlsplit

_first_ids = count(100, 1_000)
"""Clients keep ids for the process, and another server may get the same port."""


@dataclass
class RegistryServer:
    """answers: (status, body) of the next requests, whatever they are; user: "name:password"."""

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    answers: list[tuple[int, str]] = field(default_factory=list)
    user: str | None = None
    latency_s: float = 0.0
    refuses: tuple[int, str] | None = None
    describes_protobuf: bool = True
    requests: list[str] = field(default_factory=list)
    first_id: int = field(default_factory=lambda: next(_first_ids))

    def add(
        self,
        subject: str,
        schema: Any,
        schema_type: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Its id: that of the same schema, or a new one."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        kept: dict[str, Any] = {"schema": text, "references": references or []}
        if schema_type != "AVRO":
            kept["schemaType"] = schema_type
        found = next((each for each, one in self.schemas.items() if one == kept), None)
        schema_id = self.first_id + len(self.schemas) if found is None else found
        self.schemas[schema_id] = kept
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        parts = urlsplit(target)
        path = [unquote(each) for each in parts.path.split("/")[1:]]
        match method, path:
            case "GET", ["schemas", "ids", number]:
                kept = self.schemas.get(int(number))
                if kept is None:
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                if "format=serialized" in parts.query and not self.describes_protobuf:
                    return 200, {**kept, "schema": 'syntax = "proto3"; message Flight {}'}
                return 200, kept
            case "GET", ["subjects", subject, "versions", version]:
                ids = self.subjects.get(subject)
                if ids is None:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                place = len(ids) if version == "latest" else int(version)
                if place > len(ids):
                    return 404, {"error_code": 40402, "message": f"Version {version} not found."}
                return 200, self._version(subject, place)
            case "POST", ["subjects", subject, *rest] if rest in ([], ["versions"]):
                schema_type = body.get("schemaType") or "AVRO"
                if rest:
                    if self.refuses is not None:
                        status, message = self.refuses
                        return status, {"error_code": status, "message": message}
                    schema_id = self.add(
                        subject, body["schema"], schema_type, body.get("references")
                    )
                    return 200, {"id": schema_id}
                for place, schema_id in enumerate(self.subjects.get(subject, ()), 1):
                    kept = self.schemas[schema_id]
                    same = (body["schema"], schema_type, body.get("references") or [])
                    if (kept["schema"], kept.get("schemaType", "AVRO"), kept["references"]) == same:
                        return 200, self._version(subject, place)
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, "not found"

    def _version(self, subject: str, place: int) -> dict[str, Any]:
        schema_id = self.subjects[subject][place - 1]
        return {
            "subject": subject,
            "version": place,
            "id": schema_id,
            **self.schemas[schema_id],
        }


@contextmanager
def registry_server(port: int = 0) -> Iterator[RegistryServer]:
    """One at `port`; 0: at any free one."""
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            registry.requests.append(f"{self.command} {self.path}")
            time.sleep(registry.latency_s)
            if registry.answers:
                status, content = registry.answers.pop(0)
            else:
                status, answer = self._allowed() or registry.answer(self.command, self.path, body)
                content = answer if isinstance(answer, str) else json.dumps(answer)
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", content)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            with suppress(ConnectionError):  # who did not wait for it has gone
                self.end_headers()
                self.wfile.write(content.encode())

        def _allowed(self) -> tuple[int, Any] | None:
            if registry.user is None:
                return None
            expected = f"Basic {base64.b64encode(registry.user.encode()).decode()}"
            if self.headers.get("Authorization") == expected:
                return None
            return 401, {"error_code": 401, "message": "Unauthorized"}

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
