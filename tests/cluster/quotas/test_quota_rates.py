"""How fast may a client be, and how long is it told to wait?

The rates are compared with a naive reference, which keeps all that ever came.
"""

import math
from itertools import pairwise

from hypothesis import given, strategies as st

from bradbury.cluster.quotas.client_quota_rates import MOST_RATES, ClientQuotaRates
from bradbury.cluster.quotas.mutation_quotas import MutationQuotas
from bradbury.cluster.quotas.quota_entity import entity_of
from bradbury.cluster.quotas.quota_limits import AddressLimits, QuotaLimits, Sharers
from bradbury.cluster.quotas.quota_rate import QuotaRate, TokenBucket
from bradbury.protocol.errors import ThrottlingQuotaExceeded

KEY = "producer_byte_rate"
uses = st.lists(st.tuples(st.integers(0, 4_000), st.integers(1, 5_000)), min_size=1, max_size=60)


class NaiveRate:
    """Kafka's Rate, from the words of its documentation: all slices there ever were are kept."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self.samples = samples
        self.window_ms = window_ms
        self.slices: list[list[float]] = []

    def record(self, value: float, now_ms: int) -> None:
        if not self.slices or now_ms - self.slices[-1][0] >= self.window_ms:
            self.slices.append([now_ms, now_ms, 0.0])
        self.slices[-1][1] = now_ms
        self.slices[-1][2] += value

    def rate(self, now_ms: int) -> tuple[float, float]:
        counting = [one for one in self.slices if now_ms - one[1] < self.samples * self.window_ms]
        elapsed = now_ms - min((one[0] for one in counting), default=now_ms)
        whole = int(elapsed // self.window_ms)
        covered = max(1, elapsed + max(0, self.samples - 1 - whole) * self.window_ms)
        return sum(one[2] for one in counting) * 1000 / covered, covered


@given(uses=uses, samples=st.integers(2, 11), window_ms=st.sampled_from([100, 1000, 3000]))
def test_a_rate_is_that_of_the_reference(uses, samples: int, window_ms: int) -> None:
    rate, naive = QuotaRate(samples=samples, window_ms=window_ms), NaiveRate(samples, window_ms)
    now_ms = 5_000_000
    limit = 1_000.0
    for pause_ms, size in uses:
        now_ms += pause_ms
        rate.record(size, now_ms)
        naive.record(size, now_ms)
        measured, covered_ms = naive.rate(now_ms)
        expected = 0
        if measured > limit:
            expected = (measured - limit) / limit * covered_ms
        assert abs(rate.throttle_ms(limit, now_ms) - expected) <= 0.51


@given(uses=uses, limit=st.sampled_from([500.0, 1_000.0, 20_000.0]))
def test_no_eleven_seconds_bring_more_than_twelve_are_given(uses, limit: float) -> None:
    """To a client that waits as long as it is told to; a slice may be that of twelve seconds ago.

    Nothing holds in the long run: whoever is told to wait eleven seconds has a burst free again.
    """
    rate = QuotaRate(samples=11, window_ms=1000)
    now_ms = 1_000_000
    sent: list[tuple[int, int]] = []
    for _, size in uses:
        rate.record(size, now_ms)
        sent.append((now_ms, size))
        while wait_ms := rate.throttle_ms(limit, now_ms):
            now_ms += wait_ms
        lately = sum(size for at_ms, size in sent if now_ms - at_ms < 11_000)
        assert lately <= limit * 12 * 1.0001


def test_a_burst_within_ten_windows_is_free() -> None:
    rate = QuotaRate(samples=11, window_ms=1000)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1_000, 0) == 0
    rate.record(5_000, 0)
    assert rate.throttle_ms(1_000, 0) == 5_000


def test_what_is_taken_back_was_not_used() -> None:
    rates = limited({"user": "a"}, 1_000)
    assert rates.record("a", "c", 20_000, 0) == 10_000
    rates.take_back("a", "c", 20_000, 0)
    assert rates.record("a", "c", 10_000, 0) == 0


@given(
    uses=st.lists(st.tuples(st.integers(0, 30_000), st.integers(1, 200)), min_size=1, max_size=40)
)
def test_a_bucket_is_that_of_the_reference(uses) -> None:
    bucket = TokenBucket(samples=11, window_ms=1000, now_ms=0)
    limit, tokens, before = 5.0, 55.0, 0
    now_ms = 0
    for pause_ms, count in uses:
        now_ms += pause_ms
        tokens = min(55.0, tokens + limit * (now_ms - before) / 1000) - count
        before = now_ms
        bucket.take(count, limit, now_ms)
        expected = -tokens / limit * 1000 if tokens < 0 else 0
        assert math.isclose(bucket.throttle_ms(limit, now_ms), expected, abs_tol=0.6)


def quotas_of(*given) -> dict:
    return {entity_of(parts): {KEY: value} for parts, value in given}


def limited(*given) -> ClientQuotaRates:
    pairs = [given] if isinstance(given[0], dict) else given
    return ClientQuotaRates(QuotaLimits(quotas_of(*pairs), KEY), samples=11, window_ms=1000)


ORDER = [
    {"user": "a", "client-id": "c"},
    {"user": "a", "client-id": None},
    {"user": "a"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
]
SHARED_BY = [("a", "c"), ("a", "c"), ("a", ""), ("a", "c"), ("a", "c"), ("a", ""), ("", "c")]
SHARED_BY.append(("", "c"))


def test_the_quota_of_the_most_specific_entity_counts() -> None:
    for first in range(8):
        quotas = quotas_of(*((ORDER[n], float(n + 1)) for n in range(first, 8)))
        found = QuotaLimits(quotas, KEY).of("a", "c")
        assert found == (Sharers(*SHARED_BY[first]), first + 1)


def test_nobody_else_has_it() -> None:
    quotas = quotas_of(({"user": "a", "client-id": "c"}, 1.0), ({"client-id": "c"}, 2.0))
    limits = QuotaLimits(quotas, KEY)
    assert limits.of("b", "c") == (Sharers("", "c"), 2.0)
    assert limits.of("a", "d") == (Sharers("", "d"), None)
    assert limits.of("a", "") == (Sharers("", ""), None)


def test_a_client_without_an_id_has_no_part_in_quotas_of_pairs_as_in_kafka() -> None:
    limits = QuotaLimits(quotas_of(({"user": "a", "client-id": None}, 1.0)), KEY)
    assert limits.of("a", "") == (Sharers("a", ""), None)


def test_clients_of_a_user_share_its_quota_and_pairs_do_not() -> None:
    shared = limited({"user": None}, 1_000)
    assert shared.record("a", "c", 10_000, 0) == 0
    assert shared.record("b", "c", 10_000, 0) == 0, "each user has the default for itself"
    assert shared.record("a", "d", 1_000, 0) == 1_000
    pairs = limited({"user": None, "client-id": None}, 1_000)
    assert pairs.record("a", "c", 10_000, 0) == 0
    assert pairs.record("a", "d", 10_000, 0) == 0


def test_another_quota_counts_for_what_was_used_before() -> None:
    rates = limited({"user": "a"}, 1_000)
    assert rates.record("a", "c", 10_000, 0) == 0
    rates.follow(QuotaLimits(quotas_of(({"user": "a"}, 500.0)), KEY))
    assert rates.record("a", "c", 0, 0) == 10_000
    rates.follow(QuotaLimits({}, KEY))
    assert rates.record("a", "c", 10**9, 0) == 0


def test_at_once_a_client_is_given_what_ten_windows_give() -> None:
    rates = limited({"user": "a"}, 1_000)
    assert rates.most_at_once("a", "c") == 10_000
    assert rates.most_at_once("b", "c") == math.inf


def test_no_more_rates_than_the_bound() -> None:
    rates = limited({"client-id": None}, 1_000)
    for number in range(MOST_RATES + 10):
        rates.record("a", f"c{number}", 1, 0)
    assert len(rates._rates) == MOST_RATES
    rates.record("a", "new", 1, 4_000_000)
    assert len(rates._rates) == 1, "what was not used for an hour is gone"


MUTATIONS = {entity_of({"user": "a"}): {"controller_mutation_rate": 2.0}}


def test_strict_a_change_that_begins_without_debt_is_carried_out_the_next_is_not() -> None:
    quotas = MutationQuotas(samples=11, window_ms=1000)
    claim = quotas.claim(MUTATIONS, "a", "c", 0, is_strict=True)
    assert claim is not None
    claim.take(30)
    assert claim.throttle_ms(0) == 0
    for now_ms, left_ms in ((0, 4_000), (3_000, 1_000)):
        claim = quotas.claim(MUTATIONS, "a", "c", now_ms, is_strict=True)
        assert claim is not None
        try:
            claim.take(1)
        except ThrottlingQuotaExceeded:
            assert claim.throttle_ms(now_ms) == left_ms
            assert claim.throttle_ms(now_ms + 400) == left_ms - 400
        else:
            raise AssertionError("22 tokens, of which 30 were taken, at 2 a second")
    claim = quotas.claim(MUTATIONS, "a", "c", 4_000, is_strict=True)
    assert claim is not None
    claim.take(1)


def test_permissive_nothing_is_refused_and_the_wait_is_told() -> None:
    quotas = MutationQuotas(samples=11, window_ms=1000)
    claim = quotas.claim(MUTATIONS, "a", "c", 0, is_strict=False)
    assert claim is not None
    waits = []
    for _ in range(3):
        claim.take(20)
        waits.append(claim.throttle_ms(0))
    assert waits == [0, 9_000, 19_000]
    assert all(before < after for before, after in pairwise(waits))


def test_who_has_no_quota_is_not_metered() -> None:
    assert MutationQuotas(samples=11, window_ms=1000).claim({}, "a", "c", 0, is_strict=True) is None


def test_an_address_has_its_own_limit_or_the_default_however_it_is_written() -> None:
    key = "connection_creation_rate"
    limits = AddressLimits(
        {
            entity_of({"ip": "10.0.0.7"}): {key: 5.0},
            entity_of({"ip": "2001:DB8:0::1"}): {key: 6.0},
            entity_of({"ip": None}): {key: 9.0},
            entity_of({"user": "10.0.0.8"}): {key: 1.0},
        },
        key,
    )
    found = [limits.of(address, "")[1] for address in ("10.0.0.7", "::ffff:10.0.0.7", "10.0.0.8")]
    assert found == [5.0, 5.0, 9.0]
    assert limits.of("2001:db8::1", "") == (Sharers("2001:db8::1", ""), 6.0)


def test_a_connection_that_is_turned_away_does_not_count() -> None:
    limits = AddressLimits(
        {entity_of({"ip": "10.0.0.7"}): {"connection_creation_rate": 1.0}},
        "connection_creation_rate",
    )
    rates = ClientQuotaRates(limits, samples=2, window_ms=1000, longest_ms=1000)
    assert rates.record("10.0.0.7", "", 1, 0) == 0
    for _ in range(100):
        assert rates.record("10.0.0.7", "", 1, 0) == 1000
        rates.take_back("10.0.0.7", "", 1, 0)
    assert rates.record("10.0.0.7", "", 1, 2_000) == 0
