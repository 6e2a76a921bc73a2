"""GET /metrics on its own port, for Prometheus: one small HTTP answer per connection.

Not a web server: one request, one answer, then the connection is closed; a few at a time, each
within seconds and with a short head. Scrapes that overlap share one answer. The port is
bradbury.metrics.port or, as several nodes may run on one machine, the next free one;
`bradbury status` prints it.
"""

from __future__ import annotations

import asyncio
import errno
import logging

from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder

from .metrics_collector import MeasuredNode, Numbers, families, read_numbers

logger = logging.getLogger(__name__)

OFF = -1
PORTS_TRIED = 100
MAX_HEAD = 8 * 1024
HEAD_SECONDS = 5.0
SEND_SECONDS = 30.0
MAX_AT_ONCE = 8


class MetricsEndpoint:
    """HTTP endpoint of the metrics. `open`, then `close`. Its failure does not stop the node."""

    def __init__(self, node: MeasuredNode) -> None:
        self._node = node
        self._server: asyncio.Server | None = None
        self._at_once = 0
        self._reading: asyncio.Task[Numbers] | None = None
        self.port: int | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen on `port` or the next free one after it; 0: any free port; OFF: do not listen."""
        if port == OFF:
            return
        for tried in range(port, min(port + PORTS_TRIED, 65_536)):
            try:
                self._server = await asyncio.start_server(
                    self._serve, host, tried, limit=MAX_HEAD, backlog=16
                )
            except OSError as error:
                if error.errno == errno.EADDRINUSE and port:
                    continue
                logger.warning("no metrics endpoint on %s:%d: %s", host, tried, error)
                return
            self.port = self._server.sockets[0].getsockname()[1]
            return
        logger.warning(
            "no metrics endpoint: ports %d to %d are in use", port, port + PORTS_TRIED - 1
        )

    def address(self, host: str) -> str | None:
        return None if self.port is None else f"{host}:{self.port}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._at_once += 1
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(SEND_SECONDS):
                writer.write(await self._answer(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # the client closed the connection, was too slow, or sent too long a head
        except Exception:
            logger.exception("a scrape failed")
        finally:
            self._at_once -= 1
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", b"only GET\n")
        if path != "/metrics":
            return _response("404 Not Found", b"the metrics are at /metrics\n")
        if self._at_once > MAX_AT_ONCE:
            return _response("503 Service Unavailable", b"too many scrapes at once\n")
        accept = next((line[7:] for line in lines if line.lower().startswith("accept:")), "")
        encode, content_type = choose_encoder(accept)
        numbers = await self._numbers()
        body = await asyncio.to_thread(lambda: encode(_Families(families(numbers))))
        return _response("200 OK", body if method == "GET" else b"", content_type)

    async def _numbers(self) -> Numbers:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(read_numbers(self._node))
        return await asyncio.shield(self._reading)


class _Families:
    """The registry that prometheus_client's encoders expect."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> list[Family]:
        return self._families


def _response(status: str, body: bytes, content_type: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
