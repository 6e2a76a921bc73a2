"""Counters of one node's requests: plain integers, converted to metrics at a scrape.

A request is counted in three steps: dispatch sets its API, the connection the times at which it was
received, handled, ready and sent, and dispatch counts the error codes of its response. Together
about 1 us per request (benchmarks in docs/metrics.md), so there are no look-ups by text and no
locks, and times are added to the histograms for some hundred requests at once, or before these are
read (`settle`).

Cardinality is bounded by the APIs of the table, error codes, and topics that exist. Clocks are read
by the caller. Not here: the names of the metrics (actors/metrics/metrics_collector.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, Final

from ...protocol.messages.produce import ProduceResponse
from ...protocol.schema import Message, Struct, Wire
from .fetch_answer import FetchAnswer


class Histogram:
    """Durations by powers of two: `buckets[i]` counts those of less than 2**i microseconds."""

    __slots__ = ("buckets", "total_us")

    def __init__(self) -> None:
        self.buckets = [0] * 64
        self.total_us = 0

    def observe_all(self, durations_us: list[int]) -> None:
        """Count durations in microseconds, none negative."""
        buckets = self.buckets
        for bits, count in Counter(map(int.bit_length, durations_us)).items():
            buckets[bits] += count
        self.total_us += sum(durations_us)

    def observe(self, seconds: float) -> None:
        """Count a duration, which is not negative. Cost: about 0.15 us."""
        microseconds = int(seconds * 1e6)
        self.buckets[microseconds.bit_length()] += 1
        self.total_us += microseconds

    @property
    def count(self) -> int:
        return sum(self.buckets)


UNSETTLED: Final = 256
"""Requests whose times are put into histograms together: a fourth of the cost of one by one."""


class ApiMetrics:
    """Counters of one API's requests. Error code 0 is not counted.

    Call `settle` before reading the histograms.
    """

    __slots__ = (
        "errors",
        "handling",
        "name",
        "request_bytes",
        "requests",
        "response_bytes",
        "sending",
        "total",
        "unsettled",
        "waiting",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.errors: dict[int, int] = {}
        self.total = Histogram()
        self.handling = Histogram()
        self.waiting = Histogram()
        self.sending = Histogram()
        self.unsettled: list[tuple[float, float, float, float]] = []
        """Times at which requests were received, handled, ready and sent."""

    def settle(self) -> None:
        """Put the times of all requests that were counted into the histograms."""
        times, self.unsettled = self.unsettled, []
        self.total.observe_all([int((sent - came) * 1e6) for came, _, _, sent in times])
        self.handling.observe_all([int((done - came) * 1e6) for came, done, _, _ in times])
        self.waiting.observe_all(
            [int((ready - done) * 1e6) for _, done, ready, _ in times if ready != done]
        )
        self.sending.observe_all([int((sent - ready) * 1e6) for _, _, ready, sent in times])

    def count_error(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


class BusyTime:
    """Busy time of a request that waits in between: `seconds`, and more `since` the last step."""

    __slots__ = ("seconds", "since")

    def __init__(self, seconds: float, since: float) -> None:
        self.seconds = seconds
        self.since = since


class RequestTrace:
    """Trace of a request. Times are seconds of the connection's monotonic clock."""

    __slots__ = (
        "api",
        "handled_at",
        "held_bytes",
        "is_begun",
        "keeps_frame",
        "on_begun",
        "ready_at",
        "received_at",
        "request_bytes",
        "response_bytes",
        "throttle_ms",
        "work",
    )

    def __init__(self, received_at: float = 0.0, request_bytes: int = 0) -> None:
        self.api: ApiMetrics | None = None
        self.is_begun = True
        """Whether its handler was called, so that the connection's next request may be handled."""
        self.keeps_frame = False
        """Before dispatch: the frame's buffer is not reused. After: the request refers to it."""
        self.held_bytes = 0
        """Approximate memory that the request takes until it is answered, in bytes."""
        self.on_begun: Callable[[], None] | None = None
        self.request_bytes = request_bytes
        self.response_bytes = 0
        self.received_at = received_at
        self.handled_at = received_at
        self.ready_at = received_at
        self.throttle_ms = 0
        """Milliseconds for which the connection is muted, once this request is answered."""
        self.work: BusyTime | None = None
        """Busy time of a request that waits, if a quota of request time applies to its client."""

    def busy_seconds(self, now: float) -> float:
        """Seconds that the request has used on the event loop and in the node's thread."""
        if self.work is not None:
            return self.work.seconds + now - self.work.since
        is_waiting = self.handled_at != self.received_at
        return (self.handled_at if is_waiting else now) - self.received_at

    def begin(self) -> None:
        self.is_begun = True
        if self.on_begun is not None:
            self.on_begun()

    def finish(self, sent_at: float) -> None:
        """Count the request, when the last byte of its response was sent."""
        api = self.api
        if api is None:
            return
        api.requests += 1
        api.request_bytes += self.request_bytes
        api.response_bytes += self.response_bytes
        api.unsettled.append((self.received_at, self.handled_at, self.ready_at, sent_at))
        if len(api.unsettled) >= UNSETTLED:
            api.settle()


class RequestMetrics:
    """Counters of all requests of a node."""

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}
        self.bytes_out: dict[str, int] = {}
        """Bytes of records sent to consumers, by topic."""

    def api(self, key: int, name: str) -> ApiMetrics:
        found = self.apis.get(key)
        if found is None:
            found = self.apis[key] = ApiMetrics(name)
        return found

    def count_fetched(self, api: ApiMetrics, answer: FetchAnswer) -> None:
        if answer.error_code:
            api.count_error(answer.error_code)
        if answer.is_for_follower:
            return
        bytes_out = self.bytes_out
        for topic in answer.topics:
            size = 0
            for partition in topic.partitions:
                if partition.error_code:
                    api.count_error(partition.error_code)
                size += partition.records_size
            if size:
                bytes_out[topic.name] = bytes_out.get(topic.name, 0) + size

    def count_produced(self, api: ApiMetrics, response: ProduceResponse) -> None:
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    api.count_error(partition.error_code)

    def count_errors(self, api: ApiMetrics, response: Message) -> None:
        """Count every error_code anywhere in the response; about 0.1 us per element with one."""
        cls: Any = type(response)
        counter = _error_counter(cls)
        if counter is not None:
            counter(response, api.count_error)


@cache
def _error_counter(
    cls: type[Struct],
) -> Callable[[Any, Callable[[int], None]], None] | None:
    """Make counter(value, count) from the fields of `cls`; None if it has no error codes."""
    inner = []
    has_code = False
    for field in fields(cls):
        wire: Wire = field.metadata["wire"]
        if field.name == "error_code":
            has_code = True
        elif wire.struct is not None:
            below = _error_counter(wire.struct)
            if below is not None:
                inner.append((field.name, wire.array, below))
    if not has_code and not inner:
        return None

    def counter(value: Any, count: Callable[[int], None]) -> None:
        if has_code and value.error_code:
            count(value.error_code)
        for name, is_array, below in inner:
            child = getattr(value, name)
            if not child:
                continue
            if is_array:
                for element in child:
                    below(element, count)
            else:
                below(child, count)

    return counter
