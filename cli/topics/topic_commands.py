"""The command `bradbury topics`: create, show, change and delete topics, and delete records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..terminal.app import App
from ..terminal.bootstrap_address import bootstrap_servers
from ..terminal.confirmation import confirm
from ..terminal.failure import CommandFailed, UsageError
from ..terminal.options import AsJson, Bootstrap, Topic, complete_topic, parse_pairs
from ..terminal.output import count_text, note, print_json, print_table

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin, TopicDescription
    from ...clients.admin.configs import ConfigEntry

topics = App(help="Create, list, describe, change and delete topics.", no_args_is_help=True)


@topics.command()
def create(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name.")],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            metavar="N",
            help="Number of partitions; by default num.partitions.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Replicas of each partition; by default default.replication.factor.",
        ),
    ] = None,
    config: Annotated[
        list[str],
        typer.Option(
            "--config",
            "-c",
            metavar="NAME=VALUE",
            help="Topic config, with Kafka's name; repeatable.",
        ),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists already.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Create a topic."""
    from ...protocol.errors import (
        InvalidConfig,
        InvalidPartitions,
        PolicyViolation,
        TopicAlreadyExists,
    )

    configs = parse_pairs(config, "--config")
    with _admin(bootstrap) as admin:
        try:
            description = admin.create_topic(
                topic, partitions or -1, replication_factor or -1, configs
            )
        except TopicAlreadyExists:
            if if_not_exists:
                note(f"topic {topic!r} already exists")
                return
            raise CommandFailed(
                f"topic {topic!r} already exists; `bradbury topics describe {topic}` shows it, "
                f"`bradbury topics delete {topic}` removes it with its records"
            ) from None
        except (InvalidPartitions, PolicyViolation) as error:
            raise CommandFailed(f"{error}; use another --partitions") from None
        except InvalidConfig as error:
            raise UsageError(
                f"{error}; no topic was created. `bradbury topics configs TOPIC --all` shows every "
                "setting, with any topic that exists"
            ) from None
    if as_json:
        print_json(_summary(description))
    else:
        note(f"created topic {topic!r} with {count_text(len(description.partitions), 'partition')}")


@topics.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """List the topics."""
    with _admin(bootstrap) as admin:
        found = [
            _summary(topic) for topic in admin.describe_topics() if internal or not _is_ours(topic)
        ]
    if as_json:
        print_json(found)
    elif not found:
        note(
            "there are no topics, or you may not see them; `bradbury topics create NAME` creates "
            "one"
        )
    else:
        print_table(
            ("topic", "partitions", "replicas", "leaderless"),
            [
                (
                    topic["topic"],
                    topic["partitions"],
                    topic["replication_factor"],
                    topic["leaderless"],
                )
                for topic in found
            ],
        )


@topics.command()
def describe(topic: Topic, as_json: AsJson = False, bootstrap: Bootstrap = None) -> None:
    """Show a topic's partitions, offsets, leaders and configs."""
    with _admin(bootstrap) as admin:
        described = _describe(admin, topic)
    if as_json:
        print_json(described)
        return
    print_table(
        ("partition", "leader", "address", "epoch", "replicas", "isr", "first", "end", "records"),
        [
            (
                partition["partition"],
                partition["leader"],
                partition["address"],
                partition["leader_epoch"],
                ",".join(map(str, partition["replicas"])),
                ",".join(map(str, partition["isr"])),
                partition["log_start_offset"],
                partition["log_end_offset"],
                _records(partition),
            )
            for partition in described["partitions"]
        ],
        title=f"{topic}  (id {described['topic_id']})",
        optional=("epoch", "address"),
    )
    own = [entry for entry in described["configs"] if entry["source"] == "topic"]
    if own:
        print_table(("config", "value"), [(entry["name"], entry["value"]) for entry in own])


