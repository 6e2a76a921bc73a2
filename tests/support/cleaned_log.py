"""Waits until the cleaner has done its work on a partition of a local cluster."""

import threading
import time
from pathlib import Path

import bradbury

PATIENCE_SECONDS = 60.0


def wait_until_clean(cluster: bradbury.LocalCluster, topic: str, partition: int = 0) -> int:
    """Until all closed segments are; returns the offset that the cleaner's checkpoint says."""
    directory = next(Path(cluster.data_dir).rglob(f"{topic}-{partition}"))
    checkpoint = directory.parent / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = threading.Event()
    while time.monotonic() < deadline:
        active = max(int(path.stem) for path in directory.glob("*.log"))
        if (
            checkpoint.exists()
            and f"{topic} {partition} {active}" in checkpoint.read_text().splitlines()
        ):
            return active
        pause.wait(0.05)
    raise AssertionError(sorted(path.name for path in directory.iterdir()))
