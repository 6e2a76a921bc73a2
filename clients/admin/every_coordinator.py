"""One request to the coordinators of every node, for complete lists."""

from __future__ import annotations

from typing import Any

from ...protocol.error_code import ErrorCode
from ...protocol.errors import ConnectionFailed, KafkaError, RequestTimedOut, error_for
from ...protocol.schema import Message
from ..threads.io_thread import Steps, wait
from ..wire.cluster_client import CONTROL, ClusterClient, is_retriable


def ask_every_coordinator(
    client: ClusterClient,
    request: Message,
    response: type[Message],
    *,
    topic: str,
    what: str,
    timeout_ms: int,
    min_version: int = 0,
) -> Steps[dict[int, Any]]:
    """Ask every node; return the answers by node id. `response` has a top-level error_code.

    Waits while coordinators are loading, and while partitions of `topic`, where they store their
    state, have no leader: until then the answers are incomplete.

    Raises:
        RequestTimedOut: a coordinator was not ready in time; `what` names the result for the text.
        UnsupportedVersion: a node does not support `min_version`.
        KafkaError: a broker refuses.
    """
    answers: dict[int, Any] = {}
    answered: set[int] = set()
    waited_ms = 0
    while True:
        reason: BaseException | None = None
        client.want([topic])
        view = yield from wait(client.refresh())
        known = view.topics.get(topic)
        if known is not None and any(one.leader not in view.brokers for one in known.partitions):
            reason = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for node_id in sorted(view.brokers.keys() - answered):
            connection = client.connection(view.brokers[node_id].address, CONTROL)
            try:
                answer: Any = yield from wait(
                    connection.request(
                        request,
                        response,
                        timeout_ms=client.config.request_timeout_ms,
                        min_version=min_version,
                    )
                )
                if answer.error_code:
                    raise error_for(answer.error_code)
            except (KafkaError, ConnectionFailed) as error:
                if not is_retriable(error):
                    raise
                reason = error
                continue
            if reason is None:  # any of them may become leader of a partition without one
                answered.add(node_id)
            answers[node_id] = answer
        if reason is None:
            return answers
        if waited_ms >= timeout_ms:
            raise RequestTimedOut(f"no {what} within {timeout_ms} ms: {reason}")
        waited_ms += client.config.retry_backoff_ms
        yield client.config.retry_backoff_ms / 1000
