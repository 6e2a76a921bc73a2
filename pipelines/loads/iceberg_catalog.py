"""Access to Iceberg catalogs and tables through PyIceberg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...discovery.extras import install_command, missing_modules


class CatalogFailed(Exception):
    """A catalog cannot be opened. The text says why, and what to do."""


def open_catalog(name: str | None, properties: Mapping[str, str]) -> Any:
    """Open a pyiceberg Catalog; without a name PyIceberg's default one.

    The name matters: a SQL catalog stores it with each table.

    Raises CatalogFailed: the extra [iceberg] is not installed, or the catalog does not exist.
    """
    if missing_modules("iceberg"):
        raise CatalogFailed(f"Iceberg tables need an extra: {install_command('iceberg')}")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NotInstalledError

    try:
        return load_catalog(name, **properties)
    except (ValueError, NotInstalledError, OSError) as error:
        raise CatalogFailed(
            f"catalog {name or 'default'!r} cannot be opened ({error}); name one of "
            "~/.pyiceberg.yaml, or give its properties, as type=sql uri=sqlite:///catalog.db "
            "warehouse=file:///tables, or type=rest uri=http://..."
        ) from None


def open_table(catalog: Any, name: str, schema: Any, partition_by: Sequence[str]) -> Any:
    """The table `namespace.table`, created if it does not exist. Raises what PyIceberg raises."""
    from pyiceberg.exceptions import (
        CommitFailedException,
        NoSuchTableError,
        TableAlreadyExistsError,
    )

    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        pass
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    try:
        with catalog.create_table_transaction(name, schema) as made:
            if partition_by:
                with made.update_spec() as spec:
                    for column in partition_by:
                        spec.add_identity(column)
    except (TableAlreadyExistsError, CommitFailedException):
        pass  # another process created it first
    return catalog.load_table(name)
