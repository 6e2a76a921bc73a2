"""aiokafka's admin, producer and consumer calls against a live Bradbury."""

import asyncio
from collections.abc import Coroutine
from importlib.metadata import version

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import (
    AIOKafkaAdminClient,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from bradbury.tests.compatibility.support.compatibility import Recorder, Tool

pytestmark = pytest.mark.slow


@pytest.fixture
def tool(recorder: Recorder) -> Tool:
    return recorder.tool("aiokafka", version("aiokafka"))


def run(work: Coroutine) -> None:
    asyncio.run(asyncio.wait_for(work, 40))


def test_admin(tool: Tool, servers: str, filled: str, new_name: str) -> None:
    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        fresh = f"{new_name}-new"
        with tool.call("AIOKafkaAdminClient.create_topics", "AIOKafkaAdminClient.list_topics"):
            await admin.create_topics([NewTopic(fresh, 2, 1)])
            assert fresh in await admin.list_topics()
        with tool.call("AIOKafkaAdminClient.describe_topics"):
            (found,) = await admin.describe_topics([fresh])
            assert len(found["partitions"]) == 2
        with tool.call("AIOKafkaAdminClient.create_partitions"):
            await admin.create_partitions({fresh: NewPartitions(3)})
            (found,) = await admin.describe_topics([fresh])
            assert len(found["partitions"]) == 3
        with tool.call("AIOKafkaAdminClient.alter_configs", "AIOKafkaAdminClient.describe_configs"):
            wanted = {"retention.ms": "4321"}
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, fresh, wanted)])
            asked = ConfigResource(ConfigResourceType.TOPIC, fresh)
            (answer,) = await admin.describe_configs([asked])
            values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert values["retention.ms"] == "4321"
        with tool.call("AIOKafkaAdminClient.delete_records"):
            partition = TopicPartition(filled, 0)
            deleted = await admin.delete_records({partition: RecordsToDelete(4)})
            assert deleted == {partition: 4}
        with tool.call("AIOKafkaAdminClient.delete_topics"):
            await admin.delete_topics([fresh])
            assert fresh not in await admin.list_topics()
        with tool.call("AIOKafkaAdminClient.describe_cluster"):
            assert (await admin.describe_cluster())["brokers"]
        await admin.close()

    run(work())


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_producer(tool: Tool, servers: str, topic: str, codec: str | None) -> None:
    async def work() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers, compression_type=codec, enable_idempotence=True
        )
        await producer.start()
        with tool.call(f"AIOKafkaProducer.send_and_wait (compression_type={codec})"):
            for number in range(5):
                done = await producer.send_and_wait(
                    topic, b"value" * 20, b"key", partition=0, headers=[("h", b"v")]
                )
                assert done.offset == number
        with tool.call("AIOKafkaProducer.send", "AIOKafkaProducer.flush"):
            future = await producer.send(topic, b"x", partition=0)
            await producer.flush()
            assert (await future).offset == 5
        with tool.call("AIOKafkaProducer.create_batch", "AIOKafkaProducer.send_batch"):
            batch = producer.create_batch()
            batch.append(value=b"in a batch", key=None, timestamp=None)
            done = await (await producer.send_batch(batch, topic, partition=1))
            assert done.offset == 0
        with tool.call("AIOKafkaProducer.partitions_for"):
            assert await producer.partitions_for(topic) == {0, 1}
        await producer.stop()

    run(work())


def test_a_transactional_producer(tool: Tool, servers: str, topic: str) -> None:
    async def work() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic)
        with tool.call("AIOKafkaProducer (transactional_id)"):
            await producer.start()
        with tool.call("AIOKafkaProducer.transaction"):
            async with producer.transaction():
                sent = await producer.send_and_wait(topic, b"kept", partition=0)
            assert sent.offset == 0
        await producer.stop()

    run(work())


def test_consumer_by_hand(tool: Tool, servers: str, filled: str) -> None:
    async def work() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        zero = TopicPartition(filled, 0)
        with tool.call("AIOKafkaConsumer.assign", "AIOKafkaConsumer.getmany"):
            consumer.assign([zero])
            records = (await consumer.getmany(timeout_ms=5_000))[zero]
            assert [record.value for record in records] == [b"value %d" % n for n in range(1, 11)]
        with tool.call("AIOKafkaConsumer.position", "AIOKafkaConsumer.highwater"):
            assert await consumer.position(zero) == 10
            assert consumer.highwater(zero) == 10
        with tool.call("AIOKafkaConsumer.beginning_offsets", "AIOKafkaConsumer.end_offsets"):
            assert await consumer.beginning_offsets([zero]) == {zero: 0}
            assert await consumer.end_offsets([zero]) == {zero: 10}
        with tool.call("AIOKafkaConsumer.offsets_for_times"):
            assert (await consumer.offsets_for_times({zero: 4_200}))[zero].offset == 4
        with tool.call("AIOKafkaConsumer.seek", "AIOKafkaConsumer.getone"):
            consumer.seek(zero, 8)
            assert (await consumer.getone(zero)).offset == 8
        with tool.call("AIOKafkaConsumer.seek_to_beginning", "AIOKafkaConsumer.seek_to_end"):
            await consumer.seek_to_beginning(zero)
            assert await consumer.position(zero) == 0
            await consumer.seek_to_end(zero)
            assert await consumer.position(zero) == 10
        with tool.call("AIOKafkaConsumer.topics"):
            assert filled in await consumer.topics()
        await consumer.stop()

    run(work())


def test_consumer_and_admin_of_a_group(
    tool: Tool, servers: str, filled: str, new_name: str
) -> None:
    async def work() -> None:
        group = f"{new_name}-aio"
        zero = TopicPartition(filled, 0)
        consumer = AIOKafkaConsumer(
            filled,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        with tool.call("AIOKafkaConsumer (group_id)"):
            assert (await consumer.getone()).offset == 0
        with tool.call("AIOKafkaConsumer.commit", "AIOKafkaConsumer.committed"):
            await consumer.commit({zero: 6})
            assert await consumer.committed(zero) == 6
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        with tool.call("AIOKafkaAdminClient.list_consumer_groups"):
            assert group in {found[0] for found in await admin.list_consumer_groups()}
        with tool.call("AIOKafkaAdminClient.describe_consumer_groups"):
            (answer,) = await admin.describe_consumer_groups([group])
            assert "Stable" in str(answer)
        with tool.call("AIOKafkaAdminClient.list_consumer_group_offsets"):
            offsets = await admin.list_consumer_group_offsets(group)
            assert offsets[zero].offset == 6
        with tool.call("AIOKafkaAdminClient.find_coordinator"):
            assert await admin.find_coordinator(group) > 0
        await admin.close()
        await consumer.stop()

    run(work())
