"""Consumers as Ray actors: every holder of a handle can poll, and a poll returns an Arrow table.

    python examples/consume_with_actors.py

The table comes from Ray's object store without a copy. Two actors share the partitions of a topic.
Starts a small embedded Ray and ends it again.
"""

import tempfile

import ray

import bradbury

PARTITIONS = 4
RECORDS = 100_000

with tempfile.TemporaryDirectory() as folder, bradbury.up(folder, port=0, address="local") as up:
    with up.admin() as admin:
        admin.create_topic("readings", partitions=PARTITIONS)
    with bradbury.Producer() as producer:
        producer.send_batch("readings", [(f"k{n}", f"reading {n}") for n in range(RECORDS)])

    actors = [bradbury.ConsumerActor.remote(auto_offset_reset="earliest") for _ in range(2)]
    for number, actor in enumerate(actors):
        mine = [("readings", partition) for partition in range(number, PARTITIONS, len(actors))]
        ray.get(actor.assign.remote(mine))

    received = 0
    while received < RECORDS:  # an actor that has read its share would wait for more: for 500 ms
        for table in ray.get([actor.poll.remote(timeout_ms=500) for actor in actors]):
            received += table.num_rows
            print(f"received: {received:,}", table.schema.names)
    print(f"all {received:,} records came back")
