"""A Kafka node on a real socket that answers as a test says: late, wrong, cut off, or not at all.

    broker.on(ProduceRequest, lambda request: ProduceResponse(...))
    broker.on(ProduceRequest, HANG_UP, answers)     # first this, then that; the last one stays

An answer is a response message, a function of the request that gives one, or one of the faults
below. ApiVersions and Metadata are answered by themselves: this node leads every partition.
"""

import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Self

from bradbury.protocol.codec import read_message, write_message
from bradbury.protocol.header import (
    begin_response,
    close_frame,
    has_flexible_response_header,
    read_request_header,
    skip_tags,
)
from bradbury.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from bradbury.protocol.messages.fetch import FetchRequest
from bradbury.protocol.messages.find_coordinator import FindCoordinatorRequest
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.list_offsets import ListOffsetsRequest
from bradbury.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from bradbury.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from bradbury.protocol.schema import Message

UNKNOWN_TOPIC = 3


class Fault(Enum):
    HANG_UP = "close the connection instead of an answer"
    CUT_OFF = "send half of the answer, then close"
    GARBAGE = "send bytes that are no answer"
    WRONG_CORRELATION_ID = "answer a request that was never made"
    HUGE = "announce an answer of 2 GiB"
    SILENCE = "never answer"


HANG_UP, CUT_OFF, GARBAGE = Fault.HANG_UP, Fault.CUT_OFF, Fault.GARBAGE
WRONG_CORRELATION_ID, HUGE, SILENCE = Fault.WRONG_CORRELATION_ID, Fault.HUGE, Fault.SILENCE


@dataclass
class AtVersion:
    """An answer in the layout of another version than was asked for."""

    message: Message
    version: int


Answer = Message | AtVersion | Fault | Callable[[Any], "Message | Fault | AtVersion"]
SPOKEN: list[type[Message]] = [
    ApiVersionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
]


class ScriptedBroker:
    """topics: partition counts by name. `requests` has every request that came, in order."""

    def __init__(self, topics: dict[str, int], spoken: list[type[Message]] | None = None) -> None:
        self.topics = topics
        self.requests: list[Message] = []
        self.versions: dict[type[Message], tuple[int, int]] = {
            cls: cls.VERSIONS for cls in spoken or SPOKEN
        }
        self._answers: dict[type[Message], deque[Answer]] = defaultdict(deque)
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self.on(ApiVersionsRequest, self.api_versions)
        self.on(MetadataRequest, self.metadata)
        self.on(InitProducerIdRequest, InitProducerIdResponse(producer_id=7, producer_epoch=0))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def on(self, request: type[Message], *answers: Answer) -> None:
        self._answers[request] = deque(answers)

    def wait_for(self, request: type[Message], count: int = 1, timeout: float = 60) -> list[Any]:
        """The requests of one kind, once there are `count`."""

        def found() -> list[Message]:
            return [one for one in self.requests if isinstance(one, request)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, timeout), self.requests
            return found()

    def api_versions(self, _request: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(cls.API_KEY, first, last) for cls, (first, last) in self.versions.items()
            ]
        )

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = [topic.name for topic in request.topics or []]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(0, "127.0.0.1", self.port)],
            cluster_id="scripted",
            controller_id=0,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    error_code=0 if name in self.topics else UNKNOWN_TOPIC,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=index, leader_id=0, leader_epoch=1
                        )
                        for index in range(self.topics.get(name or "", 0))
                    ],
                )
                for name in names
            ],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(60)
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the client was first
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while size := stream.read(4):
                    frame = stream.read(int.from_bytes(size, "big"))
                    if not self._answer(connection, frame):
                        return
            except OSError:
                return

    def _answer(self, connection: socket.socket, frame: bytes) -> bool:
        """Whether the connection goes on."""
        header = read_request_header(frame)
        cls = next(cls for cls in self.versions if cls.API_KEY == header.api_key)
        position = header.body_position
        if header.api_version >= cls.FLEXIBLE:
            position = skip_tags(frame, position)
        request = read_message(cls, header.api_version, frame, position)
        with self._changed:
            self.requests.append(request)
            answers = self._answers[cls]
            answer = answers.popleft() if len(answers) > 1 else answers[0]
            self._changed.notify_all()
        if callable(answer):
            answer = answer(request)
        if answer is SILENCE:
            return True
        if answer is HANG_UP:
            return False
        if answer is GARBAGE:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return False
        if answer is HUGE:
            connection.sendall((2**31 - 1).to_bytes(4, "big"))
            return True
        version = header.api_version
        if isinstance(answer, AtVersion):
            answer, version = answer.message, answer.version
        message = self.metadata(MetadataRequest()) if isinstance(answer, Fault) else answer
        shift = 1_000_000 if answer is WRONG_CORRELATION_ID else 0
        data = encode_response(message, version, header.correlation_id + shift)
        if answer is CUT_OFF:
            connection.sendall(data[: len(data) // 2])
            return False
        connection.sendall(data)
        return True


def encode_response(message: Message, version: int, correlation_id: int) -> bytes:
    flexible = has_flexible_response_header(message.API_KEY, version, message.FLEXIBLE)
    out = begin_response(correlation_id, flexible_header=flexible)
    write_message(message, version, out)
    return bytes(close_frame(out))


def answer(
    *, error_code: int = 0, base_offset: int = 0
) -> Callable[[ProduceRequest], ProduceResponse]:
    """The answer to ProduceRequest: the same for every partition."""

    def respond(request: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=part.index, error_code=error_code, base_offset=base_offset
                        )
                        for part in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    return respond
