"""PEM that is given as text, in the lines that OpenSSL wants.

Kafka takes any white space between the parts of a block and within its base64
(DefaultSslEngineFactory.PemParser), so that a certificate is often one line with spaces: a value of
a properties file, an environment variable, a secret of Kubernetes.
"""

from __future__ import annotations

import re
import textwrap
from typing import Final

_BLOCK: Final = re.compile(
    r"\s*-----BEGIN ([A-Z0-9 ]+)-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END \1-----\s*", re.ASCII
)
LINE: Final = 64
"""Characters of base64 in a line (RFC 7468, 2)."""


def pem_in_lines(text: str) -> str:
    """Put the blocks of `text` into lines. Blocks with headers (RFC 1421) remain as they are."""
    return _BLOCK.sub(_in_lines, text)


def _in_lines(block: re.Match[str]) -> str:
    label, content = block.groups()
    lines = textwrap.wrap("".join(content.split()), LINE)
    return "\n".join(("", f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))
