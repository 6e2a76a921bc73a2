"""Bytes that can be read without a copy: what the codecs take."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
