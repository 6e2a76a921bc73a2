"""Offsets in transactions over the wire: a producer of either generation, and who reads the group.

A scripted producer, so that every request, its version and its answer is seen. The broker is a
process of its own, which SIGKILL ends in the middle of a transaction.
"""

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from bradbury.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bradbury.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from bradbury.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from bradbury.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from bradbury.tests.support.wire.raw_client import RawClient

SECONDS = 30.0
PENDING = "pending"
TROUBLES = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
BROKER = """
    import sys, time, bradbury
    config = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}
    with bradbury.local(sys.argv[1], config=config) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        while True:
            time.sleep(60)
"""


class Broker:
    """A broker that can be killed and started again with what is on its disk."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(BROKER), str(self._data_dir)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.servers = self._process.stdout.readline().strip()
        assert self.servers

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    with RawClient(broker.servers) as client:
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        created = client.call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
        assert created.topics[0].error_code == 0
    yield broker
    broker.kill()


class ScriptedProducer:
    """A transactional producer that says what it is asked to."""

    def __init__(self, broker: Broker, transactional_id: str, group: str) -> None:
        self._broker = broker
        self._id = transactional_id
        self._group = group
        with RawClient(broker.servers) as client:
            client.find_coordinator(group)
        self.start()

    def start(self) -> None:
        """As a new process with the same id: whoever had it before is fenced."""
        begun = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=60_000)
        found = FindCoordinatorRequest(key=self._id, key_type=1)

        def ask(client: RawClient) -> int:
            error = client.call(found, FindCoordinatorResponse, 3).error_code
            if error:
                return error
            answer = client.call(begun, InitProducerIdResponse, 4)
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
            return answer.error_code

        assert self._until_no_trouble(ask) == ErrorCode.NONE

    def _until_no_trouble(self, ask: Callable[[RawClient], int]) -> ErrorCode:
        end = time.monotonic() + SECONDS
        while True:
            with RawClient(self._broker.servers) as client:
                error = ErrorCode(ask(client))
            if error not in TROUBLES or time.monotonic() > end:
                return error
            time.sleep(0.02)

    def add_group(self) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            self._id, self.producer_id, self.producer_epoch, self._group
        )
        return self._until_no_trouble(
            lambda client: client.call(request, AddOffsetsToTxnResponse, 3).error_code
        )

    def commit(
        self, offset: int, version: int, *, generation: int = -1, topic: str = "t"
    ) -> ErrorCode:
        partition = TxnOffsetCommitRequestPartition(0, offset)
        request = TxnOffsetCommitRequest(
            self._id,
            self._group,
            self.producer_id,
            self.producer_epoch,
            generation,
            "" if generation < 0 else "ghost",
            topics=[TxnOffsetCommitRequestTopic(topic, [partition])],
        )
        return self._until_no_trouble(
            lambda client: (
                client.call(request, TxnOffsetCommitResponse, version)
                .topics[0]
                .partitions[0]
                .error_code
            )
        )

    def end(self, version: int, *, is_commit: bool = True) -> ErrorCode:
        def ask(client: RawClient) -> int:
            request = EndTxnRequest(self._id, self.producer_id, self.producer_epoch, is_commit)
            answer = client.call(request, EndTxnResponse, version)
            if version >= 5 and not answer.error_code:
                self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
            return answer.error_code

        return self._until_no_trouble(ask)

    def read(self, *, require_stable: bool = True) -> int | str:
        """The offset of the group, -1: none, or that it is pending."""
        request = OffsetFetchRequest(
            group_id=self._group,
            topics=[OffsetFetchRequestTopic("t", [0])],
            require_stable=require_stable,
        )
        with RawClient(self._broker.servers) as client:
            client.find_coordinator(self._group)
            answer = client.call(request, OffsetFetchResponse, 7)
        partition = answer.topics[0].partitions[0]
        if partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            return PENDING
        assert partition.error_code == 0
        return int(partition.committed_offset)

    def read_stable(self) -> int | str:
        """As consumers do: ask until it is."""
        end = time.monotonic() + SECONDS
        while (found := self.read()) == PENDING and time.monotonic() < end:
            time.sleep(0.02)
        return found


OLD, NEW = 3, 5


def begin(producer: ScriptedProducer, offset: int, version: int) -> None:
    if version < NEW:
        assert producer.add_group() == ErrorCode.NONE
    assert producer.commit(offset, version) == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, NEW])
def test_offsets_count_when_the_transaction_does(broker: Broker, version: int) -> None:
    producer = ScriptedProducer(broker, f"counting-{version}", f"group-{version}")
    for offset in (5, 6):
        before = producer.read(require_stable=False)
        begin(producer, offset, version)
        assert producer.read() == PENDING
        assert producer.read(require_stable=False) == before
        assert producer.end(min(version, 5)) == ErrorCode.NONE
        assert producer.read_stable() == offset
    begin(producer, 7, version)
    assert producer.end(min(version, 5), is_commit=False) == ErrorCode.NONE
    assert producer.read_stable() == 6


@pytest.mark.parametrize(
    ("version", "error"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_group_that_was_not_added_to_the_transaction_is_refused(
    broker: Broker, version: int, error: ErrorCode
) -> None:
    """KIP-890: else what a producer sends late would stay open forever."""
    producer = ScriptedProducer(broker, f"late-{version}", f"late-group-{version}")
    assert producer.commit(5, version) == error
    assert producer.read() == -1


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_zombie_commits_nothing_and_what_it_left_is_aborted(broker: Broker, version: int) -> None:
    zombie = ScriptedProducer(broker, f"zombie-{version}", f"zombie-group-{version}")
    begin(zombie, 5, version)
    living = ScriptedProducer(broker, f"zombie-{version}", f"zombie-group-{version}")
    assert living.read_stable() == -1
    assert zombie.commit(6, version) == ErrorCode.INVALID_PRODUCER_EPOCH
    begin(living, 7, version)
    assert living.end(version) == ErrorCode.NONE
    assert living.read_stable() == 7


def test_another_generation_is_refused_and_the_transaction_may_end(broker: Broker) -> None:
    producer = ScriptedProducer(broker, "generations", "generations")
    assert producer.commit(5, NEW, generation=3) == ErrorCode.ILLEGAL_GENERATION
    assert producer.commit(5, NEW, topic="gone") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.end(NEW, is_commit=False) == ErrorCode.NONE
    assert producer.read_stable() == -1


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_broker_that_is_killed_knows_the_open_transaction_afterwards(
    broker: Broker, version: int
) -> None:
    producer = ScriptedProducer(broker, f"killed-{version}", f"killed-group-{version}")
    begin(producer, 5, version)
    assert producer.end(version) == ErrorCode.NONE
    assert producer.read_stable() == 5
    begin(producer, 6, version)
    broker.kill()
    broker.start()
    assert producer.read() == PENDING
    assert producer.read(require_stable=False) == 5
    assert producer.commit(7, version) == ErrorCode.NONE
    assert producer.end(version) == ErrorCode.NONE
    assert producer.read_stable() == 7
