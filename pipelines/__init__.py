"""Bridges on top of the clients: Spark (RayDP), Ray Data, training loops.

ranges/                     readers of partition ranges, shared by the others
spark/, pyspark_bradbury/   DataFrames and streams; what Spark's workers import
ray_data/                   read_topic and write_topic
training/                   TopicDataset, for PyTorch
loads/, replays/            topics into tables and back
mirrors/, migrations/       topics of other clusters, mirrored; migrated
flows/                      several of these in one file
serving/                    Ray Serve deployments that consume topics

The names below are those of `bradbury` itself, imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .flows.run_flow import run_flow
    from .loads.load import load
    from .migrations.migration import Migration
    from .mirrors.background_mirror import Mirror
    from .mirrors.mirror import mirror
    from .replays.replay_table import replay

# public name -> module that owns it
_OWNERS = {
    "Migration": ".migrations.migration",
    "Mirror": ".mirrors.background_mirror",
    "load": ".loads.load",
    "mirror": ".mirrors.mirror",
    "replay": ".replays.replay_table",
    "run_flow": ".flows.run_flow",
}

__all__ = ["Migration", "Mirror", "load", "mirror", "replay", "run_flow"]


def __getattr__(name: str) -> object:
    owner = _OWNERS.get(name)
    if owner is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(owner, __name__), name)
