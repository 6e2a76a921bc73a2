"""A cluster inside this process: no Ray, nothing to install or start. For tests and notebooks.

python examples/local_cluster.py
"""

import pyarrow as pa

import bradbury

with bradbury.local() as cluster:
    print(f"brokers: {cluster.bootstrap_servers}")
    with cluster.admin() as admin:
        admin.create_topic("numbers", partitions=3)

    # A million records as columns: nothing runs per record.
    numbers = pa.array(range(1_000_000)).cast(pa.string())
    with bradbury.Producer(cluster.bootstrap_servers) as producer:
        sent = producer.send_batch("numbers", pa.table({"key": numbers, "value": numbers})).result()
    print(f"sent: {sent.count:,}")

    received = 0
    with bradbury.Consumer(
        "numbers", bootstrap=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        while received < sent.count:
            received += consumer.poll().num_rows
    print(f"received: {received:,}")
