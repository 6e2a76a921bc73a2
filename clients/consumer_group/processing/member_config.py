"""Configuration of a member, which Ray passes again whenever it restarts the actor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .batch import Order
from .function import Function

Guarantee = Literal["at_least_once", "at_most_once"]
MemberGuarantee = Guarantee | Literal["exactly_once"]

LANES_PER_WORKER = 4
"""Lanes per worker: several, so that added workers get a share and busy keys are spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """Configuration of a member; see the arguments of ConsumerGroup.

    function: None if tables are polled through the handle. deliver: results are returned, and a
    batch is done when its result was handled; otherwise it is done when processed.
    workers: number of this member's workers; 0: it processes by itself.
    consumer_options, producer_options: never logged, as they may have passwords.
    """

    topics: tuple[str, ...] | re.Pattern[str]
    group: str
    instance_id: str
    guarantee: MemberGuarantee = "at_least_once"
    order: Order = None
    lanes: int = LANES_PER_WORKER
    batch_records: int = 10_000
    max_in_flight: int = 2
    max_attempts: int = 3
    retry_exceptions: bool = False
    revoke_timeout_ms: int = 10_000
    function: Function | None = None
    deliver: bool = True
    workers: int = 0
    worker_options: Mapping[str, Any] = field(default_factory=dict)
    consumer_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    producer_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def commits_first(self) -> bool:
        return self.guarantee == "at_most_once"

    @property
    def exactly_once(self) -> bool:
        return self.guarantee == "exactly_once"
