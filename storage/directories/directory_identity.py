"""Owner of a data directory: meta.properties, and a copy of it, meta.properties.copy.

    #crc32c=1f0a22c9                     of the lines below; to others a comment
    version=1
    cluster.id=QDDfLpYkQbSc0WwbXyUzVQ
    node.id=3
    directory.id=H1iD5p3fTTq2yPzXcAnQ4w

Invariants: an id that was written is never replaced by another one, so a directory of another
cluster or node can be recognised and refused. Ids that are not known yet are omitted. If one of the
two files is missing or damaged, the other one is used, and the start that finds it writes both.
Unlike Kafka, which has no copy and no checksum: a flipped bit gives its directory another owner.
Source: apache/kafka metadata/.../properties/MetaProperties.java.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from ..disk.checkpoint_file import write_atomically
from ..disk.file_system import FileSystem, read_file
from ..disk.storage_failure import DataDirectoryError, DirectoryUnusable

FILE_NAME = "meta.properties"
COPY_NAME = "meta.properties.copy"
CRC_PREFIX = "#crc32c="
VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryIdentity:
    directory_id: str
    cluster_id: str | None = None
    node_id: int | None = None


class StoredIdentity(NamedTuple):
    """Identity found at a start. `flaw`: damage of one file, whose content is from the other."""

    identity: DirectoryIdentity | None
    flaw: str = ""


def read_identity(file_system: FileSystem, directory: str) -> StoredIdentity:
    """Read the identity; its `identity` is None if there is no file.

    Raises:
        DirectoryUnusable: there is a file, but no undamaged one.
    """
    flaws: list[str] = []
    for name in (FILE_NAME, COPY_NAME):
        path = f"{directory}/{name}"
        try:
            return StoredIdentity(_decode(read_file(file_system, path)), "; ".join(flaws))
        except FileNotFoundError:
            flaws.append(f"{path} is missing")
        except OSError as error:
            flaws.append(f"{path} cannot be read ({error.strerror or error})")
        except ValueError as error:
            flaws.append(f"{path} is damaged ({error})")
    if all(flaw.endswith("is missing") for flaw in flaws):
        return StoredIdentity(None)
    raise DirectoryUnusable(
        f"{flaws[0]}, and so is its copy; restore {directory}/{FILE_NAME} with the lines "
        "version=1, cluster.id=, node.id= and directory.id= as they were, or use another data "
        "directory"
    )


def _decode(content: bytes) -> DirectoryIdentity:
    """Decode a file. Raises ValueError with the reason."""
    lines = content.decode(errors="replace").splitlines()
    if lines and lines[0].startswith(CRC_PREFIX):
        crc, lines = lines[0].removeprefix(CRC_PREFIX), lines[1:]
        if crc != _crc(lines):
            raise ValueError("wrong CRC")
    values: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            values[name.strip()] = value.strip()
    node_id = values.get("node.id")
    if values.get("version") != VERSION:
        raise ValueError(f"it does not say version={VERSION}")
    if not (node_id is None or (node_id.isascii() and node_id.isdigit())):
        raise ValueError(f"node.id={node_id!r}")
    return DirectoryIdentity(
        # Kafka wrote no directory.id before KIP-858.
        directory_id=values.get("directory.id", ""),
        cluster_id=values.get("cluster.id"),
        node_id=None if node_id is None else int(node_id),
    )


def _crc(lines: Sequence[str]) -> str:
    return f"{crc32c(chr(10).join(lines).encode()):08x}"


def merge_identities(
    directory: str, stored: DirectoryIdentity, given: DirectoryIdentity
) -> DirectoryIdentity:
    """Stored identity, completed by the given one.

    Raises:
        DataDirectoryError: they contradict each other.
    """
    if None is not given.cluster_id != stored.cluster_id is not None:
        raise DataDirectoryError(
            f"{directory} belongs to cluster {stored.cluster_id}, not {given.cluster_id}; "
            "use another data directory, or join that cluster"
        )
    if None is not given.node_id != stored.node_id is not None:
        raise DataDirectoryError(
            f"{directory} belongs to node {stored.node_id}, not {given.node_id}; "
            "use another data directory, or start that node"
        )
    return DirectoryIdentity(
        directory_id=stored.directory_id or given.directory_id,
        cluster_id=given.cluster_id if stored.cluster_id is None else stored.cluster_id,
        node_id=given.node_id if stored.node_id is None else stored.node_id,
    )


def write_identity(file_system: FileSystem, directory: str, identity: DirectoryIdentity) -> None:
    """Write both files durably. Raises OSError."""
    lines = [f"version={VERSION}"]
    if identity.cluster_id is not None:
        lines.append(f"cluster.id={identity.cluster_id}")
    if identity.node_id is not None:
        lines.append(f"node.id={identity.node_id}")
    lines.append(f"directory.id={identity.directory_id}")
    text = "\n".join((f"{CRC_PREFIX}{_crc(lines)}", *lines, ""))
    write_atomically(file_system, f"{directory}/{FILE_NAME}", text.encode(), sync_names=False)
    write_atomically(file_system, f"{directory}/{COPY_NAME}", text.encode())


def has_copy(file_system: FileSystem, directory: str) -> bool:
    """Whether the copy has the same content: directories of former versions have no copy."""
    with suppress(OSError):
        copy = read_file(file_system, f"{directory}/{COPY_NAME}")
        return copy == read_file(file_system, f"{directory}/{FILE_NAME}")
    return False
