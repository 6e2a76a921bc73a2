"""A socket that speaks frames: what a test needs to see the broker's very answers."""

import socket
import struct
from typing import TypeVar

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from bradbury.protocol.request_frame import correlation_id_of, read_response, write_request
from bradbury.protocol.schema import Message

M = TypeVar("M", bound=Message)


class RawClient:
    """One connection. `call` sends a request and reads its answer; `send` and `receive` split it."""

    def __init__(
        self, servers: str, timeout: float = 30.0, *, client_id: str = "raw", source: str = ""
    ) -> None:
        """`source`: an address of this machine to come from."""
        host, port = servers.split(",")[0].rsplit(":", 1)
        comes_from = (source, 0) if source else None
        self.socket = socket.create_connection((host, int(port)), timeout, comes_from)
        self._client_id = client_id
        self._number = 0

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def frame(self, request: Message, version: int) -> bytearray:
        self._number += 1
        return write_request(request, version, self._number, self._client_id)

    def send(self, request: Message, version: int) -> int:
        """Returns the correlation id."""
        self.socket.sendall(self.frame(request, version))
        return self._number

    def receive_frame(self) -> bytes:
        """The next frame without its size; b"" when the peer has closed."""
        head = self._read(4)
        if len(head) < 4:
            return b""
        (size,) = struct.unpack(">i", head)
        return self._read(size)

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive(self, cls: type[M], version: int) -> tuple[int, M]:
        """(correlation id, answer)."""
        frame = self.receive_frame()
        return correlation_id_of(frame), read_response(cls, version, frame)

    def call(self, request: Message, cls: type[M], version: int) -> M:
        sent = self.send(request, version)
        number, answer = self.receive(cls, version)
        assert number == sent
        return answer

    def find_coordinator(self, group: str) -> None:
        """As every client does first: the offsets topic is there, and read, when this returns."""
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        while code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            found = self.call(FindCoordinatorRequest(key=group), FindCoordinatorResponse, 3)
            assert found.error_code == 0, found
            asked = OffsetFetchRequest(group_id=group, topics=None)
            code = self.call(asked, OffsetFetchResponse, 7).error_code

    def begin_transactions(self, transactional_id: str) -> InitProducerIdResponse:
        """The producer of this id; the transactions' topic is made and read if need be."""
        asked = FindCoordinatorRequest(key=transactional_id, key_type=1)
        begun = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=300_000
        )
        while True:
            found = self.call(asked, FindCoordinatorResponse, 3)
            if found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                continue  # Kafka answers before the topic is made
            assert found.error_code == 0, found
            answer = self.call(begun, InitProducerIdResponse, 4)
            if answer.error_code not in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            ):
                assert answer.error_code == 0, answer
                return answer

    def is_closed_by_peer(self) -> bool:
        """Waits for the end of the connection; whatever still comes is read away."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True
