"""Error of read_topic and write_topic if Ray's data library is not installed."""

from __future__ import annotations

from ...discovery.extras import install_command, missing_modules


class RayDataMissing(ImportError):
    """The extra [data] is not installed. The text is one line: the cause and the remedy."""


def require_ray_data() -> None:
    """Check that Ray Data is installed. Raises RayDataMissing."""
    missing = missing_modules("data")
    if missing:
        raise RayDataMissing(
            f"Ray Data needs {', '.join(missing)}; install the extra: {install_command('data')}"
        )
