"""Both ends of a fetch in the simulation: who sends what the shipped fetcher asks, and the handler.

What is asked, what an answer means, what is read and what is waited for is shipped code; here is
the network between the two. Records are taken from the log when the answer leaves, as a broker's
sendfile does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bradbury.handlers.ports.context import RequestContext
from bradbury.handlers.ports.fetch_answer import FetchAnswer
from bradbury.handlers.records import fetch
from bradbury.protocol.errors import ConnectionFailed
from bradbury.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from bradbury.protocol.messages.list_offsets import ListOffsetsResponse
from bradbury.protocol.records.fetch_response import FetchedPartition
from bradbury.replication.effects import SendFetch, SendListOffsets

from .simulated_network import Answer
from .simulated_requests import handle

if TYPE_CHECKING:
    from .simulated_node import SimulatedNode

FETCH_VERSION = 17
ANSWER_MS = 100
LIST_OFFSETS_VERSION = 9


class SimulatedConnections:
    """Carries the questions of one node's fetchers to their leaders."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        node.driver.on(SendFetch, self._send_fetch)
        node.driver.on(SendListOffsets, self._send_list_offsets)

    def _send_fetch(self, effect: SendFetch) -> None:
        node, (step, request) = self._node, effect
        node.claim_asked(request)
        leader = node.cluster.nodes[step.leader_id]

        def on_answer(result: Any) -> None:
            now_ms = node.clock.now_ms
            if isinstance(result, FetchResponse):
                step.on_fetched(result, now_ms, now_ms)
            else:
                step.on_unreachable(ConnectionFailed("it does not answer"), now_ms)
            node.driver.carry_out()
            node.driver.tick_when_due(step)

        node.cluster.network.call(
            node.process,
            leader.process,
            lambda answer: answer_fetch(leader, f"n{node.node_id}", request, answer),
            on_answer,
            timeout_ms=request.max_wait_ms + ANSWER_MS,
            what="fetch",
        )

    def _send_list_offsets(self, effect: SendListOffsets) -> None:
        node, (step, request) = self._node, effect
        leader = node.cluster.nodes[step.leader_id]

        def on_answer(result: Any) -> None:
            if isinstance(result, ListOffsetsResponse):
                step.on_offsets(result, node.clock.now_ms)
            else:
                step.on_unreachable(ConnectionFailed("it does not answer"), node.clock.now_ms)
            node.driver.carry_out()
            node.driver.tick_when_due(step)

        node.cluster.network.call(
            node.process,
            leader.process,
            lambda answer: handle(leader, request, LIST_OFFSETS_VERSION, answer),
            on_answer,
            timeout_ms=ANSWER_MS,
            what="list offsets",
        )


def answer_fetch(node: SimulatedNode, peer: str, request: FetchRequest, answer: Answer) -> None:
    """Have the node's handler answer, as its connection to `peer` would send it."""
    context: Any = RequestContext(node, FETCH_VERSION, "simulated", peer, 0)
    node.loop.answer(
        lambda: fetch.handle(request, context), lambda found: answer(_as_response(found))
    )


def _as_response(answer: FetchAnswer) -> FetchResponse:
    """What the other end decodes from it."""
    return FetchResponse(
        error_code=answer.error_code,
        session_id=answer.session_id,
        responses=[
            FetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=[_as_data(each) for each in topic.partitions],
            )
            for topic in answer.topics
        ],
    )


def _as_data(found: FetchedPartition) -> PartitionData:
    records: Any = found.records
    data = PartitionData(
        partition_index=found.partition,
        error_code=found.error_code,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        aborted_transactions=_aborted(found),
        log_start_offset=found.log_start_offset,
        preferred_read_replica=found.preferred_read_replica,
        records=b""
        if not found.records_size
        else records.file.read_at(records.size, records.position),
    )
    if found.diverging is not None:
        epoch, end_offset = found.diverging
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data


def _aborted(found: FetchedPartition) -> list[AbortedTransaction] | None:
    if found.aborted is None:
        return None
    return [
        AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in found.aborted
    ]
