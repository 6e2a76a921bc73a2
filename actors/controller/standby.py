"""A broker's stand-in for a controller that is not heard: drives controller/standby_controller."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.quorum.candidacy import Candidacy
from ...controller.effects import (
    AskStandby,
    EndStandby,
    Instant,
    ProbePort,
    PromisedAnew,
    StandIn,
)
from ...controller.standby_controller import Seen, StandbyController, StandbyTimes
from ...protocol.errors import ConnectionFailed, NotController
from ..loop.carry_through import within
from ..network.peer_connection import is_port_closed
from .controller import Controller
from .voter_host import VoterHost

logger = logging.getLogger(__name__)

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
        times: StandbyTimes | None = None,
    ) -> None:
        """`on_promised`: told when there is somebody else who may be the controller."""
        self._make = make
        self._voter = voter
        self._image = image
        self._on_promised = on_promised
        self._effects: list[Any] = []
        self._step = StandbyController(candidacy, self._effects, times)
        self._controller: Controller | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def controller(self) -> Controller:
        """The one that stands in. Raises NotController if none does."""
        if self._controller is None or not self._controller.is_active:
            raise NotController("this broker stands in for no controller")
        return self._controller

    async def run(self) -> None:
        """For ever; no error of a controller ends it."""
        while not self._is_closed:
            wait_ms = self._step.next_deadline_ms - self._now().now_ms
            await asyncio.sleep(max(wait_ms + 1, 1) / 1000)
            try:
                self._step.on_tick(self._seen(), self._now())
            except Exception:
                logger.exception("standing in for the controller failed")
            self._perform()

    def _now(self) -> Instant:
        """Silence is counted on a clock that never jumps."""
        return Instant(int(asyncio.get_running_loop().time() * 1000), time.time_ns() // 1_000_000)

    def _seen(self) -> Seen | None:
        try:
            voter = self._voter()
        except ConnectionFailed:
            return None
        if not voter.is_open:
            return None
        controller = self._controller
        me = None if controller is None else controller.me
        is_active = controller is not None and controller.is_active
        return Seen(
            voter.promise, voter.directory.identity.directory_id, self._image(), me, is_active
        )

    def _perform(self) -> None:
        effects, self._effects[:] = self._effects[:], []
        for effect in effects:
            if isinstance(effect, PromisedAnew):
                self._on_promised()
            elif not self._is_closed:
                task = asyncio.create_task(self._run(effect))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run(self, effect: Any) -> None:
        result: Any
        try:
            result = await self._result_of(effect)
        except Exception as error:  # noqa: BLE001 -- the step decides what comes of it
            result = error
        if not isinstance(effect, EndStandby):
            self._step.on_done(effect, result, self._now())
            self._perform()

    async def _result_of(self, effect: Any) -> Any:
        match effect:
            case ProbePort(host, port):
                return await is_port_closed(host, port)
            case StandIn(timeout_ms):
                return await self._stand(timeout_ms / 1000)
            case AskStandby(call):
                return await self.controller().ask(call)
            case EndStandby(reason):
                controller, self._controller = self._controller, None
                if controller is not None:
                    controller.end(reason)
                    await controller.close()
        return None

    async def _stand(self, seconds: float) -> MetadataImage:
        controller = self._make(lambda: None)
        try:
            await within(seconds, controller.start())
        except BaseException:
            await controller.close()
            raise
        self._controller = controller
        return controller.image

    async def close(self) -> None:
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        controller, self._controller = self._controller, None
        if controller is not None:
            await controller.close()
