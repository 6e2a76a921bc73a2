"""Apache Kafka's broker as a cluster for the chain: what the chain does is right against it."""

import time
from pathlib import Path
from typing import Self

import bradbury
from bradbury.benchmarks.kafka_broker import KafkaBroker

CONFIG = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.flush.interval.messages": "100000",
}


class KafkaCluster:
    """One node, killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self._broker = KafkaBroker(folder / "kafka", heap="512m", config=CONFIG)

    def __enter__(self) -> Self:
        self._broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.kill()

    @property
    def servers(self) -> str:
        return self._broker.bootstrap_servers

    def admin(self) -> bradbury.Admin:
        return bradbury.Admin(self.servers)

    def kill_and_start_again(self) -> None:
        self._broker.kill()
        time.sleep(1)
        self._broker.start()

    def wait_until_whole(self, seconds: float) -> None:
        """It is, when it has started."""
