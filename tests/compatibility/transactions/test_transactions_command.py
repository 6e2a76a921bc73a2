"""kafka-transactions, from Apache Kafka's jars, and its other tools where they have transactions."""

import json
import time
from collections.abc import Callable, Collection

import pytest
from confluent_kafka import Producer

import bradbury
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.records import encode_records
from bradbury.tests.compatibility.support.compatibility import Ran, Tool
from bradbury.tests.support.wire.raw_client import RawClient

from .transactional_clients import ConfluentTransactions, committed_offset, read_with_confluent

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.deep]

Java = Callable[..., Ran]
Call = Callable[..., str]
Rows = Callable[..., list[dict[str, str]]]
SECONDS = 60.0


@pytest.fixture
def open_transaction(servers: str, topic: str) -> ConfluentTransactions:
    """One with a record in partition 0; its transactional id is the topic's name."""
    producer = ConfluentTransactions(servers, topic)
    producer.begin()
    producer.send(topic, 0, "in the transaction")
    producer.flush()
    return producer


def row_of(rows: list[dict[str, str]], **wanted: str) -> dict[str, str]:
    [found] = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return found


def test_transactions_are_listed_and_described(
    kafka_tools: Tool,
    transactions_tool: Rows,
    open_transaction: ConfluentTransactions,
    topic: str,
) -> None:
    name = "kafka-transactions"
    with kafka_tools.call(f"{name} list"):
        row = row_of(transactions_tool("list"), TransactionalId=topic)
        assert row["TransactionState"] == "Ongoing"
        producer_id = row["ProducerId"]
    with kafka_tools.call(f"{name} list --duration-filter"):
        asked = ("list", "--duration-filter", "3600000")
        assert topic not in {one["TransactionalId"] for one in transactions_tool(*asked)}
    with kafka_tools.call(f"{name} list --transactional-id-pattern"):
        asked = ("list", "--transactional-id-pattern", f"^{topic}$")
        assert [one["TransactionalId"] for one in transactions_tool(*asked)] == [topic]
    with kafka_tools.call(f"{name} describe"):
        [row] = transactions_tool("describe", "--transactional-id", topic)
        assert (row["ProducerId"], row["TransactionState"]) == (producer_id, "Ongoing")
        assert row["TransactionTimeoutMs"] == "60000"
        assert row["TopicPartitions"] == f"{topic}-0"
        assert int(row["TransactionDurationMs"]) >= 0
    with kafka_tools.call(f"{name} describe-producers"):
        asked = ("describe-producers", "--topic", topic, "--partition", "0")
        row = row_of(transactions_tool(*asked), ProducerId=producer_id)
        assert (row["LastSequence"], row["CurrentTransactionStartOffset"]) == ("0", "0")
    open_transaction.commit()
    with kafka_tools.call(f"{name} describe"):
        while True:
            [row] = transactions_tool("describe", "--transactional-id", topic)
            if row["TransactionState"] == "CompleteCommit":
                break
            assert row["TransactionState"] == "PrepareCommit"
        assert row["TopicPartitions"] == ""
    with kafka_tools.call(f"{name} describe-producers"):
        asked = ("describe-producers", "--topic", topic, "--partition", "0")
        row = row_of(transactions_tool(*asked), ProducerId=producer_id)
        assert row["CurrentTransactionStartOffset"] == "None"


def test_an_operator_ends_a_transaction(
    kafka_tools: Tool,
    kafka_tool: Call,
    open_transaction: ConfluentTransactions,
    servers: str,
    topic: str,
) -> None:
    """KIP-939's forceTerminateTransaction fences the producer and aborts what it has begun."""
    command = "org.apache.kafka.tools.TransactionsCommand"
    plain = Producer({"bootstrap.servers": servers})
    plain.produce(topic, "behind it", None, 0)
    assert plain.flush(SECONDS) == 0
    with kafka_tools.call("kafka-transactions forceTerminateTransaction"):
        kafka_tool(command, "forceTerminateTransaction", "--transactionalId", topic)
        while read_with_confluent(servers, (topic, 0), "read_committed") != ["behind it"]:
            pass  # the markers come after the answer
        with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
            open_transaction.commit()


