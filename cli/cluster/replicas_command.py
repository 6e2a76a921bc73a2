"""The command `bradbury replicas`: replicas, leaders and log directories of partitions."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.failure import CommandFailed, UsageError
from ..terminal.options import AsJson, Bootstrap, Topic
from ..terminal.output import note, print_json, print_table
from ..terminal.progress import progress_bar

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin
    from ...protocol.topic_partition import TopicPartition

POLL_SECONDS = 0.2
SETTLED_POLLS = 10

replicas = App(
    help="Move, add and remove replicas of a partition; elect leaders.", no_args_is_help=True
)
Partition = Annotated[int, typer.Argument(metavar="PARTITION", help="Partition number.", min=0)]


@replicas.command("list")
def list_reassignments(as_json: AsJson = False, bootstrap: Bootstrap = None) -> None:
    """List the reassignments in progress."""
    with _admin(bootstrap) as admin:
        found = admin.list_partition_reassignments()
    if as_json:
        print_json(
            [{**key._asdict(), **asdict(reassignment)} for key, reassignment in found.items()]
        )
    elif not found:
        note("no reassignment is in progress")
    else:
        print_table(
            ("topic", "partition", "replicas", "adding", "removing"),
            [
                (key.topic, key.partition, _ids(one.replicas), _ids(one.adding), _ids(one.removing))
                for key, one in found.items()
            ],
        )


@replicas.command()
def assign(
    topic: Topic,
    partition: Partition,
    nodes: Annotated[
        str, typer.Argument(metavar="NODE,...", help="Node ids, the preferred leader first.")
    ],
    wait: Annotated[bool, typer.Option(help="Wait until the reassignment is done.")] = True,
    bootstrap: Bootstrap = None,
) -> None:
    """Set the nodes that hold a partition: move it, add replicas, or remove some."""
    from ...protocol.errors import InvalidReplicaAssignment

    try:
        ids = [int(word) for word in nodes.split(",")]
    except ValueError:
        raise UsageError(
            f"{nodes!r} are not node ids; write them as in 1,2,3 (`bradbury status` shows them)"
        ) from None
    with _admin(bootstrap) as admin:
        key = _known(admin, topic, partition)
        try:
            admin.alter_partition_reassignments({key: ids})
        except InvalidReplicaAssignment as error:
            said = str(error).replace(f"{key}: {key}: ", f"{key}: ")
            raise CommandFailed(f"{said}; `bradbury status` shows the nodes") from None
        if not wait:
            note("reassignment started; `bradbury replicas list` shows it until it is done")
            return
        now = _wait(admin, key, tuple(ids))
    if now != tuple(ids):
        raise CommandFailed(f"{key} is on {_ids(now)}: the reassignment was cancelled or replaced")
    note(f"{key} is on {_ids(now)}")


def _wait(admin: Admin, key: TopicPartition, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Wait until the reassignment is over; return the replicas at that time."""
    over = 0
    with progress_bar("copying", None, "records") as advance:
        while True:
            (description,) = admin.describe_topics([key.topic])
            now = description.partitions[key.partition].replicas
            goes_on = bool(admin.list_partition_reassignments([key]))
            # The broker that answers may learn of the end a little later than the controller.
            over = 0 if goes_on else over + 1
            if over and (now == wanted or over > SETTLED_POLLS):
                return now
            advance(1)
            time.sleep(POLL_SECONDS)


@replicas.command()
def cancel(topic: Topic, partition: Partition, bootstrap: Bootstrap = None) -> None:
    """Cancel a reassignment: the partition keeps its replicas."""
    from ...protocol.errors import NoReassignmentInProgress

    with _admin(bootstrap) as admin:
        key = _known(admin, topic, partition)
        try:
            admin.alter_partition_reassignments({key: None})
        except NoReassignmentInProgress:
            raise CommandFailed(
                f"{key} has no reassignment in progress; see `bradbury replicas list`"
            ) from None
    note(f"the reassignment of {key} is cancelled; its replicas stay")


@replicas.command()
def elect(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="Topic name; by default all.", show_default=False),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Elect any live replica for partitions without a leader. Records that only other "
            "replicas have are lost.",
        ),
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Elect the preferred leader (the first replica) of partitions."""
    if unclean and topic is None:
        raise UsageError("--unclean may lose records: give the TOPIC to elect leaders for")
    with _admin(bootstrap) as admin:
        wanted = None
        if topic is not None:
            _known(admin, topic, 0)
            (description,) = admin.describe_topics([topic])
            wanted = [(topic, one.partition) for one in description.partitions]
        elected = admin.elect_leaders(wanted, election="unclean" if unclean else "preferred")
    if as_json:
        print_json([one._asdict() for one in elected])
    elif not elected:
        note("every partition has its preferred leader")
    else:
        print_table(("topic", "partition"), elected)


@replicas.command("move-dir")
def move_directory(
    topic: Topic,
    partition: Partition,
    node: Annotated[int, typer.Argument(metavar="NODE", help="Node id.")],
    path: Annotated[str, typer.Argument(metavar="DIRECTORY", help="Path, from `bradbury dirs`.")],
    bootstrap: Bootstrap = None,
) -> None:
    """Move a replica to another log directory of its node, while it serves."""
    with _admin(bootstrap) as admin:
        key = _known(admin, topic, partition)
        admin.alter_replica_log_dirs({(*key, node): path})
    note("move started; `bradbury dirs --partitions` shows it until it is done")


def _known(admin: Admin, topic: str, partition: int) -> TopicPartition:
    from ...protocol.errors import UnknownTopicOrPartition
    from ...protocol.topic_partition import TopicPartition

    try:
        (description,) = admin.describe_topics([topic])
    except UnknownTopicOrPartition:
        raise CommandFailed(
            f"topic {topic!r} does not exist; `bradbury topics list` shows those that do"
        ) from None
    count = len(description.partitions)
    if partition >= count:
        raise CommandFailed(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
    return TopicPartition(topic, partition)


def _admin(bootstrap: str | None) -> Admin:
    from ...clients.admin.admin import Admin

    return Admin(bootstrap_servers(bootstrap))


def _ids(nodes: tuple[int, ...]) -> str:
    return ",".join(str(node) for node in nodes)
