"""Error of serve_topic if Ray Serve is not installed."""

from __future__ import annotations

from ...discovery.extras import install_command, missing_modules


class RayServeMissing(ImportError):
    """The extra [serve] is not installed. The text is one line: the cause and the remedy."""


def require_ray_serve() -> None:
    """Check that Ray Serve is installed. Raises RayServeMissing."""
    missing = missing_modules("serve")
    if missing:
        raise RayServeMissing(
            f"Ray Serve needs {', '.join(missing)}; install the extra: {install_command('serve')}"
        )
