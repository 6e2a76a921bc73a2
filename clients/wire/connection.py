"""One socket to one broker: TLS, versions, authentication, then requests, answers in order.

    on the wire   int32 size, header, body (protocol/request_frame.py), both ways

Invariants:
    Answers come in the order of the requests (Kafka promises it), so a correlation id other than
    the oldest request's, like an invalid frame, ends the connection: nothing after it can be
    trusted.
    When the connection ends for whatever reason, every unanswered request fails with
    ConnectionFailed; whether the broker acted on it is unknown.
    A request's version is the highest both sides know (KIP-35), chosen before it is encoded.
    While the broker throttles this client (throttle_time_ms, KIP-219) no request is sent; requests
    made meanwhile are sent afterwards, and their timeouts begin then.

A frame is received straight into one buffer of its announced size, which the size limit bounds, and
record data leaves through sendmsg along with its headers: neither direction joins or copies
records.

Not here: which broker, whether to retry. Everything runs on the client's I/O thread.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from ...protocol.buffer import Buffer
from ...protocol.codec import write_message
from ...protocol.error_code import ErrorCode
from ...protocol.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    MalformedRequest,
    UnsupportedVersion,
    error_for,
)
from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.request_frame import (
    MAX_CORRELATION_ID,
    correlation_id_of,
    read_response,
    write_request_start,
)
from ...protocol.schema import Message
from ..security.tls_transport import TlsTransport
from ..threads.io_thread import READ, WRITE, IoThread, Timer
from .connection_metrics import ConnectionMetrics
from .connection_security import NO_SECURITY, ConnectionSecurity, handshake_failure
from .in_flight_requests import InFlightRequest, InFlightRequests
from .node_api_versions import NodeApiVersions
from .sasl_login import SaslLogin

R = TypeVar("R", bound=Message)

SOFTWARE_NAME: Final = "bradbury"
SOFTWARE_VERSION: Final = "0.1.0"
MAX_RESPONSE_BYTES: Final = 512 * 1024 * 1024
PRODUCE_KEY: Final = 0
FIRST_HELD_BY_CLIENTS: Final = 6
"""Version of Produce from which brokers answer at once and clients wait (Kafka 2.0 and later)."""
_BUFFERS_PER_SEND: Final = 64  # far below IOV_MAX
_IN_PROGRESS: Final = (errno.EINPROGRESS, errno.EWOULDBLOCK)


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Encoder = Callable[[int], Sequence[Buffer]]
"""Function encode(version) that returns the buffers of a body, instead of the codec."""


class Connection:
    """Connects at once, in the background; requests may be made right away."""

    def __init__(
        self,
        io: IoThread,
        address: Address,
        *,
        client_id: str,
        connect_timeout_ms: int = 10_000,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        receive_buffer_bytes: int | None = None,
        metrics: ConnectionMetrics | None = None,
        security: ConnectionSecurity = NO_SECURITY,
    ) -> None:
        self.address = address
        self.failure: ConnectionFailed | None = None
        self.api_versions = NodeApiVersions(address)
        self._io = io
        self._client_id = client_id
        self._max_response_bytes = max_response_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._is_open = False
        self._is_served = False
        self._held_until = 0.0
        self._held_timer: Timer | None = None
        self._early: list[tuple[Future[Any], Callable[[], None]]] = []
        self._in_flight = InFlightRequests(io, self._on_late)
        self._out: deque[memoryview] = deque()
        self._size = memoryview(bytearray(4))
        self._frame: memoryview | None = None
        self._received = 0
        self._security = security
        self._socket: socket.socket | TlsTransport | None = None
        self._tls: TlsTransport | None = None
        self._is_secured = not security.is_tls
        self._connected = False
        self._metrics = metrics or ConnectionMetrics()
        self._connect_timeout_ms = connect_timeout_ms
        self._connect_timer = io.call_later(connect_timeout_ms / 1000, self._on_connect_timeout)
        self._connect()

    @property
    def is_ready(self) -> bool:
        """Whether requests may have been sent: versions are negotiated, the client is
        authenticated.
        """
        return self._is_open

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight.requests) + len(self._early)

    def request(
        self,
        message: Message,
        response: type[R],
        *,
        timeout_ms: int,
        min_version: int = 0,
        max_version: int | None = None,
        encode: Encoder | None = None,
        expect_response: bool = True,
    ) -> Future[R]:
        """Send one request; the future has the decoded answer.

        Args:
            timeout_ms: when it passes without an answer the connection is closed, as in Kafka's
                clients: later answers can only come after this one.
            min_version, max_version: narrower limits than the message class has.
            encode: returns the body's buffers, instead of the codec (Produce).
            expect_response: False for Produce with acks=0, which has no answer: the future is done,
                with an empty response, once the bytes are queued.

        Failures of the future: ConnectionFailed, UnsupportedVersion.
        """
        future: Future[R] = Future()

        def send() -> None:
            try:
                version = self.api_versions.latest_usable(type(message), min_version, max_version)
            except UnsupportedVersion as error:
                future.set_exception(error)
                return
            body = encode(version) if encode else [write_message(message, version)]
            self._send(
                message, version, body, response if expect_response else None, future, timeout_ms
            )
            if not expect_response and not future.done():
                future.set_result(response())

        if self.failure is not None:
            future.set_exception(self.failure)
        elif not self._is_open or self._held_timer is not None:
            self._early.append((future, send))
        else:
            send()
        return future

    def close(
        self,
        reason: str = "closed by this client",
        failure: type[ConnectionFailed] = ConnectionFailed,
    ) -> None:
        """End the connection. Every unanswered request fails with `failure`, which has `reason`."""
        if self.failure is not None:
            return
        self.failure = failure(f"{self.address}: {reason}")
        self._connect_timer.cancel()
        if self._connected:
            self._metrics.on_closed()
        if failure is AuthenticationFailed:
            self._metrics.on_authentication(again=self._is_served, failed=True)
        if self._held_timer is not None:
            self._held_timer.cancel()
        if self._socket is not None:
            self._io.unwatch(self._socket)
            self._socket.close()
        failed = [*self._in_flight.close(), *(future for future, _ in self._early)]
        self._early.clear()
        self._out.clear()
        self._frame = None
        for future in failed:
            future.set_exception(self.failure)

    # --- connecting --------------------------------------------------------------------------

    def _connect(self) -> None:
        try:
            # Blocks for a name that is not in the hosts file; the nodes of a Ray cluster are IPs.
            family, kind, protocol, _, target = socket.getaddrinfo(
                *self.address, type=socket.SOCK_STREAM
            )[0]
            self._socket = sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._receive_buffer_bytes is not None:  # now, as connecting fixes the scale
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            result = sock.connect_ex(target)
        except OSError as error:
            self.close(f"cannot connect: {error}")
            return
        if result in (0, *_IN_PROGRESS):
            self._io.watch(self._socket, WRITE, self._on_ready)
        else:
            self.close(f"cannot connect: {os.strerror(result)}")

    def _on_connect_timeout(self) -> None:
        self.close(f"no connection within {self._connect_timeout_ms} ms")

    def _on_connected(self) -> None:
        sock = self._socket
        assert isinstance(sock, socket.socket)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self.close(f"cannot connect: {os.strerror(error)}")
            return
        self._connected = True
        self._metrics.on_created()
        if not self._is_secured:
            self._io.unwatch(sock)
            self._socket = self._tls = self._security.secure(sock, self.address.host)
            self._do_handshake()
            return
        self._io.watch(sock, READ, self._on_ready)
        self._negotiate(ApiVersionsRequest.VERSIONS[1])

    def _do_handshake(self) -> None:
        tls = self._tls
        assert tls is not None
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._io.watch(tls, READ, self._on_ready)
        except ssl.SSLWantWriteError:
            self._io.watch(tls, WRITE, self._on_ready)
        except OSError as error:
            self.close(*handshake_failure(error))
        else:
            self._is_secured = True
            self._io.watch(tls, READ, self._on_ready)
            self._negotiate(ApiVersionsRequest.VERSIONS[1])

    def _negotiate(self, version: int) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        answer: Future[ApiVersionsResponse] = Future()
        body = [write_message(request, version)]
        answer.add_done_callback(lambda done: self._on_versions(done, version))
        self._send(request, version, body, ApiVersionsResponse, answer, self._connect_timeout_ms)

    def _on_versions(self, answer: Future[ApiVersionsResponse], version: int) -> None:
        if answer.exception() is not None:
            return  # the connection is closed, with the reason
        response = answer.result()
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
            self.api_versions.update(response)
            highest = self.api_versions.highest(ApiVersionsRequest.API_KEY)
            self._negotiate(max(0, min(highest, version - 1)))
            return
        if response.error_code:
            self.close(f"version negotiation failed: {error_for(response.error_code)}")
            return
        self.api_versions.update(response)
        if self._security.is_sasl:
            SaslLogin(self, self._security, self._io).begin()
        else:
            self.open()

    def suspend(self) -> None:
        """Hold requests until `open`."""
        self._is_open = False

    def open(self, *, again: bool = False) -> None:
        """Send held requests, and later ones at once. again: re-authenticated (KIP-368)."""
        if self._security.is_tls or self._security.is_sasl:
            self._metrics.on_authentication(again=again, failed=False)
        self._connect_timer.cancel()
        self._is_open = True
        if self._held_timer is None:
            self._send_early()

    def _send_early(self) -> None:
        early, self._early = self._early, []
        for future, send in early:
            if self.failure is not None:
                future.set_exception(self.failure)
            else:
                send()

    def _hold(self, throttle_ms: int) -> None:
        """Send nothing for `throttle_ms`: the broker does not read from this connection."""
        if self.api_versions.highest(PRODUCE_KEY) < FIRST_HELD_BY_CLIENTS:
            return  # the broker has delayed its answer instead
        until = time.monotonic() + throttle_ms / 1000
        if self._held_timer is not None:
            if until <= self._held_until:
                return
            self._held_timer.cancel()
        self._held_until = until
        self._held_timer = self._io.call_later(throttle_ms / 1000, self._let_go)

    def _let_go(self) -> None:
        self._held_timer = None
        if self._is_open:
            self._send_early()

    def ask(
        self,
        message: Message,
        response: type[R],
        on_answer: Callable[[R], None],
        *,
        min_version: int = 0,
    ) -> None:
        """Send a request while the connection is not open (SASL). A failure closes it."""
        answer: Future[R] = Future()

        def on_done(done: Future[R]) -> None:
            if done.exception() is None:
                on_answer(done.result())

        answer.add_done_callback(on_done)
        try:
            version = self.api_versions.latest_usable(type(message), min_version)
        except UnsupportedVersion as error:
            self.close(str(error), AuthenticationFailed)
            return
        body = [write_message(message, version)]
        self._send(message, version, body, response, answer, self._connect_timeout_ms)

    # --- sending -----------------------------------------------------------------------------

    def _send(
        self,
        message: Message,
        version: int,
        body: Sequence[Buffer],
        response: type[Message] | None,
        future: Future[Any],
        timeout_ms: int,
    ) -> None:
        correlation_id = next(self._in_flight.correlation_ids) & MAX_CORRELATION_ID
        body_size = sum(len(buffer) for buffer in body)
        header = write_request_start(
            message, version, correlation_id, self._client_id, body_size=body_size
        )
        now = time.monotonic()
        self._metrics.on_request(len(header) + body_size, now)
        if response is not None:
            deadline = now + timeout_ms / 1000
            sent = InFlightRequest(correlation_id, response, version, future, deadline)
            self._in_flight.requests.append(sent)
            self._in_flight.keep_time()
        self._out.append(memoryview(header))
        self._out += [memoryview(buffer) for buffer in body if len(buffer)]
        self._flush()

    def _flush(self) -> None:
        assert self._socket is not None
        try:
            while self._out:
                sent = self._socket.sendmsg(list(itertools.islice(self._out, _BUFFERS_PER_SEND)))
                while sent:
                    size = len(self._out[0])
                    if sent < size:
                        self._out[0] = self._out[0][sent:]
                        break
                    self._out.popleft()
                    sent -= size
        except BlockingIOError:
            self._io.watch(self._socket, READ | WRITE, self._on_ready)
        except OSError as error:
            # Not at once: the caller still holds the request that this would fail.
            reason = f"connection lost while sending: {error}"
            self._io.call_soon(lambda: self.close(reason))
        else:
            self._io.watch(self._socket, READ, self._on_ready)

    def _on_late(self, request: InFlightRequest) -> None:
        name = request.response.__name__.removesuffix("Response")
        self.close(f"no answer to {name} in time")

    # --- receiving ---------------------------------------------------------------------------

    def _on_ready(self, events: int) -> None:
        if not self._connected:
            self._on_connected()
            return
        if not self._is_secured:
            self._do_handshake()
            return
        if events & READ:
            try:
                self._receive()
            except OSError as error:
                if isinstance(error, ssl.SSLError) and not self._is_open:
                    self.close(*handshake_failure(error))  # TLS 1.3: refused after our last step
                else:
                    self.close(f"connection lost: {error}")
        if events & WRITE and self.failure is None:
            self._flush()

    def _receive(self) -> None:
        """Receive available bytes, up to the end of one frame, so that other sockets have their
        turn.
        """
        assert self._socket is not None
        while self.failure is None:
            target = self._size if self._frame is None else self._frame
            try:
                count = self._socket.recv_into(target[self._received :])
            except BlockingIOError:
                return
            if count == 0:
                known = "" if self._is_served else f", before it answered; {self._security.hint()}"
                self.close(f"the broker closed the connection{known}")
                return
            self._received += count
            if self._received < len(target):
                continue
            self._received = 0
            if self._frame is not None:
                frame, self._frame = self._frame, None
                self._on_frame(frame)
                if self._tls is not None and self.failure is None and self._tls.has_received:
                    self._io.call_soon(self._read_on)  # select would not report it
                return
            size = int.from_bytes(self._size, "big", signed=True)
            if not 4 <= size <= self._max_response_bytes:
                self.close(f"an answer of {size} bytes; is this a Kafka port?")
                return
            self._frame = np.empty(size, dtype=np.uint8).data

    def _read_on(self) -> None:
        if self.failure is None:
            self._on_ready(READ)

    def _on_frame(self, frame: memoryview) -> None:
        self._metrics.on_response(len(frame) + 4)
        correlation_id = correlation_id_of(frame)
        waiting = self._in_flight.requests
        if not waiting or waiting[0].correlation_id != correlation_id:
            self.close(f"an unexpected answer (correlation id {correlation_id})")
            return
        oldest = waiting[0]
        try:
            response = read_response(oldest.response, oldest.version, frame)
        except MalformedRequest as error:
            self.close(f"the answer cannot be read: {error}")
            return
        waiting.popleft()
        self._is_served = self._is_open
        if waiting:
            self._in_flight.keep_time()
        if (throttle_ms := getattr(response, "throttle_time_ms", 0)) > 0:
            self._hold(throttle_ms)
        oldest.future.set_result(response)
