"""`bradbury.Mirror`: mirrors topics of several clusters in the background of a program.

    with bradbury.Mirror("flights", {"west": "kafka-1:9092", "east": "kafka-9:9092"}) as mirror:
        ...
        print(mirror.progress()["west"].behind)

A thread for each source runs `bradbury.mirror` until it is closed; if one fails, the others keep
running. Not here: copying, and the meaning of each argument (mirror).
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
    """Mirrors that run in threads from construction on.

    Use as a context manager, or call `close`. Methods may be called from any thread.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        sources: Mapping[str, str | Sequence[str]],
        **arguments: Any,
    ) -> None:
        """Start one continuous `bradbury.mirror` for each source.

        Args:
            sources: alias -> host:port of brokers of that cluster.
            arguments: arguments of `bradbury.mirror`, the same for all; source_security, too.

        Raises:
            ValueError, TypeError: an argument is invalid. Errors found while mirroring are
                raised by `wait`.
        """
        if not sources:
            raise ValueError("sources is empty; give at least one alias and its servers")
        for alias in sources:
            check_alias(alias)
        if wrong := OWN_ARGUMENTS & arguments.keys():
            raise TypeError(f"{min(wrong)} cannot be given to Mirror, which sets it itself")
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
        """Stop all mirrors after their current transactions. Raises as `wait` does."""
        self.__exit__(None)

    def progress(self) -> dict[str, MirrorProgress]:
        """Progress by alias, as of the last transaction in this run."""
        return dict(self._progress)

    def failures(self) -> dict[str, BaseException]:
        """Exceptions that ended mirrors, by alias. The other mirrors keep running."""
        return dict(self._failures)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until a mirror fails, all have ended, or `timeout_s` has passed (None: no limit).

        Raises:
            MirrorFailed: a mirror failed; `__cause__` is the exception that `bradbury.mirror`
                raised.
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
            raise MirrorFailed(f"the mirror of {alias} failed: {error}") from error

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
        except BaseException as error:  # noqa: BLE001 -- raised by `wait`
            self._failures[alias] = error
