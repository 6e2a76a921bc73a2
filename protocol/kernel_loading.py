"""Decides when a process loads numba and the kernels, the loops that it compiles.

Loading them takes one to two seconds (0.6-1.4 s numba, 0.4 s the kernels from the cache on disk,
3.2 s to compile them) and 60 MB; the plain loops take 3-8 us a record, or 0.5-1 us where numpy
handles many at once. So a process that handles few records never loads them: a tool that sends ten
lines, a task that reads a small topic, a node whose compacted logs are small.

Clients do not wait for the loading: after BACKGROUND_RECORDS a thread loads the kernels
(clients/wire/kernels), and all clients use the plain loops until then. In a process without such a
thread a caller loads them, after PLAIN_RECORDS.

Not here: the loading itself (columns/columns_loops, storage/cleaner/cleaner_loops).
"""

from __future__ import annotations

PLAIN_RECORDS = 200_000
"""Records that a process handles in plain loops before a caller loads the kernels: about the cost
of loading.
"""
BACKGROUND_RECORDS = 100_000
"""Records of all clients of a process before a thread loads the kernels: 0.3-0.5 s in plain loops.
During loading the other threads often wait for the GIL.
"""
RECORDS_AT_ONCE = 1_000_000
"""Records of one decoding task, if known before, from which loading pays for that task alone."""
ARRAYS_PAY = 64
"""Records of a call from which columns_arrays_decode is faster than Python's loop."""
OF_ARRAYS_FOR_ONE = 6
"""Number of records in such a call that take as long as one in Python's loop."""

_plain_records = 0  # racing threads may lose increments; it is an estimate
_client_records = 0
_loading_elsewhere = False


def columns_work(record_count: int) -> int:
    """Number of records in Python's loop that take as long as these encoded or decoded at once."""
    if record_count < ARRAYS_PAY:
        return record_count
    return -(-record_count // OF_ARRAYS_FOR_ONE)


def is_worth_waiting(record_count: int) -> bool:
    """Whether a caller should load the kernels before it handles so many more records."""
    global _plain_records
    _plain_records += record_count
    return _plain_records > PLAIN_RECORDS and not _loading_elsewhere


def is_worth_a_thread(record_count: int) -> bool:
    """Whether the kernels should be loaded in the background, after clients handled so many more
    records.
    """
    global _client_records
    _client_records += record_count
    return _client_records >= BACKGROUND_RECORDS


def is_worth_it_alone(record_count: int) -> bool:
    """Whether a task that decodes so many records should begin with loading the kernels."""
    return record_count >= RECORDS_AT_ONCE


def load_elsewhere(*, loading: bool) -> None:
    """Set whether another thread is loading the kernels, so that callers do not load them."""
    global _loading_elsewhere
    _loading_elsewhere = loading
