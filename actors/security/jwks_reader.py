"""The key set of an OAuth issuer, from a file or a URL, read again at intervals in a thread.

If the set cannot be read, the previous one stays in use and the read is retried soon: clients can
authenticate while the issuer is down. A token with an unknown key may be signed with a new one, so
it triggers a read at once, though not more often than every ten seconds.
Source: RefreshingHttpsJwks in apache/kafka.
"""

from __future__ import annotations

import asyncio
import logging
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from ...cluster.security.sasl.json_web_token import KeySet
from ...protocol.errors import InvalidConfig

MOST_BYTES: Final = 1 << 20
TIMEOUT_SECONDS: Final = 10
SOONEST_SECONDS: Final = 10.0
"""Minimum seconds between a read and the next one that an unknown key triggers."""

logger = logging.getLogger(__name__)


class JwksReader:
    """Reader of a key set.

    url: file:, http: or https:; Kafka's sasl.oauthbearer.jwks.endpoint.url.
    read: reads the content of the URL; called in a thread. Raises OSError.
    """

    def __init__(
        self,
        url: str,
        *,
        refresh_ms: int = 3_600_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 10_000,
        read: Callable[[str], bytes] | None = None,
    ) -> None:
        if urlsplit(url).scheme not in ("file", "http", "https"):
            raise InvalidConfig(
                f"sasl.oauthbearer.jwks.endpoint.url={url!r}: use a file:, http: or https: URL"
            )
        self._url = url
        self._refresh_s = refresh_ms / 1000
        self._backoff_s = retry_backoff_ms / 1000
        self._longest_backoff_s = retry_backoff_max_ms / 1000
        self._read = read_url if read is None else read
        self._keys = KeySet()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def keys(self) -> KeySet:
        """The newest key set; empty until one was read."""
        return self._keys

    def expedite(self) -> None:
        """Read the set soon: a token names a key that is not in it."""
        self._wanted.set()

    async def open(self) -> None:
        """Read the set, and keep reading it at intervals.

        Raises:
            InvalidConfig: a file is missing or holds no key set. An http URL that cannot be read is
                only logged: the issuer may start later than the broker.
        """
        try:
            await self._refresh()
        except (OSError, InvalidConfig) as error:
            text = f"sasl.oauthbearer.jwks.endpoint.url={self._url} cannot be used: {error}"
            if self._url.startswith("file:"):
                raise InvalidConfig(text) from None
            logger.warning("%s; retrying", text)
        self._task = asyncio.create_task(self._go_on())

    async def close(self) -> None:
        """Stop reading. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _refresh(self) -> None:
        content = await asyncio.to_thread(self._read, self._url)
        self._keys = KeySet.parse(content)

    async def _go_on(self) -> None:
        backoff_s = self._backoff_s if not self._keys.keys else 0.0
        last = time.monotonic()
        while True:
            if backoff_s:
                await asyncio.sleep(backoff_s)
            else:
                try:
                    await asyncio.wait_for(self._wanted.wait(), self._refresh_s)
                    await asyncio.sleep(max(0.0, last + SOONEST_SECONDS - time.monotonic()))
                except TimeoutError:
                    pass
            self._wanted.clear()
            last = time.monotonic()
            try:
                await self._refresh()
                backoff_s = 0.0
            except (OSError, InvalidConfig) as error:
                logger.warning("key set %s cannot be read, retrying: %s", self._url, error)
                backoff_s = min(max(backoff_s * 2, self._backoff_s), self._longest_backoff_s)


def read_url(url: str) -> bytes:
    """Read at most a mebibyte. Raises OSError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    else:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 -- checked
            content = response.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError("the content is larger than a mebibyte")
    return bytes(content)
