"""A node's transaction markers, with leaders that answer when they are told to."""

from collections.abc import Collection, Mapping
from typing import Any

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from bradbury.protocol.topic_partition import TopicPartitionPair
from bradbury.transactions.transaction_effects import SendMarkers
from bradbury.transactions.transaction_markers import (
    MarkersWritten,
    SendWriteTxnMarkers,
    TransactionKey,
    TransactionMarkerManager,
)

PAID: TopicPartitionPair = ("paid", 0)
SENT: TopicPartitionPair = ("sent", 0)
THIRD: TopicPartitionPair = ("third", 0)


class MarkerWorld:
    def __init__(self, leaders: dict[TopicPartitionPair, int | None]) -> None:
        self.leaders = leaders
        self.effects: list[Any] = []
        self.manager = TransactionMarkerManager(self, self.effects)
        self.now_ms = 1_000
        self.requests: dict[int, WriteTxnMarkersRequest] = {}
        self.ended: list[TransactionKey] = []
        self.names: dict[int, str] = {}
        """Transactional ids by producer id."""

    # --- transaction_markers.PartitionLeaders ----------------------------------------------------

    def exists(self, partition: TopicPartitionPair) -> bool:
        return partition in self.leaders

    def leader_of(self, partition: TopicPartitionPair) -> int | None:
        return self.leaders.get(partition)

    # --- inputs, and what they lead to -----------------------------------------------------------

    def send(
        self, name: str, *partitions: TopicPartitionPair, partition: int = 0, epoch: int = 3
    ) -> None:
        number = next((each for each, known in self.names.items() if known == name), None)
        if number is None:
            number = len(self.names)
            self.names[number] = name
        self.manager.send(
            partition, epoch, SendMarkers(name, number, 0, True, frozenset(partitions))
        )
        self.carry_out()

    def move(self, partition: TopicPartitionPair, leader: int | None) -> None:
        self.leaders[partition] = leader
        self.manager.on_metadata()
        self.carry_out()

    def delete(self, partition: TopicPartitionPair) -> None:
        del self.leaders[partition]
        self.manager.on_metadata()
        self.carry_out()

    def tick(self) -> None:
        deadline_ms = self.manager.next_deadline_ms
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            self.manager.on_tick(self.now_ms)
        self.carry_out()

    def carry_out(self) -> None:
        while self.effects:
            effect = self.effects.pop(0)
            match effect:
                case SendWriteTxnMarkers(_, node_id, request):
                    assert node_id not in self.requests, "two requests at once"
                    self.requests[node_id] = request
                case MarkersWritten(key, _):
                    self.ended.append(key)

    def answer(
        self,
        node_id: int,
        errors: Mapping[TopicPartitionPair, ErrorCode] | None = None,
        *,
        silent: Collection[TopicPartitionPair] = (),
    ) -> None:
        """NONE but for `errors`; nothing is said of those that are `silent`."""
        request = self.requests.pop(node_id)
        answer = WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=(errors or {}).get(
                                        (topic.name, index), ErrorCode.NONE
                                    ),
                                )
                                for index in topic.partition_indexes
                                if (topic.name, index) not in silent
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )
        self.manager.on_answer(node_id, answer, self.now_ms)
        self.carry_out()

    def fail(self, node_id: int, error: Exception) -> None:
        del self.requests[node_id]
        self.manager.on_failed(node_id, error, self.now_ms)
        self.carry_out()

    # --- what is to be seen ----------------------------------------------------------------------

    @property
    def sent(self) -> dict[int, list[tuple[str, set[TopicPartitionPair]]]]:
        """What is on its way to each node."""
        return {
            node_id: [
                (
                    self.names[marker.producer_id],
                    {
                        (topic.name, index)
                        for topic in marker.topics
                        for index in topic.partition_indexes
                    },
                )
                for marker in request.markers
            ]
            for node_id, request in self.requests.items()
        }

    @property
    def written(self) -> list[str]:
        return [key.transactional_id for key in self.ended]
