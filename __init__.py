"""Bradbury: the Kafka-compatible, replicated log that lives inside a Ray cluster.

    import bradbury

    cluster = bradbury.up()                 # brokers on every node of this Ray cluster
    with bradbury.Producer() as producer:   # inside any Ray task: no address needed
        producer.send("flights", key=b"UA1545", value=b"{}")

Every public name below is imported on first use, so `import bradbury` stays cheap and needs
neither Ray nor Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    pass

# public name -> module that owns it
_OWNERS: dict[str, str] = {}

__all__ = ["__version__"]


def __getattr__(name: str) -> object:
    owner = _OWNERS.get(name)
    if owner is None:
        raise AttributeError(f"module 'bradbury' has no attribute {name!r}")
    value = getattr(import_module(owner, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_OWNERS])
