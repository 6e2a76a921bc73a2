"""Is nothing left of files whose writing ends half way, and is the reason what is raised?"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bradbury.pipelines.loads.table_files import TableFiles


class Folder:
    """A FilePlace."""

    has_partition_column = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, value: str | None, name: str) -> str:
        return str(self.folder / f"{value}-{name}")

    def create(self, path: str) -> AbstractContextManager[Any]:
        return open(path, "wb")

    def delete(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)


def test_an_interrupt_in_a_file_stays_one_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def close_of_half_a_file(writer: pq.ParquetWriter) -> None:
        close(writer)
        raise RuntimeError("file metadata is only available after writer close")

    rows = pa.RecordBatch.from_pydict({"day": ["a", "b"], "n": [1, 2]})
    close = pq.ParquetWriter.close
    with (
        pytest.raises(KeyboardInterrupt),
        TableFiles(Folder(tmp_path), "day") as files,  # type: ignore[arg-type]
    ):
        files.write(rows)
        assert len([*tmp_path.iterdir()]) == 2
        monkeypatch.setattr(pq.ParquetWriter, "write_batch", interrupted)
        monkeypatch.setattr(pq.ParquetWriter, "close", close_of_half_a_file)
        files.write(rows)
    monkeypatch.undo()
    assert [*tmp_path.iterdir()] == []
