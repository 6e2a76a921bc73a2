"""An asynchronous Ray actor that reads one topic and writes another, while it answers calls.

    python examples/async_actor.py

Five hundred calls are open at once; each waits, without its own thread, until its order is
acknowledged. At the same time the actor follows a topic of prices. This is how a deployment of Ray
Serve or an endpoint of FastAPI uses the clients, too: made where the event loop runs, awaited by
each request. Starts a small embedded Ray and ends it again.
"""

import asyncio
import tempfile

import ray

import bradbury


@ray.remote(num_cpus=0)
class Shop:
    """Takes orders at the newest prices."""

    def __init__(self) -> None:
        self.prices: dict[str, float] = {}

    async def open(self) -> None:
        self.orders = await bradbury.AsyncProducer().start()
        self.feed = await bradbury.AsyncConsumer("prices", auto_offset_reset="earliest").start()
        self.following = asyncio.create_task(self.follow())

    async def follow(self) -> None:
        async for record in self.feed:
            self.prices[record.key.decode()] = float(record.value)

    async def order(self, fruit: str, count: int) -> tuple[float, int]:
        """Place an order; returns its total, and its offset in the log."""
        while fruit not in self.prices:
            await asyncio.sleep(0.01)
        total = self.prices[fruit] * count
        metadata = await self.orders.send_and_wait("orders", f"{count} {fruit}: {total}")
        return total, metadata.offset

    async def close(self) -> None:
        await self.feed.close()
        await self.following
        await self.orders.close()


with tempfile.TemporaryDirectory() as folder, bradbury.up(folder, port=0, address="local") as up:
    with up.admin() as admin:
        admin.create_topic("prices")
        admin.create_topic("orders")
    with bradbury.Producer() as producer:
        producer.send_batch("prices", [("apple", "0.5"), ("pear", "0.75")]).result()

    shop = Shop.remote()
    ray.get(shop.open.remote())
    fruits = ("apple", "pear")
    orders = ray.get([shop.order.remote(fruits[number % 2], 2) for number in range(500)])
    ray.get(shop.close.remote())
    print(f"orders: {len({offset for _, offset in orders})}")
    print(f"turnover: {sum(total for total, _ in orders):.2f}")
