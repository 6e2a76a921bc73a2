"""One socket from a node to another: a request, its answer, the next request.

Used by followers. Requests and responses are encoded by request_frame; a frame is received directly
into one buffer, and the records of the decoded response are views of it. Any failure ends the
connection.

Under load a follower reuses the buffer for successive responses: a new buffer for each would be
zeroed, and on most systems be made of pages that the kernel has to find.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from struct import Struct
from typing import TypeVar, cast

from ...protocol.errors import ConnectionFailed, MalformedRequest
from ...protocol.request_frame import (
    MAX_CORRELATION_ID,
    correlation_id_of,
    read_response,
    write_request,
)
from ...protocol.schema import Message
from ..loop.carry_through import within
from .tls_socket import TlsSocket

R = TypeVar("R", bound=Message)
CONNECT_SECONDS = 5.0
PROBE_SECONDS = 1.0
KEPT_BYTES = 16 * 1024**2
"""Maximum size of the buffer that is kept between answers; a larger one serves one answer."""
SMALL_BYTES = 64 * 1024
SMALL_IN_A_ROW = 16
"""Number of small answers in a row after which the buffer is released."""
_SIZE = Struct(">i")


async def is_port_closed(host: str, port: int) -> bool:
    """Whether the machine answers that the port is closed."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False


