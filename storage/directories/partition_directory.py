"""Directory of one partition: its name, and its topic id.

    <topic>-<partition>/partition.metadata
        version: 0
        topic_id: FWq4Rv5eR0ybK2pDeFSBVg        the topic's UUID, url-safe base64 without padding

    <topic>-<partition>.<32 hex digits>-delete   a deleted partition, on its way out
    <topic>-<partition>.<32 hex digits>-stray    a log that the cluster's metadata does not know
    <topic>-<partition>.<32 hex digits>-future   a copy that is to take the place of the log, which
                                                 is in another directory of the node

Source: apache/kafka storage/.../internals/log/PartitionMetadataFile.java, LogManager.scala.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

from ...protocol.topic_partition import TopicPartitionPair
from ..disk.checkpoint_file import write_atomically
from ..disk.file_system import FileSystem, read_file

METADATA_FILE = "partition.metadata"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
MAX_NAME_LENGTH = 255

_NAME = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})")
_FUTURE_NAME = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})\.[0-9a-f]{32}-future")


def directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_directory_name(name: str) -> TopicPartitionPair | None:
    """(topic, partition) of a directory name; None if it is not a partition's directory."""
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))


def future_directory_name(topic: str, partition: int, unique_id: UUID) -> str:
    """Name for the copy of a move. Longer than MAX_NAME_LENGTH: it cannot be created."""
    return f"{topic}-{partition}.{unique_id.hex}{FUTURE_SUFFIX}"


def parse_future_directory_name(name: str) -> TopicPartitionPair | None:
    """(topic, partition) of a copy's directory name; None if it is not one."""
    found = _FUTURE_NAME.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))


def retired_directory_name(topic: str, partition: int, *, suffix: str, unique_id: UUID) -> str:
    """Name for a retired log. DELETE_SUFFIX: being deleted; STRAY_SUFFIX: unknown to the metadata.

    A long topic name is cut to fit.
    """
    ending = f"-{partition}.{unique_id.hex}{suffix}"
    return topic[: MAX_NAME_LENGTH - len(ending)] + ending


def write_topic_id(
    file_system: FileSystem, directory: str, topic_id: UUID, *, sync_names: bool = True
) -> None:
    """Write the topic id durably; without `sync_names` it is durable only when the caller has
    synced the directory. Raises OSError.
    """
    text = f"version: 0\ntopic_id: {encode_id(topic_id)}"
    path = f"{directory}/{METADATA_FILE}"
    write_atomically(file_system, path, text.encode(), sync_names=sync_names)


def read_topic_id(file_system: FileSystem, directory: str) -> UUID | None:
    """Read the topic id; None if the file is absent or damaged."""
    try:
        lines = read_file(file_system, f"{directory}/{METADATA_FILE}").decode().splitlines()
        values = dict(line.split(": ", 1) for line in lines)
        return decode_id(values["topic_id"]) if values["version"] == "0" else None
    except (FileNotFoundError, ValueError, KeyError):
        return None


def encode_id(value: UUID) -> str:
    """Text of a UUID, as Kafka prints it."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_id(text: str) -> UUID:
    """Decode the text of a UUID. Raises ValueError."""
    return UUID(bytes=urlsafe_b64decode(text + "=="))
