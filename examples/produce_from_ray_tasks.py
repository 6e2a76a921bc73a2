"""Ray tasks write to a topic. They find the brokers by themselves: no address is passed.

    python examples/produce_from_ray_tasks.py

Starts a small embedded Ray and ends it again. In a Ray cluster of yours say bradbury.up() once,
with the address omitted, and only use what is between.
"""

import tempfile

import ray

import bradbury


@ray.remote
def produce(task: int, count: int) -> int:
    with bradbury.Producer() as producer:
        records = [(f"task-{task}", f"reading {number}") for number in range(count)]
        return producer.send_batch("readings", records).result().count


with tempfile.TemporaryDirectory() as folder, bradbury.up(folder, port=0, address="local") as up:
    with up.admin() as admin:
        admin.create_topic("readings", partitions=4)

    acknowledged = ray.get([produce.remote(task, 10_000) for task in range(4)])
    print(f"acknowledged: {sum(acknowledged):,}")

    with up.admin() as admin:
        ends = admin.list_offsets([("readings", partition) for partition in range(4)])
    print(f"in the log: {sum(end.offset for end in ends.values()):,}")
