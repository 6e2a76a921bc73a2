"""Does a follower see each answer's own bytes, although one buffer serves one answer after another?"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from bradbury.actors.network.peer_connection import KEPT_BYTES, SMALL_IN_A_ROW, PeerConnection
from bradbury.protocol.codec import write_message
from bradbury.protocol.errors import ConnectionFailed
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


async def fetch(connection: PeerConnection, *, reuses_buffer: bool) -> memoryview:
    answer = await connection.request(
        FetchRequest(topics=[], forgotten_topics_data=[]),
        FetchResponse,
        VERSION,
        timeout_seconds=60,
        reuses_buffer=reuses_buffer,
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
            assert await fetch(connection, reuses_buffer=True) == records_of(number, size)

    asyncio.run(served(sizes, ask))


def test_an_answer_that_is_not_used_up_keeps_its_records() -> None:
    async def ask(connection: PeerConnection) -> None:
        await fetch(connection, reuses_buffer=True)
        kept = await fetch(connection, reuses_buffer=False)
        await fetch(connection, reuses_buffer=True)
        assert kept == records_of(1, LARGE)

    asyncio.run(served([LARGE, LARGE, LARGE], ask))


def test_large_answers_share_one_buffer_which_is_given_back_when_nothing_comes() -> None:
    sizes = [LARGE, LARGE, *[0] * SMALL_IN_A_ROW, LARGE]

    async def ask(connection: PeerConnection) -> None:
        first = (await fetch(connection, reuses_buffer=True)).obj
        assert (await fetch(connection, reuses_buffer=True)).obj is first
        for _ in range(SMALL_IN_A_ROW):
            await fetch(connection, reuses_buffer=True)
        assert (await fetch(connection, reuses_buffer=True)).obj is not first

    asyncio.run(served(sizes, ask))


def peer(
    answer: Callable[[asyncio.StreamWriter], Awaitable[None]],
) -> Callable[..., Awaitable[None]]:
    """A server that reads one request and does `answer`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = await reader.readexactly(4)
        await reader.readexactly(int.from_bytes(length, "big"))
        await answer(writer)

    return serve


async def asked(
    answer: Callable[[asyncio.StreamWriter], Awaitable[None]], timeout_seconds: float = 60
) -> bytes:
    server = await asyncio.start_server(peer(answer), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    connection = await PeerConnection.open(host, port, client_id="test", max_answer_bytes=LARGE)
    try:
        found = await connection.request(
            FetchRequest(topics=[], forgotten_topics_data=[]),
            FetchResponse,
            VERSION,
            timeout_seconds=timeout_seconds,
        )
        return bytes(found.responses[0].partitions[0].records or b"")
    finally:
        connection.close()
        server.close()
        await server.wait_closed()


def frame_of(size: int) -> bytes:
    data = PartitionData(partition_index=0, records=records_of(0, size))
    topic = FetchableTopicResponse(topic_id=UUID(int=1), partitions=[data])
    out = begin_response(FIRST_CORRELATION_ID, flexible_header=True)
    return bytes(close_frame(write_message(FetchResponse(responses=[topic]), VERSION, out)))


def test_an_answer_may_come_byte_by_byte() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        for byte in frame_of(100):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()

    assert asyncio.run(asked(answer)) == records_of(0, 100)


@pytest.mark.parametrize("sent", [0, 3, 4, 50])
def test_a_peer_that_ends_within_an_answer_is_noticed(sent: int) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(frame_of(100)[:sent])
        writer.close()

    with pytest.raises(ConnectionFailed, match="closed the connection"):
        asyncio.run(asked(answer))


@pytest.mark.parametrize("sent", [0, 50])
def test_a_peer_that_falls_silent_is_given_up(sent: int) -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(frame_of(100)[:sent])
        await writer.drain()
        ended = asyncio.Event()
        asyncio.get_running_loop().call_later(1, ended.set)
        await ended.wait()
        writer.close()

    with pytest.raises(ConnectionFailed, match="does not answer"):
        asyncio.run(asked(answer, timeout_seconds=0.2))


def test_an_answer_that_is_longer_than_allowed_is_not_taken() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write((LARGE + 1).to_bytes(4, "big"))
        writer.close()

    with pytest.raises(ConnectionFailed, match=f"an answer of {LARGE + 1} bytes"):
        asyncio.run(asked(answer))
