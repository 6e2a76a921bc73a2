"""Sender of a process's frames to the actor of a queue: callers do not wait for room in the socket.

Invariants:
    Frames are sent in the order in which they were given.
    `send` does not wait, as its caller may hold the lock that the reader needs: an actor that waits
    for this process to read does not read itself.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque
from typing import Final

CHECK_MS: Final = 1_000
"""Milliseconds after which a thread that waits for room checks whether the socket was closed."""


class FrameSender:
    """Frame sender of one socket, used from any thread. Data that the socket does not accept at
    once waits in memory; a thread sends it and then ends. Errors are not raised: the reader sees
    them, too.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()
        self._waiting: deque[memoryview] = deque()
        self._is_ending = False

    def send(self, data: bytes) -> None:
        """Send one frame, or several."""
        with self._lock:
            if self._waiting:
                self._waiting.append(memoryview(data))
                return
            rest = self._send_now(memoryview(data))
            if rest:
                self._waiting.append(rest)
                with contextlib.suppress(RuntimeError):  # no thread starts when the process ends
                    self._start()

    def _start(self) -> None:
        threading.Thread(target=self._run, name="bradbury-queue-send", daemon=True).start()

    def end(self) -> None:
        """Shut down the sending direction once all frames are sent: the actor reads its end."""
        with self._lock:
            self._is_ending = True
            if not self._waiting:
                self._shut_down()

    def _send_now(self, data: memoryview) -> memoryview:
        """Send as much as fits; return the rest, which is empty if the connection is lost."""
        try:
            while data:
                data = data[self._socket.send(data, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            return data
        except OSError:
            return data[:0]
        return data

    def _run(self) -> None:
        poll = select.poll()
        with contextlib.suppress(OSError, ValueError):  # it is closed already
            poll.register(self._socket, select.POLLOUT)
        while True:
            poll.poll(CHECK_MS)
            with self._lock:
                while self._waiting:
                    rest = self._send_now(self._waiting[0])
                    if rest:
                        self._waiting[0] = rest
                        break
                    self._waiting.popleft()
                else:
                    if self._is_ending:
                        self._shut_down()
                    return

    def _shut_down(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
