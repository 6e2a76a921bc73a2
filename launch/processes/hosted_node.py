"""One process of `local(processes=N)`: it runs one Node, until its parent process ends.

node_process starts it, with one end of the channel as an inherited socket. A node that is fenced,
or whose disk has failed, ends the process, and the parent restarts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final, TypeVar

import uvloop

from ...actors.loop.heap import heap
from ...actors.node import Node, NodeConfig
from ...cluster.metadata.metadata_image import MetadataImage
from ...controller.controller_calls import ControllerCall
from ...handlers.ports.context import Controller
from .channel import Channel

T = TypeVar("T")
EXIT_FENCED: Final = 71
CLOSE_SECONDS: Final = 60.0
"""Maximum seconds to flush data to the disk once the parent process has ended."""

Incarnation = tuple[int, str]
"""Node id, and id of the node's current incarnation."""


class DistantController(Controller):
    """Controller in the parent process, at the other end of the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def ask(self, call: ControllerCall[T]) -> T:
        answer: T = await self._channel.call("ask_controller", call)
        return answer


class _HostedNode:
    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.node: Node | None = None

    async def open(self, config: NodeConfig) -> None:
        """Make and open the node. Raises what Node.open raises."""
        assert self.channel is not None
        self.node = Node(config, DistantController(self.channel), on_fenced=_leave)
        await self.node.open()

    async def join(self) -> Incarnation:
        """Join the cluster. Raises what Node.join raises."""
        assert self.node is not None
        await self.node.join()
        return self.node.node_id, self.node.incarnation

    async def knows(self, others: Sequence[Incarnation]) -> bool:
        assert self.node is not None
        image = self.node.image
        return all(is_in_service(image, each) for each in others)

    async def leave(self) -> bool:
        return self.node is None or await self.node.leave()

    async def close(self) -> None:
        if self.node is not None:
            await self.node.close()


def is_in_service(image: MetadataImage, life: Incarnation) -> bool:
    """Whether the node is unfenced in this incarnation."""
    node_id, incarnation = life
    known = image.nodes.get(node_id)
    return known is not None and not known.fenced and known.incarnation == incarnation


def _leave(reason: str) -> None:
    print(f"bradbury: a process of local() ends, {reason}", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(EXIT_FENCED)


async def _serve(connection: socket.socket) -> None:
    hosted = _HostedNode()
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    methods = {name: getattr(hosted, name) for name in ("open", "join", "knows", "leave")}
    hosted.channel = Channel(reader, writer, methods)
    await hosted.channel.run()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await hosted.close()


def main(descriptor: int) -> None:
    """Run a node. descriptor: the inherited socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    heap.own_process()
    uvloop.run(_serve(socket.socket(fileno=descriptor)))
    sys.stdout.flush()
    os._exit(0)  # threads of the storage may still wait for a disk
