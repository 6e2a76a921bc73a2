"""Two brokers are sent the same requests; what their answers say is compared field by field.

What no two brokers can have in common (ids, addresses, times, sizes of disks) is replaced by words
that say what it is; all else counts.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any
from uuid import UUID

from bradbury.handlers.server.table import APIS
from bradbury.protocol.codec import read_message
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.header import has_flexible_response_header
from bradbury.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from bradbury.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bradbury.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from bradbury.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from bradbury.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from bradbury.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from bradbury.protocol.messages.metadata import MetadataRequest, MetadataResponse
from bradbury.protocol.schema import ZERO_UUID, Message, Struct
from bradbury.tests.compatibility.raw.raw_requests import LONG
from bradbury.tests.support.wire.raw_client import RawClient
from bradbury.tests.support.wire.sample_requests import Sample

CLOSED = "the connection is closed"
NO_ANSWER = "no answer"
TIMEOUT = 60.0
METADATA_TOPIC = "__cluster_metadata"
IDENTITIES = (
    ("resource_type", "resource_name"),
    ("topic_name",),
    ("topic",),
    ("name",),
    ("partition_index",),
    ("partition",),
    ("partition_id",),
    ("index",),
    ("group_id",),
    ("group",),
    ("key",),
    ("api_key",),
    ("replica_id",),
)
_NUMBER = re.compile(
    r"-n\d[\w-]*|(?<=^t)-\d+-\d+|(?<=^group-of-t)-\d+-\d+|(?<=^group-of-t)(-\d+){3}"
)
_MEMBER = re.compile(r"^(raw|instance-\d+|[^ ]*)-[0-9a-f]{8}-[0-9a-f-]{27}$")


@dataclass
class Server:
    """A broker that is asked. `open` before anything else."""

    address: str
    node_id: int = -1
    cluster_id: str = ""
    log_dir: str = ""
    topic_ids: dict[UUID, str] = field(default_factory=dict)
    client: RawClient | None = None
    volatile: Mapping[str, int] = field(default_factory=dict)

    def open(self) -> None:
        with RawClient(self.address) as client:
            reported = client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
            self.node_id, self.cluster_id = reported.controller_id, reported.cluster_id or ""
            _wait_for_coordinator(client)
            _wait_for_producer_ids(client)
            dirs = client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 1)
            self.log_dir = dirs.results[0].log_dir

    def sample(self, topic: str) -> Sample:
        """A new topic with two partitions, and a group with one member."""
        wanted = CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
        with RawClient(self.address) as client:
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
            made = client.call(request, CreateTopicsResponse, 7)
            assert made.topics[0].error_code == 0, made
            _wait_for_leaders(client, topic)
        sample = Sample.of(self.address, topic)
        sample.log_dir = self.log_dir
        self.topic_ids[sample.topic_id] = topic
        return sample

    def ask(self, request: Message, version: int) -> Any:
        """The answer in plain words, CLOSED or NO_ANSWER."""
        if self.client is None:
            self.client = RawClient(self.address, timeout=TIMEOUT)
        client = self.client
        self.volatile = VOLATILE | VOLATILE_OF.get(request.API_KEY, {})
        sent = client.send(request, version)
        client.send(ApiVersionsRequest(), 0)  # whatever the first one gets, this one is answered
        frame = client.receive_frame()
        if not frame:
            client.socket.close()
            self.client = None
            return CLOSED
        if int.from_bytes(frame[:4], "big", signed=True) != sent:
            return NO_ANSWER
        client.receive_frame()
        cls = response_of(request)
        flexible = has_flexible_response_header(cls.API_KEY, version, cls.FLEXIBLE)
        return self.plain(read_message(cls, version, frame, 5 if flexible else 4), version)

    def wait_until_applied(self) -> None:
        """Kafka answers a change when it is committed; its broker acts on it a moment later.

        The broker says in ApiVersions up to which offset of the metadata it acts.
        """
        asked = DescribeQuorumRequest(
            topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData()])]
        )
        with RawClient(self.address) as client:
            quorum = client.call(asked, DescribeQuorumResponse, 1)
            committed = quorum.topics[0].partitions[0].high_watermark
            request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
            while (
                client.call(request, ApiVersionsResponse, 3).finalized_features_epoch
                < committed - 1
            ):
                pass
            ending = ListTransactionsRequest(state_filters=["PrepareCommit", "PrepareAbort"])
            while client.call(ending, ListTransactionsResponse, 0).transaction_states:
                pass  # an end is answered before it has come to all partitions

    def close(self) -> None:
        if self.client is not None:
            self.client.socket.close()

    # --- answers in words ------------------------------------------------------------------------

    def plain(self, value: Any, version: int, name: str = "") -> Any:
        if isinstance(value, Struct):
            return {
                each.name: self.plain(getattr(value, each.name), version, each.name)
                for each in fields(value)  # type: ignore[arg-type]
                if each.metadata["wire"].versions[0] <= version <= each.metadata["wire"].versions[1]
            }
        if isinstance(value, list):
            return keyed([self.plain(each, version, name) for each in value])
        return self._word(name, value)

    def _word(self, name: str, value: Any) -> Any:
        if name == "error_code":
            return ErrorCode(value).name
        if isinstance(value, UUID):
            if value == ZERO_UUID:
                return "no id"
            return f"id of {self.topic_ids.get(value, 'something')}"
        if isinstance(value, str):
            value = _NUMBER.sub("", value).replace(LONG, "long")
            if name == "documentation":
                return "a text" if value else None
            if value == self.cluster_id:
                return "the cluster's id"
            if value == self.log_dir:
                return "the log directory"
            if name == "host" or _MEMBER.match(value):
                return f"a {name}"
            if name in (
                "error_message",
                "documentation",
                "record_errors",
                "batch_index_error_message",
            ):
                return "a text"
        if isinstance(value, int) and not isinstance(value, bool):
            if name in NODE_FIELDS and value == self.node_id:
                return "this node"
            if name in self.volatile and value >= self.volatile[name]:
                return f"a {name}"
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        return value


NODE_FIELDS = {
    "node_id",
    "leader_id",
    "controller_id",
    "replica_nodes",
    "isr_nodes",
    "broker_id",
    "replica_id",
    "brokers",
}
"""Whose value may be the id of the broker that is asked."""
VOLATILE = {
    "port": 1,
    "session_id": 1,
    "producer_id": 0,
    "partition_size": 1,
    "log_end_offset": 0,
    "total_bytes": 0,
    "usable_bytes": 0,
    "last_timestamp": 0,
    "last_fetch_timestamp": 0,
    "last_caught_up_timestamp": 0,
    "finalized_features_epoch": 0,
}
"""The value from which on a number is expected to differ between runs."""


VOLATILE_OF = {
    55: {"high_watermark": 0, "leader_epoch": 0},
    65: {"transaction_start_time_ms": 0},
}
"""The same, of the answers of one API: where the metadata log is, when a transaction began."""


def response_of(request: Message) -> Any:
    module = import_module(type(request).__module__)
    return getattr(module, type(request).__name__.removesuffix("Request") + "Response")


def keyed(elements: list[Any]) -> Any:
    """A list whose elements have names of their own: by these, as the order says nothing."""
    if not elements or not isinstance(elements[0], dict):
        return elements
    for names in IDENTITIES:
        if all(name in elements[0] for name in names):
            keys = [tuple(each[name] for name in names) for each in elements]
            if len(set(map(str, keys))) == len(keys):
                return {
                    "/".join(map(str, key)): each for key, each in zip(keys, elements, strict=True)
                }
    return sorted(elements, key=repr)


def _wait_for_leaders(client: RawClient, topic: str) -> None:
    """Kafka names a leader before it leads."""
    asked = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=n, timestamp=-1) for n in (0, 1)],
            )
        ]
    )
    while any(
        each.error_code for each in client.call(asked, ListOffsetsResponse, 7).topics[0].partitions
    ):
        pass


def _wait_for_producer_ids(client: RawClient) -> None:
    """A new broker gets its first block of them when it is first asked."""
    asked = InitProducerIdRequest(transactional_id=None)
    while client.call(asked, InitProducerIdResponse, 4).error_code:
        pass


def _wait_for_coordinator(client: RawClient) -> None:
    """The first question makes the offsets topic, and is answered before that is there."""
    while client.call(FindCoordinatorRequest(key="anybody"), FindCoordinatorResponse, 3).error_code:
        pass


@dataclass(frozen=True, slots=True)
class Difference:
    """One place in the answers to one request. `request`: API, version and what is odd about it."""

    request: str
    path: str
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.request}: {self.path}: Kafka {_short(self.kafka)}, here {_short(self.ours)}"


ABSENT = "absent"


def differences(request: str, kafka: Any, ours: Any, path: str = "") -> Iterator[Difference]:
    if type(kafka) is type(ours) is dict:
        for key in kafka.keys() | ours.keys():
            yield from differences(
                request, kafka.get(key, ABSENT), ours.get(key, ABSENT), f"{path}.{key}".lstrip(".")
            )
    elif type(kafka) is type(ours) is list and len(kafka) == len(ours):
        for one, other in zip(kafka, ours, strict=True):
            yield from differences(request, one, other, f"{path}[]")
    elif kafka != ours:
        yield Difference(request, path, kafka, ours)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "..."


def api_name(request: Message) -> str:
    return APIS[request.API_KEY].name
