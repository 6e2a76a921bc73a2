"""Does a follower see each answer's own bytes, although one buffer serves one answer after another?"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from bradbury.actors.peer_connection import KEPT_BYTES, SMALL_IN_A_ROW, PeerConnection
from bradbury.protocol.codec import write_message
from bradbury.protocol.header import begin_response, close_frame
from bradbury.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

VERSION = 17
FIRST_CORRELATION_ID = 1
LARGE = 1_000_000


def records_of(number: int, size: int) -> bytes:
    return random.Random(number).randbytes(size)


async def served(sizes: list[int], ask: Callable[[PeerConnection], Awaitable[None]]) -> None:
    """`ask` a peer whose answers have records of these sizes, one after the other."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number, size in enumerate(sizes):
            length = await reader.readexactly(4)
            await reader.readexactly(int.from_bytes(length, "big"))
            data = PartitionData(partition_index=0, records=records_of(number, size))
            topic = FetchableTopicResponse(topic_id=UUID(int=1), partitions=[data])
            out = begin_response(FIRST_CORRELATION_ID + number, flexible_header=True)
            writer.write(close_frame(write_message(FetchResponse(responses=[topic]), VERSION, out)))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    connection = await PeerConnection.open(
        host, port, client_id="test", max_answer_bytes=2 * KEPT_BYTES
    )
    try:
        await ask(connection)
    finally:
        connection.close()
        server.close()
        await server.wait_closed()


async def fetch(connection: PeerConnection, *, is_used_up: bool) -> memoryview:
    answer = await connection.request(
        FetchRequest(topics=[], forgotten_topics_data=[]),
        FetchResponse,
        VERSION,
        timeout_seconds=60,
        is_used_up=is_used_up,
    )
    records = answer.responses[0].partitions[0].records
    assert records is not None
    return memoryview(records)


@pytest.mark.parametrize(
    "sizes",
    [
        [LARGE, LARGE, LARGE],
        [100, 70_000, LARGE, 70_000, 100, 2 * LARGE, 500],
        [LARGE, KEPT_BYTES + 1, LARGE],
    ],
)
def test_each_answer_has_its_own_records(sizes: list[int]) -> None:
    async def ask(connection: PeerConnection) -> None:
        for number, size in enumerate(sizes):
            assert await fetch(connection, is_used_up=True) == records_of(number, size)

    asyncio.run(served(sizes, ask))


def test_an_answer_that_is_not_used_up_keeps_its_records() -> None:
    async def ask(connection: PeerConnection) -> None:
        await fetch(connection, is_used_up=True)
        kept = await fetch(connection, is_used_up=False)
        await fetch(connection, is_used_up=True)
        assert kept == records_of(1, LARGE)

    asyncio.run(served([LARGE, LARGE, LARGE], ask))


def test_large_answers_share_one_buffer_which_is_given_back_when_nothing_comes() -> None:
    sizes = [LARGE, LARGE, *[0] * SMALL_IN_A_ROW, LARGE]

    async def ask(connection: PeerConnection) -> None:
        first = (await fetch(connection, is_used_up=True)).obj
        assert (await fetch(connection, is_used_up=True)).obj is first
        for _ in range(SMALL_IN_A_ROW):
            await fetch(connection, is_used_up=True)
        assert (await fetch(connection, is_used_up=True)).obj is not first

    asyncio.run(served(sizes, ask))
