"""Answer of Fetch, before it is encoded."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.fetch_session_epoch import NO_SESSION
from ...protocol.records.fetch_response import Endpoint, FetchedTopic


@dataclass(slots=True)
class FetchAnswer:
    """Arguments of fetch_response.write_fetch_response."""

    topics: list[FetchedTopic]
    endpoints: list[Endpoint]
    error_code: int = 0
    session_id: int = NO_SESSION
    is_for_follower: bool = False
    throttle_time_ms: int = 0
