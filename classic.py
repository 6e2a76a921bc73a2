"""The interfaces of Kafka 0.7 under their short name: `from bradbury.classic import SimpleConsumer`.

They live in clients/classic; docs/classic.md describes them.
"""

from .clients.classic import *
from .clients.classic import __all__ as __all__
