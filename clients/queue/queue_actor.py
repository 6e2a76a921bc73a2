"""The Ray actor of a queue. It has no data path: processes talk to its socket (queue_server).

Invariants:
    An actor that Ray restarts reads the consumed positions, takes over from its predecessor, and
    waits for its client processes to reconnect (queue_server.RECONNECT_S).
    An actor that fails ends its process, and Ray restarts it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from typing import Any

import ray

from .queue_brokers import QueueBrokers
from .queue_connection import QueueAddress
from .queue_log import QueueLog, delete_queue_topics
from .queue_server import QueueServer

logger = logging.getLogger(__name__)


class QueueProcess:
    """Code of the queue's actor.

    Args:
        is_temporary: its topics are deleted at a clean shutdown.
    """

    def __init__(
        self,
        brokers: QueueBrokers,
        name: str,
        *,
        maxsize: int,
        lease_s: float,
        max_deliveries: int,
        retention_s: float,
        is_temporary: bool,
    ) -> None:
        self._brokers = brokers
        self._name = name
        self._settings: dict[str, Any] = {
            "maxsize": maxsize,
            "lease_s": lease_s,
            "max_deliveries": max_deliveries,
            "retention_s": retention_s,
        }
        self._is_temporary = is_temporary
        self._server = QueueServer(
            QueueLog(brokers, name, retention_s),
            maxsize=maxsize,
            lease_s=lease_s,
            max_deliveries=max_deliveries,
        )
        self._ready = asyncio.Event()
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def __repr__(self) -> str:
        """Name shown in Ray's dashboard, with the queue's name."""
        return f"{type(self).__name__}({self._name})"

    async def _serve(self) -> None:
        self._host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        try:
            await self._server.start(self._host, follows_another=_was_restarted())
            self._ready.set()
            await self._server.failed
        except asyncio.CancelledError:
            raise
        except BaseException:
            if not self._closing:
                logger.exception("queue %s: the actor failed; Ray restarts it", self._name)
                os._exit(70)

    @ray.method(max_task_retries=-1)
    async def address(self) -> QueueAddress:
        """Address of the actor's socket, once it serves."""
        await self._ready.wait()
        server = self._server
        return QueueAddress(self._host, server.port, server.token, **self._settings)

    async def qsize(self) -> int:
        await self._ready.wait()
        return await self._server.size()

    async def empty(self) -> bool:
        return await self.qsize() == 0

    async def full(self) -> bool:
        return 0 < self._server.maxsize <= await self.qsize()

    async def close(self) -> None:
        """Commit consumed positions."""
        await self._ready.wait()
        self._closing = True
        await self._server.close()

    def __ray_shutdown__(self) -> None:
        """End the queue when Ray shuts the actor down, as there are no handles any more."""
        if self._is_temporary:
            delete_queue_topics(self._brokers, self._name)


def _was_restarted() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray itself calls there is deprecated
        return bool(ray.get_runtime_context().was_current_actor_reconstructed)


_OPTIONS: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0}


def queue_actor(options: dict[str, Any], *arguments: Any, **settings: Any) -> Any:
    """Create a queue actor, or get the one with that name; return its handle."""
    actor_class: Any = ray.remote(QueueProcess)
    return actor_class.options(**{**_OPTIONS, **options}).remote(*arguments, **settings)
