"""When is a transaction's batch appended, in which order, and what is the producer told?"""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from bradbury.handlers.ports.produce_answer import ProducedBatch
from bradbury.handlers.records import produce
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from bradbury.storage.log_config import LogConfig
from bradbury.tests.support.storage.led_partition import LedPartition, run
from bradbury.tests.support.storage.transactions import transactional_batch

TIMEOUT_MS = 10_000


def send(
    node: LedPartition,
    *batches: bytearray,
    version: int = 12,
    transactional_id: str | None = "t-id",
    partitions: tuple[int, ...] = (0,),
    acks: int = -1,
) -> Any:
    """The handler's answer; awaited later. The receive buffer is reused at once."""
    buffers = [bytearray(batch) for batch in batches]
    data = [
        PartitionProduceData(index=index, records=memoryview(buffer))
        for index, buffer in zip(partitions, buffers, strict=True)
    ]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name="t", partition_data=data)],
    )
    answer = produce.handle(request, node.context(version))
    for buffer in buffers:
        buffer[:] = bytes(len(buffer))
    return asyncio.ensure_future(answer) if isinstance(answer, Awaitable) else answer


async def codes(answer: Any) -> list[tuple[int, int]]:
    """(error, base offset) of each partition."""
    found = await answer if isinstance(answer, Awaitable) else answer
    if isinstance(found, ProducedBatch):
        return [(0, found.base_offset)]
    return [
        (each.error_code, each.base_offset)
        for topic in found.responses
        for each in topic.partition_responses
    ]


def end(node: LedPartition, *, epoch: int = 0, is_commit: bool = True) -> None:
    node.replica.append_marker(
        7, epoch, is_commit=is_commit, coordinator_epoch=0, transaction_version=0
    )


@pytest.mark.parametrize(("version", "adds"), [(3, False), (11, False), (12, True)])
def test_the_coordinator_is_asked_before_the_first_batch_and_not_again(
    tmp_path: Path, version: int, adds: bool
) -> None:
    async def scenario(node: LedPartition) -> None:
        first = send(node, transactional_batch(2), version=version)
        assert node.questions == [("t-id", 7, 0, [("t", 0)], adds)]
        assert node.log.log_end_offset == 0
        node.answer()
        assert await codes(first) == [(0, 0)]
        assert await codes(send(node, transactional_batch(sequence=2), version=version)) == [(0, 2)]
        assert node.questions == []
        end(node)
        send(node, transactional_batch(sequence=3), version=version)
        assert len(node.questions) == 1

    run(tmp_path, scenario)


def test_batches_that_come_meanwhile_reach_the_log_in_their_order(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        answers = [send(node, transactional_batch(sequence=number)) for number in range(3)]
        assert len(node.questions) == 3
        node.answer()
        assert await codes(answers[0]) == [(0, 0)]
        answers.append(send(node, transactional_batch(sequence=3)))
        assert len(node.questions) == 3  # it asks, too, although the transaction is open
        for _ in range(3):
            node.answer()
        assert [await codes(each) for each in answers[1:]] == [[(0, n)] for n in (1, 2, 3)]
        assert await codes(send(node, transactional_batch(sequence=4))) == [(0, 4)]
        assert node.questions == []

    run(tmp_path, scenario)


def test_other_producers_do_not_wait(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        waiting = send(node, transactional_batch())
        other = send(node, transactional_batch(producer_id=8))
        plain = transactional_batch(producer_id=-1, epoch=-1, sequence=-1, transactional=False)
        assert await codes(send(node, plain, transactional_id=None)) == [(0, 0)]
        node.questions.reverse(), node.answers.reverse()
        node.answer()
        assert await codes(other) == [(0, 1)]
        assert not waiting.done()

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "code", "answered"),
    [
        (11, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (9, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (12, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (5, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_refusal_of_the_coordinator_is_put_as_the_client_understands_it(
    tmp_path: Path, version: int, code: ErrorCode, answered: ErrorCode
) -> None:
    async def scenario(node: LedPartition) -> None:
        answer = send(node, transactional_batch(), version=version)
        node.answer(code)
        assert await codes(answer) == [(answered, -1)]
        assert node.log.log_end_offset == 0
        again = send(node, transactional_batch(), version=version)
        node.answer()
        assert await codes(again) == [(0, 0)]

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "epoch", "answered"),
    [
        (11, 0, (ErrorCode.INVALID_TXN_STATE, -1)),
        (12, 1, (ErrorCode.NOT_ENOUGH_REPLICAS, -1)),
        (12, 0, (ErrorCode.NONE, 1)),
    ],
)
def test_a_marker_in_between_makes_the_answer_worthless(
    tmp_path: Path, version: int, epoch: int, answered: tuple[ErrorCode, int]
) -> None:
    """But in version 12 that of the batch's own epoch, which ends the transaction before."""

    async def scenario(node: LedPartition) -> None:
        answer = send(node, transactional_batch(), version=version)
        end(node, epoch=epoch, is_commit=False)
        node.answer()
        assert await codes(answer) == [answered]

    run(tmp_path, scenario)


def test_a_leader_that_has_resigned_meanwhile_appends_nothing(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        answer = send(node, transactional_batch())
        node.step.resign()
        node.answer()
        assert await codes(answer) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]

    run(tmp_path, scenario)


def test_a_client_that_is_gone_has_its_batch_appended(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        answer = send(node, transactional_batch())
        await asyncio.sleep(0)
        answer.cancel()
        node.answer()
        for _ in range(3):
            await asyncio.sleep(0)
        assert node.log.log_end_offset == 1
        assert send(node, transactional_batch(sequence=1)) is not None
        assert node.questions == []

    run(tmp_path, scenario)


def test_without_verification_nobody_is_asked_but_who_adds(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        node.set(transaction_partition_verification_enable=False)
        assert await codes(send(node, transactional_batch(), version=11)) == [(0, 0)]
        end(node)
        send(node, transactional_batch(sequence=1), version=12)
        assert len(node.questions) == 1

    run(tmp_path, scenario)


def test_batches_that_are_converted_keep_their_verification(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        answer = send(node, transactional_batch(20))
        node.answer()
        assert await codes(answer) == [(0, 0)]
        assert await codes(send(node, transactional_batch(20, sequence=20))) == [(0, 20)]

    run(tmp_path, scenario, config=LogConfig(compression_type="gzip"))


def test_a_transaction_has_an_id_and_one_producer(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        without = send(node, transactional_batch(), transactional_id=None)
        assert await codes(without) == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)]
        several = send(
            node, transactional_batch(), transactional_batch(producer_id=8), partitions=(0, 1)
        )
        assert await codes(several) == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)] * 2
        assert node.questions == []

    run(tmp_path, scenario)


def test_partitions_of_one_request_are_verified_together(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        answer = send(node, transactional_batch(), transactional_batch(), partitions=(0, 3))
        assert [question[3] for question in node.questions] == [[("t", 0)]]
        node.answer()
        assert await codes(answer) == [(0, 0), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]

    run(tmp_path, scenario)


def test_without_acks_a_refusal_closes_the_connection(tmp_path: Path) -> None:
    async def scenario(node: LedPartition) -> None:
        answer = send(node, transactional_batch(), acks=0)
        node.answer()
        assert await answer is None
        end(node)
        answer = send(node, transactional_batch(sequence=1), acks=0)
        node.answer(ErrorCode.INVALID_TXN_STATE)
        with pytest.raises(produce.CloseConnection):
            await answer

    run(tmp_path, scenario)
