"""The interfaces of Kafka 0.7 by their short name: `from bradbury.classic import SimpleConsumer`.

They live in clients/classic; docs/classic.md describes them.
"""

from .clients.classic import *  # noqa: F403 -- all that its __all__ names
from .clients.classic import __all__  # noqa: F401 -- the same for others
