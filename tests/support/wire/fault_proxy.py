"""A proxy in front of a real broker that loses answers: the request arrives, the client never knows.

It tells clients that it is the broker (Metadata and FindCoordinator name its port), follows
requests by their correlation ids, and does with the answer to a request what the test asks for.
"""

import socket
import threading
from collections import deque
from types import TracebackType
from typing import Any, NamedTuple, Self

from bradbury.protocol.codec import read_message
from bradbury.protocol.header import has_flexible_response_header, read_request_header, skip_tags
from bradbury.protocol.messages.find_coordinator import FindCoordinatorResponse
from bradbury.protocol.messages.metadata import MetadataResponse
from bradbury.protocol.schema import Message
from bradbury.tests.support.wire.scripted_broker import encode_response

REWRITTEN: dict[int, type[Message]] = {
    MetadataResponse.API_KEY: MetadataResponse,
    FindCoordinatorResponse.API_KEY: FindCoordinatorResponse,
}


class HeldAnswer(NamedTuple):
    is_here: threading.Event
    go_on: threading.Event


class FaultProxy:
    """A proxy before a cluster of one node. `lost` counts the answers that were lost so far."""

    def __init__(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lose: deque[int] = deque()
        self.lost = 0
        self._hold: dict[int, HeldAnswer] = {}
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def lose_answer(self, api_key: int, times: int = 1) -> None:
        """Swallow the next answers to `api_key` and cut those connections."""
        self._lose.extend([api_key] * times)

    def hold_answer(self, api_key: int) -> HeldAnswer:
        """Keep the next answer to `api_key`, and what its connection has behind it, until the test
        lets it go.
        """
        held = self._hold[api_key] = HeldAnswer(threading.Event(), threading.Event())
        return held

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for held in self._hold.values():
            held.go_on.set()
        _close(self._listener)
        for one in self._sockets:
            _close(one)
        for thread in self._threads:
            thread.join(60)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._broker)
            except OSError:
                return
            self._sockets += [client, broker]
            asked: dict[int, tuple[int, int]] = {}
            for target, arguments in (
                (self._requests, (client, broker, asked)),
                (self._responses, (broker, client, asked)),
            ):
                thread = threading.Thread(target=target, args=arguments, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _requests(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        for frame in _frames(client):
            header = read_request_header(frame[4:])
            asked[header.correlation_id] = (header.api_key, header.api_version)
            try:
                broker.sendall(frame)
            except OSError:
                break
        _close(client)
        _close(broker)

    def _responses(
        self, broker: socket.socket, client: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        for frame in _frames(broker):
            correlation_id = int.from_bytes(frame[4:8], "big")
            api_key, version = asked.pop(correlation_id)
            if self._lose and self._lose[0] == api_key:
                self._lose.popleft()
                self.lost += 1
                break
            if (held := self._hold.get(api_key)) is not None and not held.is_here.is_set():
                held.is_here.set()
                held.go_on.wait()
            try:
                client.sendall(self._rewrite(frame, api_key, version))
            except OSError:
                break
        _close(client)
        _close(broker)

    def _rewrite(self, frame: bytes, api_key: int, version: int) -> bytes:
        cls = REWRITTEN.get(api_key)
        if cls is None:
            return frame
        position = 8
        if has_flexible_response_header(api_key, version, cls.FLEXIBLE):
            position = skip_tags(frame, position)
        message: Any = read_message(cls, version, frame, position)
        nodes = message.brokers if cls is MetadataResponse else [message, *message.coordinators]
        for node in nodes:
            node.host, node.port = "127.0.0.1", self.port
        return encode_response(message, version, int.from_bytes(frame[4:8], "big"))


def _frames(source: socket.socket) -> Any:
    with source.makefile("rb") as stream:
        try:
            while size := stream.read(4):
                yield size + stream.read(int.from_bytes(size, "big"))
        except (OSError, ValueError):
            return


def _close(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # closed by its peer
    one.close()
