"""Quotas of partition creations and deletions by a client (controller_mutation_rate, KIP-599).

They are counted in the controller, which carries the changes out, so the quota is one for the
cluster. A strict client, whose request version has THROTTLING_QUOTA_EXCEEDED, is refused once its
bucket is in debt; a change that begins without debt is carried out, however large. Requests of
older versions are never refused; both get the throttle time in the response.

Soft state: another controller begins with full buckets, as in Kafka.
Source: ControllerMutationQuotaManager in apache/kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ...protocol.errors import ThrottlingQuotaExceeded
from .client_quota_rates import EXPIRES_MS, MOST_RATES
from .quota_entity import CONTROLLER_MUTATION_RATE, QuotaEntity
from .quota_limits import QuotaLimits, Sharers
from .quota_rate import TokenBucket

EXCEEDED = "The throttling quota has been exceeded."
"""Error text, as in Kafka."""


class MutationMeter(Protocol):
    """Meter that counts the partitions of a topic change."""

    def take(self, permits: int) -> None:
        """Count `permits` created or deleted partitions. Raises ThrottlingQuotaExceeded: over the
        quota.
        """
        ...


class Unmetered:
    """The meter of a client without a quota, and of the cluster itself."""

    def take(self, permits: int) -> None:
        """Accept any number of permits."""


UNMETERED = Unmetered()


class MutationClaim:
    """Meter of one request."""

    def __init__(self, bucket: TokenBucket, limit: float, now_ms: int, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._limit = limit
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._throttle_ms = 0

    def take(self, permits: int) -> None:
        """Count `permits`; see MutationMeter."""
        if self._is_strict:
            if self._bucket.is_in_debt(self._limit, self._now_ms):
                self._throttle_ms = self._bucket.throttle_ms(self._limit, self._now_ms)
                raise ThrottlingQuotaExceeded(EXCEEDED)
            self._bucket.take(permits, self._limit, self._now_ms)
        else:
            self._bucket.take(permits, self._limit, self._now_ms)
            self._throttle_ms = self._bucket.throttle_ms(self._limit, self._now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """Throttle time of the client in ms from now on."""
        return max(0, self._throttle_ms - (now_ms - self._now_ms))


class MutationQuotas:
    """Mutation quotas of all clients. `samples`, `window_ms`: controller.quota.window.num and
    .size.seconds.
    """

    def __init__(self, *, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._buckets: dict[Sharers, TokenBucket] = {}
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._limits = QuotaLimits({}, CONTROLLER_MUTATION_RATE)

    def claim(
        self,
        quotas: Mapping[QuotaEntity, Mapping[str, float]],
        user: str,
        client_id: str,
        now_ms: int,
        *,
        is_strict: bool,
    ) -> MutationClaim | None:
        """Meter for one request; None: the client has no limit. `quotas`: all that are set now."""
        if quotas is not self._quotas:
            self._quotas = quotas
            self._limits = QuotaLimits(quotas, CONTROLLER_MUTATION_RATE)
        sharers, limit = self._limits.of(user, client_id)
        if limit is None:
            return None
        bucket = self._buckets.get(sharers)
        if bucket is None:
            self._expire(now_ms)
            bucket = TokenBucket(samples=self._samples, window_ms=self._window_ms, now_ms=now_ms)
            self._buckets[sharers] = bucket
        return MutationClaim(bucket, limit, now_ms, is_strict=is_strict)

    def _expire(self, now_ms: int) -> None:
        if len(self._buckets) < MOST_RATES:
            return
        for sharers, bucket in list(self._buckets.items()):
            if now_ms - bucket.used_at_ms >= EXPIRES_MS:
                del self._buckets[sharers]
        while len(self._buckets) >= MOST_RATES:
            del self._buckets[next(iter(self._buckets))]