NOT_YET = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors of a topic that was just created."""
VERIFIES = ErrorCode.INVALID_PRODUCER_ID_MAPPING
"""Error of a broker that has not heard yet that it verifies no more."""


def hang(servers: str, topic: str, not_yet: Collection[ErrorCode] = NOT_YET) -> int:
    """A transactional batch of a producer that no coordinator knows. Its producer id."""
    hour_ago = int((time.time() - 3_600) * 1_000)
    transactional_id = f"{topic}-nobody"
    with RawClient(servers) as client:
        # The topic of coordinators is made when somebody asks for one, and not to verify a partition.
        lookup = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        client.call(lookup, FindCoordinatorResponse, 4)
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        deadline = time.monotonic() + SECONDS
        given = client.call(asked, InitProducerIdResponse, 4)
        while given.error_code in NOT_YET and time.monotonic() < deadline:
            given = client.call(asked, InitProducerIdResponse, 4)
        assert given.error_code == 0
        batch = encode_records(
            [(hour_ago, None, b"hanging", ())],
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        while code in not_yet and time.monotonic() < deadline:
            answer = client.call(request, ProduceResponse, 9)
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        assert code == ErrorCode.NONE, ErrorCode(code)
    return given.producer_id


def test_a_hanging_transaction_is_found_and_aborted(
    kafka_tools: Tool, kafka_tool: Call, transactions_tool: Rows, servers: str, topic: str
) -> None:
    """Only where partitions are not verified (KIP-890) can there be one."""
    plain = Producer({"bootstrap.servers": servers})
    found = plain.list_topics(topic, SECONDS).topics[topic]
    broker = str(found.partitions[0].leader)
    verification = "transaction.partition.verification.enable"
    configs = ("--entity-type", "brokers", "--entity-name", broker, "--alter")
    change = "kafka.admin.ConfigCommand"
    kafka_tool(change, *configs, "--add-config", f"{verification}=false")
    try:
        producer_id = hang(servers, topic, (*NOT_YET, VERIFIES))
    finally:
        kafka_tool(change, *configs, "--delete-config", verification)
    plain.produce(topic, "behind it", None, 0)
    assert plain.flush(SECONDS) == 0
    assert read_with_confluent(servers, (topic, 0), "read_committed") == []
    with kafka_tools.call("kafka-transactions find-hanging --broker-id"):
        row = row_of(transactions_tool("find-hanging", "--broker-id", broker), Topic=topic)
        assert row["ProducerId"] == str(producer_id)
        assert row["StartOffset"] == "0"
    with kafka_tools.call("kafka-transactions find-hanging --topic"):
        asked = ("find-hanging", "--topic", topic, "--partition", "0")
        assert row_of(transactions_tool(*asked))["ProducerId"] == str(producer_id)
    with kafka_tools.call("kafka-transactions abort"):
        where = ("--topic", topic, "--partition", "0")
        kafka_tool(
            "org.apache.kafka.tools.TransactionsCommand", "abort", *where, "--start-offset", "0"
        )
        assert read_with_confluent(servers, (topic, 0), "read_committed") == ["behind it"]
        assert transactions_tool("find-hanging", *where) == []


def test_no_transaction_hangs_where_partitions_are_verified(servers: str, topic: str) -> None:
    """The same batch is refused."""
    with pytest.raises(AssertionError, match="INVALID_TXN_STATE|INVALID_PRODUCER"):
        hang(servers, topic)


def test_the_message_copier_copies_each_message_once(
    java: Java, kafka_tools: Tool, servers: str, topic: str, new_name: str
) -> None:
    """TransactionalMessageCopier, of Kafka's system tests; it aborts at random."""
    output = f"{new_name}-out"
    with bradbury.Admin(servers) as admin:
        admin.create_topic(output, 2)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(1_000):
        producer.produce(topic, f"{number}", f"{number}", 0)
    assert producer.flush(SECONDS) == 0
    with kafka_tools.call("TransactionalMessageCopier --enable-random-aborts"):
        ran = java(
            "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", servers,
            "--input-topic", topic, "--input-partition", "0", "--output-topic", output,
            "--consumer-group", f"{topic}-group", "--transactional-id", f"{topic}-copier",
            "--transaction-size", "100", "--enable-random-aborts", "--use-group-metadata",
        )  # fmt: skip
        assert ran.code == 0, ran
        wanted = [f"{number}" for number in range(1_000)]
        assert read_with_confluent(servers, (output, 0), "read_committed") == wanted
        assert committed_offset(servers, f"{topic}-group", (topic, 0)) == 1_000


def test_the_performance_tool_produces_in_transactions(
    java: Java, kafka_tools: Tool, servers: str, topic: str
) -> None:
    with kafka_tools.call("kafka-producer-perf-test --transaction-duration-ms"):
        ran = java(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "3000",
            "--record-size", "100", "--throughput", "3000", "--transaction-duration-ms", "100",
            "--transactional-id", f"{topic}-perf",
            "--producer-props", f"bootstrap.servers={servers}",
        )  # fmt: skip
        assert ran.code == 0, ran
    with kafka_tools.call("kafka-console-consumer --isolation-level read_committed"):
        ran = java(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", servers,
            "--topic", topic, "--from-beginning", "--max-messages", "3000",
            "--isolation-level", "read_committed", "--timeout-ms", "20000",
        )  # fmt: skip
        assert ran.code == 0, ran
        assert len(ran.out.split()) == 3_000


def test_the_decoder_of_the_transaction_log_reads_it(
    kafka_tools: Tool, servers: str, topic: str, java: Java
) -> None:
    """Its records are Kafka's: the console consumer has a formatter for them."""
    producer = ConfluentTransactions(servers, topic)
    producer.begin()
    producer.send(topic, 0, "a record")
    producer.commit()
    formatter = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
    with kafka_tools.call("TransactionLogMessageFormatter"):
        ran = java(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", servers,
            "--topic", "__transaction_state", "--from-beginning", "--formatter", formatter,
            "--timeout-ms", "5000",
        )  # fmt: skip
        everything = ran.out.replace("}{", "}\n{").splitlines()  # it ends no line
        found = [json.loads(line) for line in everything if topic in line]
        states = [one["value"]["data"]["transactionStatus"] for one in found if one["value"]]
        assert states[0] == 0  # EMPTY
        assert states[-1] in (2, 4)  # PREPARE_COMMIT, COMPLETE_COMMIT
