"""Type of readable bytes that the codecs take without a copy."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
