"""Arguments of `bradbury groups`: groups, and topics with some of their partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.failure import CommandFailed, UsageError

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin
    from ...protocol.topic_partition import TopicPartition


def complete_group(incomplete: str) -> list[str]:
    """Group ids for shell completion; empty if no cluster answers at once."""
    from ...clients.admin.admin import Admin
    from ..terminal.bootstrap_address import bootstrap_servers

    try:
        with Admin(bootstrap_servers(None), timeout_ms=1_000) as admin:
            names = [one.group_id for one in admin.list_groups()]
            return [name for name in names if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 -- a completion that fails is an empty one
        return []


Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="Group id.", autocompletion=complete_group)
]
Groups = Annotated[
    list[str], typer.Argument(metavar="GROUP", help="Group ids.", autocompletion=complete_group)
]
Topics = Annotated[
    list[str],
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:0,1]",
        help="Topic, with all its partitions or these; repeatable.",
    ),
]


def parse_partitions(
    admin: Admin, topics: Iterable[str], *, known: Iterable[TopicPartition] = ()
) -> list[TopicPartition]:
    """Parse topics such as "flights" and "more:0,2"; return their partitions, in order.

    Args:
        admin: client that describes the topics.
        topics: texts TOPIC or TOPIC:PARTITION,...; names of topics have no colon in Kafka.
        known: partitions that are accepted although their topics may have been deleted.

    Raises:
        CommandFailed: no such topic or partition, or no numbers.
    """
    from ...protocol.topic_partition import TopicPartition

    counts = {
        one.name: len(one.partitions)
        for one in admin.describe_topics()  # one request, which creates no topic
    }
    committed = set(known)
    found: set[TopicPartition] = set()
    for text in topics:
        topic, colon, numbers = text.partition(":")
        others = {key for key in committed if key.topic == topic}
        if topic not in counts and not others:
            raise CommandFailed(
                f"topic {topic!r} does not exist; `bradbury topics list` shows those that do"
            )
        every = {TopicPartition(topic, number) for number in range(counts.get(topic, 0))} | others
        if not colon:
            found |= every
            continue
        for number in numbers.split(","):
            if not number.strip().isdecimal():
                raise UsageError(f"--topic {text!r}: use TOPIC or TOPIC:0,1")
            key = TopicPartition(topic, int(number))
            if key not in every:
                raise CommandFailed(
                    f"topic {topic!r} has partitions 0 to {len(every) - 1}, not {int(number)}"
                )
            found.add(key)
    return sorted(found)
