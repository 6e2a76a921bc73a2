"""A plain asyncio program: many coroutines send, one reads, and the loop is free all the while.

    python examples/async_pipeline.py

A hundred sensors report to a topic, each awaiting its acknowledgements. A reader of a group takes
tables as they come, and a reader of single records stops in the middle and another continues. No
Ray: the cluster is in this process.
"""

import asyncio

import bradbury

SENSORS = 100
REPORTS = 50


async def report(producer: bradbury.AsyncProducer, sensor: int) -> None:
    for number in range(REPORTS):
        await producer.send_and_wait("reports", str(number), key=f"sensor-{sensor}")


async def count(consumer: bradbury.AsyncConsumer, wanted: int) -> int:
    rows = 0
    async for table in consumer.batches():
        rows += table.num_rows
        if rows >= wanted:
            break
    return rows


async def main(servers: str) -> None:
    group = {"bootstrap": servers, "group": "counters", "auto_offset_reset": "earliest"}
    async with (
        bradbury.AsyncProducer(servers) as producer,
        bradbury.AsyncConsumer("reports", **group) as consumer,
    ):
        # All at once: a waiting coroutine takes no thread, and blocks nothing.
        async with asyncio.TaskGroup() as tasks:
            counting = tasks.create_task(count(consumer, SENSORS * REPORTS // 2))
            for sensor in range(SENSORS):
                tasks.create_task(report(producer, sensor))
        print(f"sent: {SENSORS * REPORTS:,}")

        # A poll can be cancelled at any time; its records come with the next one.
        rest = SENSORS * REPORTS - counting.result()
        while rest > 0:
            try:
                async with asyncio.timeout(0.01):
                    async for _ in consumer:
                        rest -= 1
            except TimeoutError:
                pass
        print(f"received: {SENSORS * REPORTS - rest:,}")
        await consumer.commit()
        print(f"lag: {sum((await consumer.lag()).values())}")


if __name__ == "__main__":
    with bradbury.local() as cluster:
        with cluster.admin() as admin:
            admin.create_topic("reports", partitions=3)
        asyncio.run(main(cluster.bootstrap_servers))
