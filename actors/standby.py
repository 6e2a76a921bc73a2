"""A broker's stand-in for a controller that is not heard: a Controller of its own, in this process.

It is there until a newer controller has the promise of this node's voter; the one that Ray starts
takes over that way. Made in a running process, it is active in a fraction of a second, where a new
actor takes seconds, and Ray's notice of a dead node many more.

Who stands when is decided in cluster/candidacy; that two controllers are safe, by the voters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..cluster.candidacy import Candidacy
from ..cluster.metadata_image import MetadataImage
from ..cluster.voter import Promise
from ..controller.controller_calls import Suspect
from ..controller.metadata_leader import Superseded
from ..protocol.errors import ConnectionFailed, KafkaError, NotController
from .carry_through import within
from .controller import Controller
from .peer_connection import is_port_closed
from .voter_host import VoterHost

logger = logging.getLogger("bradbury.controller")

LOOK_SECONDS = 0.1
AGAIN_SECONDS = 1.0
START_SECONDS = 10.0
AT_ONCE = 50

MakeController = Callable[[Callable[[], None]], Controller]
"""Given what to call when it was superseded."""


class Standby:
    """`run` it for as long as the node is in service; `close` ends what it has started."""

    def __init__(
        self,
        make: MakeController,
        *,
        voter: Callable[[], VoterHost],
        image: Callable[[], MetadataImage],
        candidacy: Candidacy,
        on_promised: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_promised`: told when there is somebody else who may be the controller."""
        self._on_promised = on_promised
        self._promise: Promise | None = None
        self._make = make
        self._voter = voter
        self._image = image
        self._candidacy = candidacy
        self._controller: Controller | None = None
        self._is_closed = False

    def controller(self) -> Controller:
        """The one that stands in. Raises NotController if none does."""
        if self._controller is None or not self._controller.is_active:
            raise NotController("this broker stands in for no controller")
        return self._controller

    async def run(self) -> None:
        """For ever; no error of a controller ends it."""
        while not self._is_closed:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if self._is_open():
                    await self._look()
            except (KafkaError, ConnectionFailed, Superseded, TimeoutError) as error:
                logger.info("not standing in for the controller: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
            except Exception:
                logger.exception("standing in for the controller failed")
                await asyncio.sleep(AGAIN_SECONDS)

    def _is_open(self) -> bool:
        """Before, there is no voter that could be asked."""
        try:
            return self._voter().is_open
        except ConnectionFailed:
            return False

    async def _look(self) -> None:
        newest = self._voter().promise
        before, self._promise = self._promise, newest
        if before not in (None, newest):
            self._candidacy.on_promised(now_ms=_clock_ms())
            self._on_promised()
        if self._controller is not None:
            if newest != self._controller.me:
                self._controller.end(f"epoch {newest.epoch} is promised")
            if not self._controller.is_active:
                controller, self._controller = self._controller, None
                await controller.close()
            return
        # At first without a look at the others, which costs connections.
        if self._is_due(0) and self._is_due(await self._voters_before()):
            await self._stand()

    def _is_due(self, voters_before: int) -> bool:
        return self._candidacy.is_due(now_ms=_clock_ms(), voters_before=voters_before)

    async def _voters_before(self) -> int:
        """Those in front of this one whose process is not known to be dead."""
        image = self._image()
        me = self._voter().directory.directory_id
        nodes = {node.metadata_directory_id: node for node in image.nodes.values()}
        names = image.voters[: image.voters.index(me)] if me in image.voters else image.voters
        before = [nodes[name] for name in names if name in nodes and not nodes[name].fenced]
        closed = await asyncio.gather(*(is_port_closed(node.host, node.port) for node in before))
        return closed.count(False)

    async def _stand(self) -> None:
        image = self._image()
        if self._voter().directory.directory_id not in image.voters or self._is_closed:
            return
        logger.warning("the controller is not heard: standing in for it")
        controller = self._make(lambda: None)
        try:
            await within(START_SECONDS, controller.start())
        except BaseException:
            await controller.close()
            raise
        self._controller = controller
        if self._is_closed:
            await self.close()
            return
        await self._look_for_the_dead(controller)

    async def _look_for_the_dead(self, controller: Controller) -> None:
        """The former controller did not die alone, perhaps: others than the dead shall lead soon.

        Whoever misses them says so, too, but only when he has found this controller.
        """
        nodes = [node.node_id for node in controller.image.live_nodes()]
        for first in range(0, len(nodes), AT_ONCE):
            some = nodes[first : first + AT_ONCE]
            await asyncio.gather(*(controller.ask(Suspect(node_id)) for node_id in some))

    async def close(self) -> None:
        self._is_closed = True
        controller, self._controller = self._controller, None
        if controller is not None:
            await controller.close()


def _clock_ms() -> int:
    """Silence is counted on a clock that never jumps."""
    return int(asyncio.get_running_loop().time() * 1000)
