"""Log positions and times, as users write them on a command line.

earliest, latest, max-timestamp, earliest-local    Kafka's special timestamps (ListOffsets)
2026-03-01, 2026-03-01T12:30, ...T12:30:00.5Z      ISO 8601; without a zone, UTC
1772366400000                                      milliseconds since 1970
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from .failure import UsageError

SPECIAL_TIMESTAMPS = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
}
"""Special timestamps of ListOffsets, by their name in kafka-get-offsets."""


def parse_time(text: str, option: str) -> int:
    """Parse a time to milliseconds since 1970, or to a special timestamp of ListOffsets.

    Raises:
        UsageError: `text` is not a time.
    """
    if text in SPECIAL_TIMESTAMPS:
        return SPECIAL_TIMESTAMPS[text]
    if text.isdecimal():
        return int(text)
    try:
        return parse_iso(text)
    except ValueError:
        raise not_a_time(text, option, SPECIAL_TIMESTAMPS) from None


def not_a_time(text: str, option: str, names: Iterable[str] = ()) -> UsageError:
    """Error for a value that is no time. names: special timestamps that the option takes."""
    also = "".join(f"{name}, " for name in names)
    return UsageError(
        f"{option} {text!r} is not a time; use {also}milliseconds since 1970, "
        "or ISO 8601 as in 2026-03-01T12:30:00Z"
    )


def parse_iso(text: str) -> int:
    """Parse an ISO 8601 time, UTC if it has no zone, to ms since 1970. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def show_time(timestamp: int) -> str:
    """Format milliseconds since 1970 as ISO 8601, or as a number if no date can represent them."""
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return "-" if timestamp < 0 else moment.isoformat(timespec="milliseconds")
