"""Delta table as a source of a replay: a version, then the rows that later versions added.

The first part is the whole version that was the newest when the replay began; each later version
that added rows is a part of its own. OPTIMIZE rewrites files without changing rows, and is skipped.
Versions that deleted or changed rows are refused: records in a topic cannot be removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from ...discovery.extras import install_command, missing_modules
from .table_source import ReplayFailed, TablePart

_ANEW: Final = "replay the table into a new topic, or under another --name"


class DeltaSource:
    """Delta table to replay. path: a directory, or a URL that delta-rs supports (s3://..., ...)."""

    def __init__(self, path: str) -> None:
        """Raises ReplayFailed: the extra [delta] is not installed, or it is not a Delta table."""
        if missing_modules("delta"):
            raise ReplayFailed(f"Delta tables need an extra: {install_command('delta')}")
        from deltalake.fs import DeltaStorageHandler

        self._path = path
        table = self._version(None)
        self._newest = table.version()
        self._log = fs.PyFileSystem(DeltaStorageHandler.from_table(table._table))
        self.table_id = str(table.metadata().id)
        self._table = table
        self.schema = self._dataset(table).schema

    def part(self, number: int, *, is_whole: bool) -> TablePart | None:
        if is_whole:
            table = self._version(number)
            return self._whole(table, number)
        return self._added(number)

    def parts(self, after: int | None) -> Iterator[TablePart]:
        if after is None:
            yield self._whole(self._table, self._newest)
            return
        for number in range(after + 1, self._newest + 1):
            part = self._added(number)
            if part is not None:
                yield part

    def _whole(self, table: Any, number: int) -> TablePart:
        dataset = self._dataset(table)
        files = {fragment.path: fragment for fragment in dataset.get_fragments()}
        return self._part(dataset, files, number, is_whole=True)

    def _part(
        self, dataset: Any, files: dict[str, Any], number: int, *, is_whole: bool
    ) -> TablePart:
        ordered = ds.FileSystemDataset(
            [files[path] for path in sorted(files)],
            dataset.schema,
            dataset.format,
            dataset.filesystem,
        )
        return TablePart(number, is_whole, ordered, tuple(files))

    def _added(self, number: int) -> TablePart | None:
        """Rows that a version added; None: it added none. Raises ReplayFailed for other changes."""
        actions = self._actions(number)
        changed = [each["remove"] for each in actions if "remove" in each]
        if any(each.get("dataChange", True) for each in changed):
            raise ReplayFailed(
                f"version {number} of {self._path} changed or deleted rows that were already "
                f"replayed; {_ANEW}"
            )
        added = {
            each["add"]["path"]
            for each in actions
            if "add" in each and each["add"].get("dataChange", True)
        }
        if not added:
            return None
        dataset = self._dataset(self._version(number))
        # Partition values in paths are quoted once more in the log than in file names.
        names = {name.rsplit("/", 1)[-1] for name in added}
        files = {
            fragment.path: fragment
            for fragment in dataset.get_fragments()
            if fragment.path.rsplit("/", 1)[-1] in names
        }
        if len(files) != len(added):
            raise ReplayFailed(
                f"version {number} of {self._path} lists files that do not exist; {_ANEW}"
            )
        return self._part(dataset, files, number, is_whole=False)

    def _actions(self, number: int) -> list[dict[str, Any]]:
        try:
            with self._log.open_input_file(f"_delta_log/{number:020}.json") as file:
                return [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except OSError:
            raise ReplayFailed(
                f"the log of {self._path} no longer has version {number}, so the rows added "
                f"since the last replay are unknown; {_ANEW}"
            ) from None

    def _dataset(self, table: Any) -> Any:
        from deltalake.exceptions import DeltaError

        try:
            return table.to_pyarrow_dataset()
        except (DeltaError, pa.ArrowException) as error:
            raise ReplayFailed(f"{self._path}: {error}") from None

    def _version(self, number: int | None) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(self._path, version=number)
        except TableNotFoundError:
            raise ReplayFailed(
                f"{self._path} is not a Delta table; use the format parquet for a directory of "
                "Parquet files"
            ) from None
        except DeltaError as error:
            raise ReplayFailed(
                f"version {number} of {self._path} can no longer be read ({error}); {_ANEW}"
                if number is not None
                else f"{self._path} is not a readable Delta table: {error}"
            ) from None
