"""A running node asked as anybody, under any rules, and what the answer says and leaves behind."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from typing import Any

from bradbury.actors.node import Node
from bradbury.cluster.control.access.acl_control import AclToCreate, CreateAcls, DeleteAcls
from bradbury.handlers.ports.client_session import ClientSession
from bradbury.handlers.server.dispatch import PeerError, dispatch
from bradbury.handlers.server.table import APIS
from bradbury.protocol.codec import read_message, write_message
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.header import has_flexible_response_header, write_request_header
from bradbury.protocol.schema import Message
from bradbury.protocol.security.acl_binding import AclBinding, AclFilter

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


async def asked(node: Node, request: Message, version: int, session: ClientSession) -> Any | None:
    """The response; None if the connection was closed."""
    api = APIS[request.API_KEY]
    flexible = version >= api.first_flexible
    frame = write_request_header(request.API_KEY, version, 1, "matrix", flexible=flexible)
    write_message(request, version, frame)
    try:
        answer = dispatch(memoryview(frame[4:]), node, "10.0.0.1:1", session=session)
        chunks = await asyncio.wait_for(answer, 20) if inspect.isawaitable(answer) else answer
    except PeerError:
        return None
    assert chunks is not None
    body = b"".join(
        bytes(chunk)
        for chunk in chunks
        if isinstance(chunk, bytes | bytearray | memoryview)  # others are slices of files
    )
    start = 9 if has_flexible_response_header(request.API_KEY, version, api.first_flexible) else 8
    if api.name == "Fetch":
        return body
    module = import_module(type(request).__module__)
    response = getattr(module, type(request).__name__.replace("Request", "Response"))
    return read_message(response, version, memoryview(body), start)


def errors(answer: Any) -> set[int]:
    """Every error code in an answer, wherever it is."""
    if isinstance(answer, bytes):
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED.to_bytes(2, "big") + bytes(
            [255] * 8
        )  # before a high watermark
        return {ErrorCode.TOPIC_AUTHORIZATION_FAILED} if refused in answer else {0}
    found: set[int] = set()
    for field in fields(answer):
        value = getattr(answer, field.name)
        if field.name.endswith("error_code"):
            found.add(value)
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "__dataclass_fields__"):
                found |= errors(each)
    return found


async def set_rules(node: Node, rules: set[AclBinding]) -> None:
    if set(node.image.acls.values()) == rules:
        return
    await node.controller.change(DeleteAcls(filters=(AclFilter(),)), timeout_ms=5_000)
    acls = tuple(AclToCreate(acl_id=str(node.new_id()), binding=rule) for rule in rules)
    outcomes = await node.controller.change(CreateAcls(acls=acls), timeout_ms=5_000)
    assert all(outcome.code == 0 for outcome in outcomes), outcomes
    assert set(node.image.acls.values()) == rules


def trace(node: Node) -> Any:
    """What requests change: metadata, records of topics and coordinators, members of groups."""
    assert node.storage.partition_host is not None
    assert node.groups is not None
    groups = []
    with suppress(Exception):
        groups = [
            (group.group_id, group.group_state)
            for shard in node.groups.shards()
            for group in shard.list_groups()
        ]
    return (
        node.image.offset,
        [
            (replica.log.log_start_offset, replica.log.log_end_offset)
            for replica in node.storage.partition_host.replicas
        ],
        sorted(groups),
    )
