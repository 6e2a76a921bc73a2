"""`bradbury.write_topic`: writes the rows of a Ray Dataset to a topic, each exactly once."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from ...clients.producer.producer import Producer
from ...clients.security.security_options import (
    NAMES,
    SecurityOptions,
    check_names,
    given_security,
    security_of,
)
from ...clients.threads.io_thread import Steps
from ...clients.wire.cluster_client import ClusterClient
from ...protocol.errors import UnknownTopicOrPartition
from ..ranges.read_arguments import servers_of
from ..ranges.reading_client import reading_client
from .ray_data_missing import require_ray_data

if TYPE_CHECKING:
    from ray.data import Dataset

GUARANTEES: Final = ("exactly-once", "at-least-once")
ENCODERS: Final = ("raw", "arrow")
WRITE_KAFKA: Final = {
    "key_field": "use key, the name of a column",
    "key_serializer": "keys are columns of bytes or text; map the rows before",
    "value_serializer": "values are columns of bytes or text; map the rows before, or use "
    "value_encoder='arrow'",
}
"""Arguments of Dataset.write_kafka that have another name, or none."""
STREAM_BYTES: Final = 512 * 1024
"""Most bytes of an Arrow IPC stream: half of the default of max.message.bytes."""


def write_topic(
    dataset: Dataset,
    topic: str,
    *,
    value: str | None = None,
    key: str | None = None,
    partition: int | str | None = None,
    timestamp: str | None = None,
    headers: str | None = None,
    value_encoder: str = "raw",
    delivery_guarantee: str = "exactly-once",
    bootstrap_servers: str | Sequence[str] | None = None,
    producer_config: Mapping[str, Any] | None = None,
    transaction_timeout_ms: int = 900_000,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
    **security: Unpack[SecurityOptions],
) -> None:
    """Write all rows to a topic; returns when they are in the log.

        bradbury.write_topic(ds, "flights", key="tail", value="payload")
        bradbury.write_topic(ds, "features", value_encoder="arrow")   # whole blocks, any columns

    A task that Ray runs again, because its worker or node has died, does not write its rows twice;
    they become visible together. A second call writes the Dataset again.

    A continuous Dataset (`read_topic(trigger="continuous", group_id=...)`) is written by the
    driver, in order, for as long as it runs. Rows and their source offsets are committed together:
    a driver that is killed and restarted writes each record exactly once.

    Args:
        value, key: names of columns of bytes or text. value: by default "value"; with "arrow" none.
        partition: a number for all rows, or the name of a column; None: by key, as Kafka's clients.
        timestamp, headers: names of columns; timestamps are Arrow's or in ms. Without timestamp:
            the current time.
        value_encoder: "raw": a row is a record. "arrow": a piece of a block is a record, an Arrow
            IPC stream, which read_topic(value_decoder="arrow") reads.
        delivery_guarantee: "exactly-once", or "at-least-once": faster for many small tasks, but a
            task that runs again writes its rows twice.
        bootstrap_servers: None: found as by all clients.
        producer_config: settings of bradbury.Producer, such as compression_type.
        transaction_timeout_ms: brokers abort the transaction of a task that writes for longer.
        concurrency, ray_remote_args: arguments of the tasks; see `Dataset.write_datasink`.
        security: security_protocol, ssl_* and sasl_*; see SecurityOptions.

    Raises:
        ValueError, InvalidConfig, TypeError: an argument is invalid, or a column is missing; a
            continuous Dataset has no group, or its rows are not in order.
        UnknownTopicOrPartition: the topic does not exist.
        ConnectionFailed: no cluster is found; AuthenticationFailed: it refused this client.
        RayDataMissing: the extra [data] is not installed.
    """
    require_ray_data()
    import ray.data

    from .continuous_output import write_continuously
    from .continuous_read import continuous_source
    from .topic_datasink import TIMEOUT_MS, TopicDatasink, TopicWrite

    for name in security.keys() & WRITE_KAFKA.keys():
        raise TypeError(f"{name} is an argument of write_kafka; {WRITE_KAFKA[name]}")
    if not isinstance(dataset, ray.data.Dataset):
        raise TypeError(f"dataset is a {type(dataset).__name__}; use a ray.data.Dataset")
    if delivery_guarantee not in GUARANTEES:
        raise ValueError(
            f"delivery_guarantee is {delivery_guarantee!r}; use {' or '.join(GUARANTEES)}"
        )
    if value_encoder not in ENCODERS:
        raise ValueError(f"value_encoder is {value_encoder!r}; use {' or '.join(ENCODERS)}")
    as_streams = value_encoder == "arrow"
    named = {"value": value, "key": key, "timestamp": timestamp, "headers": headers}
    if as_streams:
        given = [name for name, column in named.items() if column is not None]
        if given or isinstance(partition, str):
            raise ValueError(
                "value_encoder='arrow' makes one record of many rows: it cannot have a "
                f"{', '.join(given) or 'partition'} by row; leave it out"
            )
    elif value is None:
        named["value"] = "value"
    settings = dict(producer_config or {})
    for name in ("transactional_id", "bootstrap"):
        if name in settings:
            raise ValueError(f"producer_config has {name}, which write_topic sets itself")
    check_names(settings, Producer, inspect.signature(Producer).parameters)
    is_exactly_once = delivery_guarantee == "exactly-once"
    if is_exactly_once:
        settings["transaction_timeout_ms"] = transaction_timeout_ms
    write = TopicWrite(
        write_id=uuid.uuid4().hex,
        topic=topic,
        bootstrap=servers_of(bootstrap_servers),
        security=given_security({**security_of(settings), **security}),
        columns=named,
        partition=partition,
        as_streams=as_streams,
        stream_bytes=STREAM_BYTES,
        is_exactly_once=is_exactly_once,
        producer={name: one for name, one in settings.items() if name not in NAMES},
    )
    client = reading_client(write.bootstrap, write.fetch)
    if not write.producer.get("allow_auto_create_topics"):
        client.run(_existing(client, topic), TIMEOUT_MS)
    if continuous_source(dataset) is not None:
        write_continuously(dataset, write)
    dataset.write_datasink(
        TopicDatasink(write), concurrency=concurrency, ray_remote_args=ray_remote_args
    )


def _existing(client: ClusterClient, topic: str) -> Steps[None]:
    try:
        yield from client.topic(topic)
    except UnknownTopicOrPartition:
        raise UnknownTopicOrPartition(
            f"topic {topic!r} does not exist; create it with `bradbury topics create {topic}`, or "
            'let the write do so with producer_config={"allow_auto_create_topics": True}'
        ) from None
