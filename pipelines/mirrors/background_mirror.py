"""`bradbury.Mirror`: topics of several clusters kept in one, while a program does other things.

    with bradbury.Mirror("flights", {"west": "kafka-1:9092", "east": "kafka-9:9092"}) as mirror:
        ...
        print(mirror.progress()["west"].behind)

A thread for each source runs `bradbury.mirror` until it is closed; one that fails leaves the others
running. Not here: how records get across, and what each argument is for (mirror).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from .mirror import mirror
from .mirror_settings import MirrorFailed, MirrorProgress, check_alias

OWN_ARGUMENTS = frozenset({"alias", "continuous", "on_progress", "source", "stop"})


class Mirror:
    """Begins when it is made; use as a context manager, or `close` it. Methods from any thread."""

    def __init__(
        self,
        topics: str | Sequence[str],
        sources: Mapping[str, str | Sequence[str]],
        **arguments: Any,
    ) -> None:
        """See `bradbury.mirror`, of which each source has a continuous one.

        Args:
            sources: alias -> host:port of brokers of that cluster.
            arguments: of `bradbury.mirror`, the same for all; source_security, too.

        Raises:
            ValueError, TypeError: an argument cannot be. What only a mirror itself can tell is
                raised by `wait`.
        """
        if not sources:
            raise ValueError("sources is empty; give an alias and its servers, at least")
        for alias in sources:
            check_alias(alias)
        if wrong := OWN_ARGUMENTS & arguments.keys():
            raise TypeError(f"{min(wrong)} is not for Mirror to be given; see its sources")
        self._stop = threading.Event()
        self._progress = {alias: MirrorProgress() for alias in sources}
        self._failures: dict[str, BaseException] = {}
        self._threads = {
            alias: threading.Thread(
                target=self._run,
                args=(alias, topics, source, arguments),
                name=f"mirror-{alias}",
                daemon=True,
            )
            for alias, source in sources.items()
        }
        for thread in self._threads.values():
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        for thread in self._threads.values():
            thread.join()
        if error_type is None:
            self._raise_failure()

    def close(self) -> None:
        """End all: what was begun is committed first. Raises as `wait` does."""
        self.__exit__(None)

    def progress(self) -> dict[str, MirrorProgress]:
        """Of each alias, as of its last transaction in this run."""
        return dict(self._progress)

    def failures(self) -> dict[str, BaseException]:
        """What has ended mirrors: alias -> exception. The others go on."""
        return dict(self._failures)

    def wait(self, timeout_s: float | None = None) -> None:
        """Until one fails, all have ended, or the time is up.

        Raises:
            MirrorFailed: one of them has ended; its `__cause__` is why, as `bradbury.mirror`
                would have raised it.
        """
        ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads.values():
            while thread.is_alive() and not self._failures:
                left_s = 0.2 if ends_at is None else ends_at - time.monotonic()
                if left_s <= 0:
                    return
                thread.join(min(left_s, 0.2))
        self._raise_failure()

    def _raise_failure(self) -> None:
        for alias, error in self.failures().items():
            raise MirrorFailed(f"the mirror of {alias} has ended: {error}") from error

    def _run(
        self,
        alias: str,
        topics: str | Sequence[str],
        source: str | Sequence[str],
        arguments: Mapping[str, Any],
    ) -> None:
        def keep(progress: MirrorProgress) -> None:
            self._progress[alias] = progress

        try:
            keep(
                mirror(
                    topics,
                    source,
                    alias=alias,
                    continuous=True,
                    stop=self._stop,
                    on_progress=keep,
                    **arguments,
                )
            )
        except BaseException as error:  # noqa: BLE001 -- told to whoever waits
            self._failures[alias] = error
