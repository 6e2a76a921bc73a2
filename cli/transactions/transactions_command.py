"""The command `bradbury transactions`: list, describe and find hanging transactions; end them.

It does what kafka-transactions.sh does, with any Kafka cluster (KIP-664).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import CommandFailed, UsageError
from ..terminal.moments import show_time
from ..terminal.options import AsJson, Bootstrap, Topic, complete_topic
from ..terminal.output import note, print_json, print_table

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin
    from ...clients.admin.transactions_admin import ActiveProducer, TransactionDescription
    from ...protocol.topic_partition import TopicPartition

transactions = App(
    help="Show transactions and their producers; find and end hanging ones.",
    no_args_is_help=True,
)

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
PRODUCER_COLUMNS = (
    "producer",
    "epoch",
    "coordinator epoch",
    "sequence",
    "last record",
    "open from",
)
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Transactional ids.")]
Partition = Annotated[
    int, typer.Option("--partition", "-p", min=0, metavar="N", help="Partition number.")
]


@transactions.command("list")
def list_transactions(
    state: Annotated[
        list[str],
        typer.Option(
            metavar="STATE", help=f"Only ids in this state: {', '.join(STATES)}; repeatable."
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    producer_id: Annotated[
        list[int], typer.Option(metavar="N", help="Only ids of this producer id; repeatable.")
    ] = [],  # noqa: B006 -- as above
    running_longer_than: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Only transactions open for at least this time."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX", help="Only ids that match this as a whole; for Kafka 4.1 and later."
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List transactional ids with their producers and states."""
    from ...clients.admin.admin import Admin

    for word in state:
        if word not in STATES:
            raise UsageError(f"--state {word!r}: use one of {', '.join(STATES)}")
    with Admin(bootstrap_servers(bootstrap)) as admin:
        found = admin.list_transactions(
            states=state,
            producer_ids=producer_id,
            running_longer_than_ms=None
            if running_longer_than is None
            else int(running_longer_than * 1000),
            pattern=pattern,
        )
    if as_json:
        print_json([one._asdict() for one in found])
    elif not found:
        note("no transaction matches")
    else:
        print_table(
            ("transactional id", "coordinator", "producer", "state"),
            [(one.transactional_id, one.coordinator, one.producer_id, one.state) for one in found],
        )


@transactions.command()
def describe(ids: Ids, as_json: AsJson = False, bootstrap: Bootstrap = None) -> None:
    """Show state, producer and partitions of transactional ids."""
    from ...clients.admin.admin import Admin

    with Admin(bootstrap_servers(bootstrap)) as admin:
        found = admin.describe_transactions(ids)
    now_ms = int(time.time() * 1000)
    if as_json:
        print_json([_description_json(one, now_ms) for one in found])
        return
    print_table(
        (
            "transactional id",
            "coordinator",
            "producer",
            "epoch",
            "state",
            "timeout ms",
            "since",
            "for ms",
            "partitions",
        ),
        [
            (
                one.transactional_id,
                one.coordinator,
                one.producer_id,
                one.producer_epoch,
                one.state,
                one.timeout_ms,
                None if one.start_time_ms is None else show_time(one.start_time_ms),
                None if one.start_time_ms is None else now_ms - one.start_time_ms,
                ", ".join(str(partition) for partition in one.partitions),
            )
            for one in found
        ],
        optional=("coordinator", "timeout ms"),
    )


