"""The member actors of a group, supervised by the process that holds the group.

Invariants:
    A member has its own name in the group (`<prefix>-<number>`), whatever its actor: an actor that
    Ray restarts, or a new one if Ray no longer restarts it, continues as the same static member.
    A member that does not restart within `grace_s` of its death is removed from the group, so that
    the others get its partitions before its session times out. After a restart it rejoins.

Ray reports a death by failing the call `watch` of the actor.

Not here: members themselves (member), calls to them (results, group).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.exceptions import ActorDiedError

from ...protocol.errors import ConnectionFailed, KafkaError
from .member import MemberActor
from .processing.member_config import MemberConfig

logger = logging.getLogger(__name__)

State = Literal["running", "restarting", "away", "stopping"]


@dataclass(slots=True, eq=False)
class WorkerMember:
    """Member of the group. deadline: time.monotonic() seconds when it is removed; None if alive."""

    number: int
    instance_id: str
    actor: Any
    state: State = "running"
    restarts: int = 0
    deadline: float | None = None


class Members:
    """Members of one group. remove: removes a member from the group by its instance id."""

    def __init__(
        self,
        configure: Callable[[int], MemberConfig],
        *,
        options: Mapping[str, Any],
        grace_s: float,
        remove: Callable[[str], None],
    ) -> None:
        self._configure = configure
        self._options = dict(options)
        self._grace_s = grace_s
        self._remove = remove
        self._lock = threading.RLock()
        self._members: dict[int, WorkerMember] = {}
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._joined: list[Callable[[WorkerMember], None]] = []
        self._thread = threading.Thread(target=self._run, name="bradbury-group", daemon=True)
        self._thread.start()

    def all(self) -> list[WorkerMember]:
        with self._lock:
            return [member for _, member in sorted(self._members.items())]

    def for_each(self, joined: Callable[[WorkerMember], None]) -> None:
        """Call `joined` for every member, now and later; on any thread, with the lock held."""
        with self._lock:
            self._joined.append(joined)
            for member in self.all():
                joined(member)

    def resize(self, count: int) -> list[WorkerMember]:
        """Start members until there are `count`; return surplus members, which are stopping."""
        with self._lock:
            for number in range(count):
                if number not in self._members:
                    self._start(number)
            leaving = [member for number, member in self._members.items() if number >= count]
            for member in leaving:
                member.state = "stopping"
                del self._members[member.number]
            return leaving

    def stop(
        self, members: list[WorkerMember], timeout_s: float | None, *, settle: bool = False
    ) -> list[str]:
        """Stop members and end their actors; return the names of those that were too slow.

        With `settle` they first wait until their results were handled.
        """
        refs = {member.actor.stop.remote(timeout_s, settle): member for member in members}
        limit = None if timeout_s is None else timeout_s + 5
        late = []
        done, _ = ray.wait(list(refs), num_returns=len(refs), timeout=limit) if refs else ([], [])
        for ref, member in refs.items():
            if ref not in done or not _succeeded(ref):
                late.append(member.instance_id)
            ray.kill(member.actor)
        for instance_id in late:
            self._remove_from_group(instance_id)
        return late

    def close(self) -> None:
        """Stop supervision, and end the remaining members at once.

        At the end of the interpreter Ray may be shut down, and any call would start it.
        """
        with self._lock:
            members = list(self._members.values())
            self._members.clear()
        for member in members:
            member.state = "stopping"
            if ray.is_initialized():
                ray.kill(member.actor)
        self._events.put(None)

    # --- watching, on its own thread -----------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=self._wait_s())
            except queue.Empty:
                self._remove_late_members()
                continue
            if event is None:
                return
            try:
                event()
            except Exception:
                logger.exception("supervision of a member failed; this is a bug in Bradbury")

    def _wait_s(self) -> float | None:
        deadlines = [one.deadline for one in self.all() if one.deadline is not None]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _start(self, number: int, restarts: int = 0) -> None:
        config = self._configure(number)
        actor = MemberActor.options(**self._options).remote(config)
        member = WorkerMember(number, config.instance_id, actor, restarts=restarts)
        self._members[number] = member
        self._watch(member)
        for joined in self._joined:
            joined(member)

    def _watch(self, member: WorkerMember) -> None:
        member.actor.watch.remote().future().add_done_callback(
            lambda done: self._events.put(lambda: self._on_ended(member, done.exception()))
        )

    def _on_ended(self, member: WorkerMember, error: BaseException | None) -> None:
        """Handle the end of a member's process, or a stop with an error that `take` raises."""
        if error is None or member.state == "stopping":
            return
        logger.warning("member %s died: %s", member.instance_id, error)
        member.state = "restarting"
        member.restarts += 1
        member.deadline = time.monotonic() + self._grace_s
        member.actor.alive.remote().future().add_done_callback(
            lambda done: self._events.put(lambda: self._on_alive(member, done.exception()))
        )

    def _on_alive(self, member: WorkerMember, error: BaseException | None) -> None:
        with self._lock:
            if self._members.get(member.number) is not member:
                return
            if error is None:
                member.state = "running"
                member.deadline = None
                member.actor.resize.remote(self._configure(member.number).workers)
                self._watch(member)
            elif isinstance(error, ActorDiedError):
                logger.warning("member %s is created again: %s", member.instance_id, error)
                self._start(member.number, member.restarts)
            else:
                self._on_ended(member, error)

    def _remove_late_members(self) -> None:
        now = time.monotonic()
        for member in self.all():
            if member.deadline is not None and member.deadline <= now:
                member.deadline = None
                member.state = "away"
                self._remove_from_group(member.instance_id)

    def _remove_from_group(self, instance_id: str) -> None:
        try:
            self._remove(instance_id)
        except (KafkaError, ConnectionFailed) as error:
            logger.info("member %s was not removed from the group: %s", instance_id, error)


def _succeeded(ref: Any) -> bool:
    try:
        return bool(ray.get(ref))
    except ray.exceptions.RayError:
        return False