class PeerConnection:
    """A connection to another node, made by `open`. One request at a time."""

    def __init__(
        self,
        sock: socket.socket,
        client_id: str,
        max_answer_bytes: int,
        secured: TlsSocket | None = None,
    ) -> None:
        self._socket = sock
        self._secured = secured
        self._client_id = client_id
        self._max_answer_bytes = max_answer_bytes
        self._correlation_id = 0
        self._size = bytearray(4)
        self._buffer = bytearray()
        self._small_in_a_row = 0

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        max_answer_bytes: int,
        tls: ssl.SSLContext | None = None,
    ) -> PeerConnection:
        """Connect to a node. Raises ConnectionFailed."""
        loop = asyncio.get_running_loop()
        sock: socket.socket | None = None
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = found[0]
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await within(CONNECT_SECONDS, loop.sock_connect(sock, address))
        except (OSError, TimeoutError) as error:
            if sock is not None:
                sock.close()
            raise ConnectionFailed(f"{host}:{port}: {error}") from None
        except BaseException:
            if sock is not None:
                sock.close()
            raise
        if tls is None:
            return cls(sock, client_id, max_answer_bytes)
        secured = TlsSocket(sock, tls, host)
        connection = cls(cast("socket.socket", secured), client_id, max_answer_bytes, secured)
        try:
            await within(CONNECT_SECONDS, connection._do_handshake(secured))
        except (OSError, TimeoutError) as error:
            connection.close()
            raise ConnectionFailed(f"{host}:{port}: the TLS handshake fails: {error}") from None
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        self._socket.close()

    async def _do_handshake(self, secured: TlsSocket) -> None:
        while not secured.do_handshake():
            await self._until(is_writable=secured.has_unsent)
        while secured.has_unsent:
            try:
                secured.flush()
            except BlockingIOError:
                await self._until(is_writable=True)

    async def _until(self, *, is_writable: bool) -> None:
        """Wait until the socket may be read, or, if `is_writable`, written to."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def on_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        descriptor = self._socket.fileno()
        loop.add_reader(descriptor, on_ready)
        if is_writable:
            loop.add_writer(descriptor, on_ready)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
            if is_writable:
                loop.remove_writer(descriptor)

    async def request(
        self,
        message: Message,
        response: type[R],
        version: int,
        *,
        timeout_seconds: float,
        reuses_buffer: bool = False,
    ) -> R:
        """Send a request; returns its response, whose records are views of a buffer of their own.

        Args:
            reuses_buffer: whether the response is received into a buffer that the next request with
                this flag reuses: the caller must be done with the response by then.

        Raises:
            ConnectionFailed: the peer has disconnected, does not answer in time, or sends invalid
            data; the connection is closed.
        """
        try:
            return await self._exchange(message, response, version, timeout_seconds, reuses_buffer)
        except (OSError, TimeoutError, MalformedRequest) as error:
            self.close()
            raise ConnectionFailed(f"the peer does not answer: {error!r}") from None
        except BaseException:
            self.close()
            raise

    async def _exchange(
        self,
        message: Message,
        response: type[R],
        version: int,
        timeout_seconds: float,
        reuses_buffer: bool,
    ) -> R:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        self._correlation_id = (self._correlation_id + 1) & MAX_CORRELATION_ID
        frame = write_request(message, version, self._correlation_id, self._client_id)
        await self._send(frame, deadline)
        view = await self._receive_frame(deadline, reuses_buffer)
        if correlation_id_of(view) != self._correlation_id:
            raise ConnectionFailed(
                f"the answer has correlation id {correlation_id_of(view)}, not the request's "
                f"{self._correlation_id}"
            )
        return read_response(response, version, view)

    def _room(self, size: int) -> memoryview:
        """Buffer for an answer of `size` bytes: the previous answer's, if it is large enough."""
        if size <= SMALL_BYTES:
            self._small_in_a_row += 1
            if self._small_in_a_row == SMALL_IN_A_ROW:
                self._buffer = bytearray()
            return memoryview(bytearray(size))
        self._small_in_a_row = 0
        if size > KEPT_BYTES:
            return memoryview(bytearray(size))
        if size > len(self._buffer):
            self._buffer = bytearray(min(2 * size, KEPT_BYTES))
        return memoryview(self._buffer)[:size]

    async def _send(self, frame: bytearray, deadline: float) -> None:
        """Send a frame. The send buffer is empty between requests: nearly every frame fits."""
        try:
            sent = self._socket.send(frame)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if self._secured is not None:
            rest = self._send_secured(self._secured, memoryview(frame)[sent:])
            await within(deadline - asyncio.get_running_loop().time(), rest)
        elif sent < len(frame):
            loop = asyncio.get_running_loop()
            rest = loop.sock_sendall(self._socket, memoryview(frame)[sent:])
            await within(deadline - loop.time(), rest)

    async def _send_secured(self, secured: TlsSocket, rest: memoryview) -> None:
        """Send until OpenSSL and the socket have taken all of it."""
        while rest or secured.has_unsent:
            try:
                if rest:
                    rest = rest[secured.send(rest) :]
                else:
                    secured.flush()
            except (BlockingIOError, InterruptedError):
                await self._until(is_writable=True)

    async def _receive_frame(self, deadline: float, reuses_buffer: bool) -> memoryview:
        """Receive the next frame, without its length.

        The socket is registered and this task is woken once per frame, not once for each piece of a
        long answer as with loop.sock_recv_into. There is one timer, and no timeout context.
        """
        loop = asyncio.get_running_loop()
        whole: asyncio.Future[memoryview] = loop.create_future()
        view = memoryview(self._size)
        received = 0
        has_size = False

        def on_readable() -> None:
            take()
            # Bytes that are decrypted already do not make the socket readable again.
            while self._secured is not None and not whole.done() and self._secured.has_received:
                if not take():
                    return

        def take() -> bool:
            """Receive once; False if there is nothing to receive."""
            nonlocal view, received, has_size
            if whole.done():
                return False
            try:
                count = self._socket.recv_into(view[received:])
                if not count:
                    raise ConnectionFailed("the peer has closed the connection")
                received += count
                if received < len(view):
                    return True
                if has_size:
                    whole.set_result(view)
                else:
                    view = self._view_of_answer(reuses_buffer)
                    received = 0
                    has_size = True
            except (BlockingIOError, InterruptedError):
                return False
            except (OSError, ConnectionFailed) as error:
                whole.set_exception(error)
            return True

        def on_late() -> None:
            if not whole.done():
                whole.set_exception(TimeoutError(f"{received} bytes came"))

        descriptor = self._socket.fileno()
        timer = loop.call_at(deadline, on_late)
        loop.add_reader(descriptor, on_readable)
        try:
            return await whole
        finally:
            loop.remove_reader(descriptor)
            timer.cancel()

    def _view_of_answer(self, reuses_buffer: bool) -> memoryview:
        (size,) = _SIZE.unpack(self._size)
        if not 4 <= size <= self._max_answer_bytes:
            raise ConnectionFailed(
                f"the peer announces an answer of {size} bytes, "
                f"the limit is {self._max_answer_bytes}"
            )
        return self._room(size) if reuses_buffer else memoryview(bytearray(size))