@topics.command()
def configs(
    topic: Topic,
    everything: Annotated[bool, typer.Option("--all", help="Include defaults.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Show a topic's configs and the source of each value."""
    from ...protocol.errors import UnknownTopicOrPartition

    with _admin(bootstrap) as admin:
        try:
            entries = admin.describe_configs(topic, documentation=True)
        except UnknownTopicOrPartition:
            raise _unknown(topic) from None
    shown = [
        entry
        for name, entry in sorted(entries.items())
        if everything or SOURCES.get(entry.source) != "default"
    ]
    if as_json:
        print_json([{**_config(entry), "meaning": entry.documentation} for entry in shown])
    elif not shown:
        note(f"topic {topic!r} has only defaults; --all shows them")
    else:
        print_table(
            ("config", "value", "from", "meaning"),
            [
                (entry.name, entry.value, SOURCES.get(entry.source), entry.documentation)
                for entry in shown
            ],
        )


@topics.command()
def alter(
    topic: Topic,
    config: Annotated[
        list[str],
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="Config to set; repeatable."),
    ] = [],  # noqa: B006 -- typer reads the default and never changes it
    unset: Annotated[
        list[str],
        typer.Option(
            "--unset", "-u", metavar="NAME", help="Config to reset to its default; repeatable."
        ),
    ] = [],  # noqa: B006 -- as above
    append: Annotated[
        list[str], typer.Option(metavar="NAME=WORD", help="Value to add to a list; repeatable.")
    ] = [],  # noqa: B006 -- as above
    subtract: Annotated[
        list[str],
        typer.Option(metavar="NAME=WORD", help="Value to remove from a list; repeatable."),
    ] = [],  # noqa: B006 -- as above
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only; change nothing.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Change configs of a topic: all that are named, or none."""
    from ...protocol.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition

    changes = parse_pairs(config, "--config")
    added, taken = parse_pairs(append, "--append"), parse_pairs(subtract, "--subtract")
    if not (changes or unset or added or taken):
        raise UsageError("nothing to change; use --config name=value or --unset name")
    with _admin(bootstrap) as admin:
        try:
            admin.alter_configs(
                topic, changes, unset=unset, append=added, subtract=taken, validate_only=dry_run
            )
        except UnknownTopicOrPartition:
            raise _unknown(topic) from None
        except (InvalidConfig, InvalidRequest) as error:
            raise UsageError(
                f"{error}; nothing was changed. `bradbury topics configs {topic} --all` shows "
                "every setting"
            ) from None
    names = ", ".join([*changes, *unset, *added, *taken])
    note(f"topic {topic!r}: {'could change' if dry_run else 'changed'} {names}")


@topics.command("add-partitions")
def add_partitions(
    topic: Topic,
    total: Annotated[int, typer.Argument(metavar="TOTAL", min=1, help="New number of partitions.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only; change nothing.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Increase a topic's partitions to TOTAL. Keys may map to other partitions afterwards."""
    from ...protocol.errors import InvalidPartitions, UnknownTopicOrPartition

    with _admin(bootstrap) as admin:
        try:
            admin.create_partitions(topic, total, validate_only=dry_run)
        except UnknownTopicOrPartition:
            raise _unknown(topic) from None
        except InvalidPartitions as error:
            raise CommandFailed(f"{error}; use a greater TOTAL") from None
    note(f"topic {topic!r} {'could have' if dry_run else 'has'} {count_text(total, 'partition')}")


@topics.command()
def delete(
    topic: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC", help="Topic names.", autocompletion=complete_topic),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")
    ] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete topics and their records."""
    from ...protocol.errors import UnknownTopicOrPartition

    if not yes:
        confirm(f"Delete {', '.join(topic)} with all records?")
    with _admin(bootstrap) as admin:
        for name in topic:
            try:
                admin.delete_topic(name)
            except UnknownTopicOrPartition:
                if if_exists:
                    note(f"topic {name!r} does not exist")
                    continue
                raise _unknown(name) from None
            note(f"deleted topic {name!r}")


@topics.command("delete-records")
def delete_records(
    topic: Topic,
    before: Annotated[
        str,
        typer.Option(metavar="OFFSET", help="First offset to keep; latest: delete all records."),
    ],
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Delete the records below an offset. This cannot be undone."""
    from ...protocol.errors import OffsetOutOfRange, PolicyViolation

    if before != "latest" and not before.isdecimal():
        raise UsageError(f"--before {before!r} is not an offset; use a number, or latest")
    servers = bootstrap_servers(bootstrap)
    count = require_partition(servers, topic, partition)
    if partition is None and before != "latest" and count > 1:
        raise UsageError(
            f"topic {topic!r} has {count} partitions, and --before OFFSET needs one of them; "
            "add --partition N"
        )
    chosen = range(count) if partition is None else (partition,)
    if not yes:
        where = topic if partition is None else f"{topic}-{partition}"
        what = "all records" if before == "latest" else f"records below offset {before}"
        confirm(f"Delete {what} of {where}?")
    with _admin(servers) as admin:
        try:
            left = admin.delete_records(
                {(topic, each): before if before == "latest" else int(before) for each in chosen}
            )
        except OffsetOutOfRange:
            (end,) = (each.offset for each in admin.list_offsets([(topic, chosen[0])]).values())
            raise CommandFailed(
                f"{topic}-{chosen[0]}: offset {before} is above the high watermark {end}; "
                f"use --before {end} or less, or latest"
            ) from None
        except PolicyViolation:
            raise CommandFailed(
                f"topic {topic!r} is compacted, which deletes records by key; to delete them by "
                f"offset set cleanup.policy=compact,delete with `bradbury topics alter {topic}`"
            ) from None
    rows = [
        {"partition": key.partition, "log_start_offset": offset}
        for key, offset in sorted(left.items())
    ]
    if as_json:
        print_json({"topic": topic, "partitions": rows})
    else:
        print_table(("partition", "begins at"), [tuple(row.values()) for row in rows])


def require_topic(servers: str, topic: str) -> int:
    """Return the number of partitions of `topic`.

    A client would have the broker create a topic that does not exist; for a misspelt name on a
    command line an error is better.

    Raises:
        CommandFailed: there is no such topic.
        InvalidTopicException: no topic may have this name.
    """
    with _admin(servers) as admin:
        for description in admin.describe_topics():
            if description.name == topic:
                return len(description.partitions)
    raise _unknown(topic)


def require_partition(servers: str, topic: str, partition: int | None) -> int:
    """Return the number of partitions. Raises CommandFailed: no such topic or `partition`."""
    count = require_topic(servers, topic)
    if partition is not None and partition >= count:
        raise CommandFailed(
            f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}; "
            "use another --partition"
        )
    return count


def _admin(bootstrap: str | None) -> Admin:
    from ...clients.admin.admin import Admin

    return Admin(bootstrap_servers(bootstrap))


def _unknown(topic: str) -> Exception:
    """Error for a topic that does not exist; InvalidTopicException if the name is invalid."""
    from ...protocol.errors import InvalidTopicException
    from ...protocol.topic_name import check_topic_name

    try:
        check_topic_name(topic)
    except InvalidTopicException as error:
        return error
    return CommandFailed(
        f"topic {topic!r} does not exist, or you may not see it; `bradbury topics list` shows "
        f"those that do, `bradbury topics create {topic}` creates it"
    )


def _is_ours(topic: TopicDescription) -> bool:
    """Whether a topic is internal, to Kafka or to Bradbury's sinks (ordinary ones to brokers)."""
    return topic.is_internal or topic.name.startswith("__bradbury_")


def _summary(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "partitions": len(topic.partitions),
        "replication_factor": max((len(one.replicas) for one in topic.partitions), default=0),
        "leaderless": sum(one.leader < 0 for one in topic.partitions),
        "internal": topic.is_internal,
    }


SOURCES = {
    1: "topic",
    2: "this broker, at run time",
    3: "all brokers, at run time",
    4: "broker",
    5: "default",
}
"""Names of DescribeConfigs' config_source (KIP-226)."""


def _describe(admin: Admin, topic: str) -> dict[str, Any]:
    if topic not in admin.list_topics(include_internal=True):
        raise _unknown(topic)
    (description,) = admin.describe_topics([topic])
    addresses = {node.node_id: node.address for node in admin.describe_cluster().brokers}
    led = [(topic, one.partition) for one in description.partitions if one.leader >= 0]
    starts = admin.list_offsets(led, "earliest")
    ends = admin.list_offsets(led, "latest")

    def offset(found: Any, partition: int) -> int | None:
        return found[topic, partition].offset if (topic, partition) in found else None

    return {
        **_summary(description),
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "address": str(addresses[one.leader]) if one.leader in addresses else None,
                "leader_epoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "isr": list(one.isr),
                "log_start_offset": offset(starts, one.partition),
                "log_end_offset": offset(ends, one.partition),
            }
            for one in description.partitions
        ],
        "configs": [_config(entry) for entry in admin.describe_configs(topic).values()],
    }


def _config(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": SOURCES.get(entry.source, str(entry.source)),
    }


def _records(partition: dict[str, Any]) -> int | None:
    if partition["log_end_offset"] is None:
        return None
    return int(partition["log_end_offset"] - partition["log_start_offset"])
