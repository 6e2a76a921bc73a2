"""One node of a local cluster in a child process: the parent's side.

Invariants:
    The child ends with its parent, however that ends: the channel is closed then.
    A child that dies is restarted on the same data, as Ray does with its actors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from ...actors.loop.carry_through import within
from ...actors.node import NodeConfig
from ...controller.controller_calls import ControllerCall
from ...discovery.byte_code import byte_code_kept
from ...handlers.ports.context import Controller
from ...protocol.errors import ConnectionFailed
from .channel import Channel
from .hosted_node import Incarnation

logger = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 0.5
LEAVE_SECONDS = 10.0
END_SECONDS = 40.0
"""Maximum seconds to flush data to the disk before the process is killed."""
_PROGRAM: Final = (
    "import sys; sys.path[:] = {path!r}; "
    "from bradbury.launch.processes.hosted_node import main; main({descriptor})"
)


class NodeProcess:
    """A node in a process of its own. `start`, `stop`; used on the loop of the controller."""

    def __init__(self, config: NodeConfig, controller: Controller) -> None:
        self._config = config
        self._controller = controller
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.life: Incarnation | None = None
        """Incarnation of the node; None while it is not in service."""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process, and keep it running. Raises what Node.open and Node.join raise."""
        reading = await self._begin()
        self._keeper = asyncio.create_task(self._keep(reading))

    async def knows(self, others: Sequence[Incarnation]) -> bool:
        """Whether its metadata has the other nodes. True while down: it gets them on start."""
        with contextlib.suppress(ConnectionFailed):
            return self.life is None or bool(await self._ask("knows", others))
        return True

    async def stop(self, *, leave: bool = False) -> None:
        """Stop the process. leave: hand over leadership first, where possible."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        if leave:
            with contextlib.suppress(ConnectionFailed, TimeoutError):
                await within(LEAVE_SECONDS, self._ask("leave"))
        await self._end()

    async def _ask(self, name: str, *arguments: Any) -> Any:
        if self._channel is None:
            raise ConnectionFailed("the process has ended")
        return await self._channel.call(name, *arguments)

    async def _begin(self) -> asyncio.Task[None]:
        """Start the process and join; the returned task ends when the process does."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.to_thread(_started, theirs)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        self._channel = channel = Channel(reader, writer, {"ask_controller": self._ask_controller})
        reading = asyncio.create_task(channel.run())
        try:
            await channel.call("open", self._config)
            self.life = await channel.call("join")
        except BaseException:
            reading.cancel()
            await self._end()
            raise
        return reading

    async def _keep(self, reading: asyncio.Task[None]) -> None:
        """Restart the process whenever it has ended."""
        while True:
            await asyncio.shield(reading)
            await self._end()
            logger.error("process of %s has ended; restarting it", self._config.directory)
            while True:
                await asyncio.sleep(AGAIN_SECONDS)
                try:
                    reading = await self._begin()
                    break
                except Exception as error:  # noqa: BLE001 -- any failure is retried
                    logger.warning(
                        "process of %s failed to start: %s", self._config.directory, error
                    )

    async def _ask_controller(self, call: ControllerCall[Any]) -> Any:
        return await self._controller.ask(call)

    async def _end(self) -> None:
        """Close the channel, upon which the child closes its node and exits; wait for its exit."""
        self.life = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            process, self._process = self._process, None
            await asyncio.to_thread(_ended, process)


def _started(connection: socket.socket) -> subprocess.Popen[bytes]:
    program = _PROGRAM.format(path=sys.path, descriptor=connection.fileno())
    with byte_code_kept():
        return subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            pass_fds=[connection.fileno()],
        )


def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