@transactions.command()
def producers(
    topic: Topic,
    partition: Partition,
    broker: Annotated[
        int | None,
        typer.Option(metavar="NODE", help="Node id of the replica to ask; by default the leader."),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the producers that are active in a partition, and their open transactions."""
    from ...clients.admin.admin import Admin

    with Admin(bootstrap_servers(bootstrap)) as admin:
        ((_, found),) = admin.describe_producers([(topic, partition)], broker=broker).items()
    if as_json:
        print_json([_producer_json(one) for one in found])
    elif not found:
        note(f"{topic}-{partition} has no active producers")
    else:
        print_table(PRODUCER_COLUMNS, [_producer_row(one) for one in found])


@transactions.command("find-hanging")
def find_hanging(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC", help="Topic name; by default all.", autocompletion=complete_topic
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition."),
    ] = None,
    broker: Annotated[
        int | None, typer.Option(metavar="NODE", help="Only replicas on this node id.")
    ] = None,
    older_than: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="MINUTES",
            help="Minutes without a record; use at least the maximum transaction timeout.",
        ),
    ] = 15,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Find open transactions that no coordinator will end: they block read_committed consumers."""
    from ...clients.admin.admin import Admin

    if partition is not None and topic is None:
        raise UsageError("--partition needs a TOPIC; add it")
    with Admin(bootstrap_servers(bootstrap)) as admin:
        found = admin.find_hanging_transactions(
            _partitions(admin, topic, partition, broker),
            broker=broker,
            older_than_ms=int(older_than * 60_000),
        )
    if as_json:
        print_json([{**one.partition._asdict(), **_producer_json(one.producer)} for one in found])
    elif not found:
        note("there are no hanging transactions")
    else:
        print_table(
            ("topic", "partition", *PRODUCER_COLUMNS),
            [(*one.partition, *_producer_row(one.producer)) for one in found],
        )
        note("`bradbury transactions abort TOPIC -p N --start-offset OPEN-FROM` ends one")


@transactions.command()
def abort(
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="OFFSET", help="Start offset of the transaction, from find-hanging."
        ),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option(metavar="N", help="Producer id, instead of --start-offset.")
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option(metavar="N", help="Producer epoch, with --producer-id.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Coordinator epoch, with --producer-id; -1 if there is none."
        ),
    ] = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Abort a hanging transaction in one partition. Do not use it for a live transaction."""
    from ...clients.admin.admin import Admin

    by_producer = producer_id is not None and producer_epoch is not None
    if (start_offset is None) == (not by_producer):
        raise UsageError(
            "give --start-offset, or --producer-id and --producer-epoch; "
            "`bradbury transactions find-hanging` shows them"
        )
    with Admin(bootstrap_servers(bootstrap)) as admin:
        if start_offset is not None:
            one = _open_at(admin, topic, partition, start_offset)
            producer_id, producer_epoch = one.producer_id, one.producer_epoch
            coordinator_epoch = one.coordinator_epoch
        assert producer_id is not None
        assert producer_epoch is not None
        admin.abort_transaction(
            (topic, partition),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=-1 if coordinator_epoch is None else coordinator_epoch,
        )
    note(f"the transaction of producer {producer_id} in {topic}-{partition} is aborted")


@transactions.command()
def fence(ids: Ids, as_json: AsJson = False, bootstrap: Bootstrap = None) -> None:
    """Fence the producers of transactional ids, and abort their open transactions."""
    from ...clients.admin.admin import Admin

    with Admin(bootstrap_servers(bootstrap)) as admin:
        found = admin.fence_producers(ids)
    if as_json:
        print_json({name: one._asdict() for name, one in found.items()})
    else:
        print_table(
            ("transactional id", "producer", "epoch"),
            [(name, one.producer_id, one.producer_epoch) for name, one in found.items()],
        )


def _open_at(admin: Admin, topic: str, partition: int, start_offset: int) -> ActiveProducer:
    ((_, found),) = admin.describe_producers([(topic, partition)]).items()
    for one in found:
        if one.transaction_start_offset == start_offset:
            return one
    raise CommandFailed(
        f"no transaction of {topic}-{partition} is open from offset {start_offset}; "
        f"`bradbury transactions producers {topic} -p {partition}` shows those that are"
    )


def _partitions(
    admin: Admin, topic: str | None, partition: int | None, broker: int | None
) -> list[TopicPartition]:
    """Return the partitions to search; with `broker` only those with a replica on that node."""
    from ...protocol.topic_partition import TopicPartition

    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    names = [topic] if topic is not None else admin.list_topics(include_internal=True)
    return [
        TopicPartition(described.name, one.partition)
        for described in admin.describe_topics(names)
        for one in described.partitions
        if broker is None or broker in one.replicas
    ]


def _description_json(one: TransactionDescription, now_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "coordinator": str(one.coordinator),
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "state": one.state,
        "timeout_ms": one.timeout_ms,
        "start_time_ms": one.start_time_ms,
        "duration_ms": None if one.start_time_ms is None else now_ms - one.start_time_ms,
        "partitions": [partition._asdict() for partition in one.partitions],
    }


def _producer_json(one: ActiveProducer) -> dict[str, Any]:
    return {
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator_epoch": one.coordinator_epoch,
        "last_sequence": one.last_sequence,
        "last_timestamp": one.last_timestamp,
        "transaction_start_offset": one.transaction_start_offset,
    }


def _producer_row(one: ActiveProducer) -> tuple[object, ...]:
    return (
        one.producer_id,
        one.producer_epoch,
        one.coordinator_epoch,
        one.last_sequence,
        show_time(one.last_timestamp),
        one.transaction_start_offset,
    )
