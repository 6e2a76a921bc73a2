"""Secrets that settings refer to, and do not contain: in files or environment variables."""

from __future__ import annotations

import os
from pathlib import Path

from ...protocol.security.secret_reference import resolve


def read_secret(text: str) -> str:
    """Resolve a secret reference; other text is returned as it is. Raises InvalidConfig."""
    return resolve(text, read=_read_text, environment=os.environ.get)


def _read_text(path: str) -> str:
    return Path(path).read_text()
