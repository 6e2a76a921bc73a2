"""0.7's producer with a queue, and its streams: a thread for each, new topics join by themselves.

python examples/classic_streams.py
"""

import threading
from collections import Counter

import bradbury
from bradbury.classic import (
    ConsumerConnector,
    KafkaStream,
    Producer,
    ProducerData,
    StringDecoder,
    StringEncoder,
    Whitelist,
)

COUNT = 1000
received: Counter[str] = Counter()
everything = threading.Event()


def consume(stream: KafkaStream[str]) -> None:
    """Consume a stream, an iterator that blocks; it ends with the connector's shutdown."""
    for message, topic, _partition, _offset, _key, _time in stream:
        assert message.startswith(topic)
        received[topic] += 1
        if sum(received.values()) >= 2 * COUNT:
            everything.set()


with bradbury.local() as cluster, cluster.admin() as admin:
    admin.create_topic("flights-jfk", partitions=4)

    connector = ConsumerConnector.create(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "groupid": "delays",
            "autooffset.reset": "smallest",
            "topic.refresh.interval.ms": 200,
        }
    )
    streams = connector.create_message_streams_by_filter(
        Whitelist("flights-.*"), 2, StringDecoder()
    )
    threads = [threading.Thread(target=consume, args=[stream]) for stream in streams]
    for thread in threads:
        thread.start()

    with Producer[str, str](
        {
            "broker.list": cluster.bootstrap_servers,
            "producer.type": "async",
            "queue.enqueueTimeout.ms": -1,  # a full queue makes send wait
            "compression.codec": 1,  # gzip
        },
        encoder=StringEncoder(),
    ) as producer:
        for topic in ("flights-jfk", "flights-lga"):
            if topic == "flights-lga":
                admin.create_topic(topic, partitions=2)  # the filter allows it, so it is read too
            for number in range(COUNT):
                producer.send(ProducerData(topic, f"plane-{number % 50}", f"{topic} {number}"))

    assert everything.wait(60)
    connector.shutdown()  # commits what was handed out
    for thread in threads:
        thread.join()

for topic, count in sorted(received.items()):
    print(f"{topic}: {count:,}")
