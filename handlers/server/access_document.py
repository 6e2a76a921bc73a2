"""docs/access.md, made from what each API declares: `make generate`. A dev tool.

python -m bradbury.handlers.server.access_document        writes the file
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...protocol.security.acl_binding import ResourceType
from ..ports.access import Access
from .table import APIS

PATH = Path(__file__).resolve().parents[2] / "docs" / "access.md"

INTRODUCTION = """\
# Access, API by API

Which operations a client must be allowed, with an authorizer ([security.md](security.md)). They are
Apache Kafka 4.1's, and so are the errors. A line without an error refuses nothing: what may not be
seen is left out, or another line counts. READ, WRITE, DELETE and ALTER include DESCRIBE;
ALTER_CONFIGS includes DESCRIBE_CONFIGS. This file is made from the code by `make generate`.

| API | operation | on | without it | remarks |
|---|---|---|---|---|
"""
_ON = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.CLUSTER: "cluster",
    ResourceType.TRANSACTIONAL_ID: "transactional id",
    ResourceType.DELEGATION_TOKEN: "delegation token",
    ResourceType.USER: "user",
}


def document() -> str:
    lines = [
        line
        for api in sorted(APIS.values(), key=lambda api: api.name)
        for line in _lines(api.name, api.access)
    ]
    return INTRODUCTION + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _lines(name: str, access: Access | None) -> Iterator[tuple[str, ...]]:
    if access is None or not access.needs:
        yield name, "", "", "", "everybody" if access is not None else "nobody"
        return
    for number, need in enumerate(access.needs):
        remark = need.what
        if number == 0 and access.remark:
            remark = "; ".join(filter(None, (need.what, access.remark)))
        yield (
            "" if number else name,
            need.operation.name,
            _ON[need.resource],
            f"`{need.refusal}`" if need.refusal else "",
            remark,
        )


if __name__ == "__main__":
    PATH.write_text(document())
