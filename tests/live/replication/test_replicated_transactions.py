"""Transactions on three replicas: are they the same on all, and whole, whoever dies?"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from bradbury.tests.live.topics.test_transactional_topics import read
from bradbury.tests.support.ray.three_nodes import ThreeNodes, until
from bradbury.tests.support.storage.transactions import read_committed, transaction_state

pytestmark = pytest.mark.slow
RECORDS = 4


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ThreeNodes]:
    with ThreeNodes(tmp_path) as running:
        yield running


class Transacting:
    """Transactions of RECORDS records each, every third one aborted."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._number = 0
        self.committed: list[int] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": "replicated",
                "linger.ms": 1,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._producer.init_transactions(60)

    def run(self, count: int) -> None:
        for _ in range(count):
            number, self._number = self._number, self._number + 1
            self._producer.begin_transaction()
            for part in range(RECORDS):
                self._producer.produce(self._topic, f"{number}-{part}", partition=0)
            try:
                if number % 3 == 2:
                    assert self._producer.flush(60) == 0
                    self._producer.abort_transaction(60)
                    continue
                self._commit()
                self.committed.append(number)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._producer.abort_transaction(60)

    def _commit(self) -> None:
        while True:
            try:
                return self._producer.commit_transaction(60)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def records(self) -> list[str]:
        return [f"{number}-{part}" for number in self.committed for part in range(RECORDS)]


def test_what_was_committed_is_whole_and_the_replicas_agree_whoever_dies(nodes: ThreeNodes) -> None:
    nodes.create("t", min_insync_replicas="2", segment_bytes="4096")
    transacting = Transacting(nodes.servers, "t")
    transacting.run(10)
    for _ in range(2):
        died = nodes.leader("t")
        nodes.kill(died)
        transacting.run(10)
        nodes.start(died)
        until(lambda: len(nodes.partition("t").isr) == 3, "it does not come back")
        transacting.run(5)
    until(lambda: len(set(nodes.ends("t").values())) == 1 and len(nodes.ends("t")) == 3)
    assert len(transacting.committed) > 15
    assert read(nodes.servers, "t") == transacting.records()
    logs = [replica.log for replica in nodes.replicas("t").values()]
    _, open_transactions, aborted = transaction_state(logs[0])
    assert not open_transactions
    assert aborted
    for log in logs[1:]:
        assert transaction_state(log)[2] == aborted
    until(lambda: all(log.last_stable_offset == log.log_end_offset for log in logs))
    assert len({tuple(read_committed(log, max_bytes=1 << 20)) for log in logs}) == 1
