"""The thread that checks the lag of a group, and resizes the group.

Invariants:
    A failed check changes nothing; it is logged and retried.
    While surplus members finish their batches, nothing else is decided.

Not here: the number of members (lag_scaling), the resize itself (group).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from ...protocol.errors import ConnectionFailed, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..admin.admin import Admin
from .backlogs import read_backlogs
from .lag_scaling import LagScaling, ScaleEvent, ScalingConfig

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
MAX_EVENTS: Final = 1_000


class ScaledGroup(Protocol):
    """Group to scale."""

    group: str

    @property
    def size(self) -> int: ...

    def resize(self, actors: int | None = None) -> None: ...


class Autoscaler:
    """Autoscaler of a group. alive: returns the group, or None after it was garbage-collected."""

    def __init__(
        self,
        config: ScalingConfig,
        alive: Callable[[], ScaledGroup | None],
        admin: Callable[[], Admin],
        topics: Callable[[Admin], list[TopicPartition]],
        *,
        starts_at_end: bool,
    ) -> None:
        self._scaling = LagScaling(config)
        self._with_times = config.target_lag_s is not None
        self._alive = alive
        self._admin = admin
        self._topics = topics
        self._starts_at_end = starts_at_end
        self._stopping = threading.Event()
        self.events: list[ScaleEvent] = []
        self._thread = threading.Thread(target=self._run, name="bradbury-scaling", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float | None) -> None:
        """Stop, and wait at most `timeout_s` for a resize in progress, which is completed."""
        self._stopping.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        admin: Admin | None = None
        while not self._stopping.wait(LOOK_S):
            group = self._alive()
            if group is None:
                break
            try:
                admin = admin or self._admin()
                self._resize(group, admin)
            except (KafkaError, ConnectionFailed) as error:
                logger.warning("group %s: its lag cannot be read: %s", group.group, error)
            except Exception:  # of Ray, say; without this thread nothing would be resized any more
                logger.exception("group %s: it was not resized", group.group)
            del group
        if admin is not None:
            admin.close()

    def _resize(self, group: ScaledGroup, admin: Admin) -> None:
        partitions = read_backlogs(
            admin,
            group.group,
            self._topics(admin),
            with_times=self._with_times,
            starts_at_end=self._starts_at_end,
        )
        actors = group.size
        wanted = self._scaling.decide(time.monotonic(), actors, partitions)
        if wanted == actors or self._stopping.is_set():
            return
        ages = [one.age_s for one in partitions if one.records and one.age_s is not None]
        event = ScaleEvent(
            datetime.now(UTC),
            actors,
            wanted,
            sum(one.records for one in partitions),
            max(ages, default=None),
        )
        logger.info("group %s: %s", group.group, event)
        self.events.append(event)
        del self.events[:-MAX_EVENTS]
        group.resize(wanted)
