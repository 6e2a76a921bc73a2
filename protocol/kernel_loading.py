"""Loading of numba and the loops that it compiles: the one place that decides when.

Loading them takes one to two seconds (0.6-1.4 s numba, 0.4 s the kernels from the cache on disk,
3.2 s to compile them) and 60 MB, the plain loops 3-8 us a record, and 0.5-1 us where numpy takes
many at once. So a process that handles few records never pays for it: a tool that sends ten lines,
a task that reads a small topic, a node whose compacted logs are small. One that handles many pays
once.

Clients do not wait for it: after BACKGROUND_RECORDS a thread of theirs loads them
(clients/wire/kernels), and all continue plainly meanwhile. Who has no such thread waits, after
PLAIN_RECORDS.

Not here: the loading itself (columns/columns_loops, storage/cleaner/cleaner_loops).
"""

from __future__ import annotations

PLAIN_RECORDS = 200_000
"""Records that a process handles plainly before a caller waits for loading: about the cost of
loading.
"""
BACKGROUND_RECORDS = 100_000
"""Records of all clients of a process before a thread loads: 0.3-0.5 s of plain work. Loading takes
Python's lock from the threads that work meanwhile.
"""
RECORDS_AT_ONCE = 1_000_000
"""Records of one decoding task, known before it begins, for which loading pays alone."""
ARRAYS_PAY = 64
"""Records of a call from which columns_arrays_decode is faster than Python's loop."""
OF_ARRAYS_FOR_ONE = 6
"""Records in such arrays that take as long as one in Python's loop."""

_plain_records = 0  # threads may lose a count; it only decides when loading pays
_client_records = 0
_loading_elsewhere = False


def columns_work(record_count: int) -> int:
    """Number of records in Python's loop that take as long as these encoded or decoded at once."""
    if record_count < ARRAYS_PAY:
        return record_count
    return -(-record_count // OF_ARRAYS_FOR_ONE)


def is_worth_waiting(record_count: int) -> bool:
    """Whether a caller that handles so many more records should load the kernels before."""
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
    """Note whether another thread loads them now, so that no caller need wait for it here."""
    global _loading_elsewhere
    _loading_elsewhere = loading
