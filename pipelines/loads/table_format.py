"""Check for a table of another format in a local directory.

Tables of two formats in one directory would share their files: a reader of Parquet files would see
the records of both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .load_target import LoadFailed

_SIGNS: Final = {
    "parquet": "_bradbury/commits/*.json",
    "delta": "_delta_log/*",
    "iceberg": "metadata/*.metadata.json",
}
"""Files that only a table of the format has."""


def check_format(path: str, table_format: str) -> None:
    """Check that no table of another format is in a directory; URLs of object stores pass.

    Raises LoadFailed: there is one.
    """
    folder = Path(path.removeprefix("file://"))
    for other, sign in _SIGNS.items():
        if other != table_format and next(folder.glob(sign), None) is not None:
            raise LoadFailed(
                f"{path} has a table in the format {other}; with {table_format} beside it readers "
                f"would see records twice: use another directory, or the format {other}"
            )
