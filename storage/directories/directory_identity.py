"""Whose data directory this is: meta.properties.

    version=1
    cluster.id=QDDfLpYkQbSc0WwbXyUzVQ
    node.id=3
    directory.id=H1iD5p3fTTq2yPzXcAnQ4w

What always holds: what has been written is never changed to something else, so a directory of
another cluster or node can be recognised and refused. Ids that are not known yet are omitted.
Source: apache/kafka metadata/.../properties/MetaProperties.java.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..disk.checkpoint_file import write_atomically
from ..disk.file_system import FileSystem, read_file
from ..disk.storage_failure import DataDirectoryError, DirectoryUnusable

FILE_NAME = "meta.properties"
VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryIdentity:
    directory_id: str
    cluster_id: str | None = None
    node_id: int | None = None


def read_identity(file_system: FileSystem, directory: str) -> DirectoryIdentity | None:
    """None if there is no file. Raises DirectoryUnusable if it is damaged, OSError."""
    path = f"{directory}/{FILE_NAME}"
    try:
        lines = read_file(file_system, path).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    values: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            values[name.strip()] = value.strip()
    node_id = values.get("node.id")
    if values.get("version") != VERSION or not (node_id is None or node_id.isdigit()):
        raise DirectoryUnusable(f"{path} is damaged; restore it, or use another data directory")
    return DirectoryIdentity(
        # Kafka wrote none before it had several directories on a node.
        directory_id=values.get("directory.id", ""),
        cluster_id=values.get("cluster.id"),
        node_id=None if node_id is None else int(node_id),
    )


def merge_identities(
    directory: str, stored: DirectoryIdentity, given: DirectoryIdentity
) -> DirectoryIdentity:
    """What is stored, completed by what is given.

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
    """Durably. Raises OSError."""
    lines = [f"version={VERSION}"]
    if identity.cluster_id is not None:
        lines.append(f"cluster.id={identity.cluster_id}")
    if identity.node_id is not None:
        lines.append(f"node.id={identity.node_id}")
    lines.append(f"directory.id={identity.directory_id}")
    text = "\n".join((*lines, ""))
    write_atomically(file_system, f"{directory}/{FILE_NAME}", text.encode())
