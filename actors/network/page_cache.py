"""Check whether a slice of a file is in the page cache, and read it in. Linux's RWF_NOWAIT (4.14).

sendfile of pages that are not in memory waits for the disk, and with it every connection of the
event loop. So a slice is probed first, without waiting, and a cold one is read once in a thread.
"""

from __future__ import annotations

import os

from ...protocol.buffer import Buffer
from ...protocol.records.fetch_response import FileSlice

# The kernel reads ahead in runs of about this size, so a run is in memory as a whole or not at all.
PROBE_STEP = 128 * 1024
READ_SIZE = 1024**2


def is_resident(chunk: FileSlice) -> bool:
    """Whether all probes of the slice are in memory; True where RWF_NOWAIT is not supported.

    Cost: about 1 us per PROBE_STEP.
    """
    assert chunk.file is not None
    descriptor = chunk.file.fileno()
    buffer = [bytearray(1)]
    end = chunk.position + chunk.size
    try:
        for position in (*range(chunk.position, end, PROBE_STEP), end - 1):
            os.preadv(descriptor, buffer, position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def read_resident(chunk: FileSlice) -> Buffer | None:
    """Bytes of the slice; None if they are not in memory, or the file has become shorter.

    One system call, where probing and reading are two. Without RWF_NOWAIT it waits for the disk.
    """
    assert chunk.file is not None
    descriptor = chunk.file.fileno()
    data = bytearray(chunk.size)
    try:
        count = os.preadv(descriptor, (data,), chunk.position, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    except OSError:
        count = os.preadv(descriptor, (data,), chunk.position)
    return data if count == chunk.size else None


def read_into_page_cache(chunk: FileSlice) -> None:
    """Read the slice into the page cache. Blocking: call in a thread."""
    assert chunk.file is not None
    buffer = bytearray(min(READ_SIZE, chunk.size))
    end = chunk.position + chunk.size
    for position in range(chunk.position, end, READ_SIZE):
        os.preadv(chunk.file.fileno(), [buffer], position)
