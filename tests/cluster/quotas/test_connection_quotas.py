"""Which connection is refused, which waits, and which one is closed for another?

CLIENT is a listener of clients, INTERNAL the one that nodes use among each other.
"""

from dataclasses import dataclass

from hypothesis import given, strategies as st

from bradbury.cluster.quotas.connection_quotas import ConnectionLimits, ConnectionQuotas

CLIENT, OTHER, INTERNAL = "CLIENT", "OTHER", "INTERNAL"
HERE = "10.0.0.1"
UNLIMITED = 2**31 - 1


@dataclass(frozen=True)
class Connection:
    listener: str
    last_activity: float
    address: str = HERE

    @property
    def session(self) -> "Connection":
        return self


def limits(
    of_node: int = UNLIMITED,
    of_listener: int = UNLIMITED,
    rate_of_node: int = UNLIMITED,
    rate_of_listener: int = UNLIMITED,
) -> ConnectionLimits:
    return ConnectionLimits(
        of_node=of_node,
        of_listener=of_listener,
        rate_of_node=rate_of_node,
        rate_of_listener=rate_of_listener,
    )


def quotas_of(*listeners: str) -> ConnectionQuotas:
    quotas = ConnectionQuotas(INTERNAL)
    for listener in listeners:
        quotas.add_listener(listener, 0.0)
    return quotas


def fill(quotas: ConnectionQuotas, listener: str, count: int, address: str = HERE) -> None:
    for _ in range(count):
        quotas.add(listener, address)


# --- numbers ---------------------------------------------------------------------------------------


def test_the_limit_of_a_listener_leaves_the_others_alone() -> None:
    quotas = quotas_of(CLIENT, OTHER, INTERNAL)
    fill(quotas, CLIENT, 2)
    own = limits(of_node=10, of_listener=2)
    assert quotas.refusal(CLIENT, HERE, own, UNLIMITED) == "listener.name.client.max.connections"
    assert quotas.refusal(OTHER, HERE, own, UNLIMITED) is None
    quotas.remove(CLIENT, HERE)
    assert quotas.refusal(CLIENT, HERE, own, UNLIMITED) is None


def test_the_limit_of_the_node_is_of_all_listeners_but_that_between_nodes() -> None:
    quotas = quotas_of(CLIENT, OTHER, INTERNAL)
    fill(quotas, CLIENT, 2)
    fill(quotas, INTERNAL, 1)
    full = limits(of_node=3)
    assert quotas.refusal(CLIENT, HERE, full, UNLIMITED) == "max.connections"
    assert quotas.refusal(OTHER, HERE, full, UNLIMITED) == "max.connections"
    assert quotas.refusal(INTERNAL, HERE, full, UNLIMITED) is None


def test_the_listener_between_nodes_has_its_own_limit() -> None:
    quotas = quotas_of(CLIENT, INTERNAL)
    fill(quotas, INTERNAL, 3)
    own = limits(of_node=3, of_listener=3)
    refused = quotas.refusal(INTERNAL, HERE, own, UNLIMITED)
    assert refused == "listener.name.internal.max.connections"


def test_an_only_listener_is_not_protected() -> None:
    quotas = quotas_of(INTERNAL)
    fill(quotas, INTERNAL, 3)
    assert not quotas.is_protected(INTERNAL)
    assert quotas.refusal(INTERNAL, HERE, limits(of_node=3), UNLIMITED) == "max.connections"


def test_an_address_is_limited_on_all_listeners_together() -> None:
    quotas = quotas_of(CLIENT, INTERNAL)
    fill(quotas, CLIENT, 1)
    fill(quotas, INTERNAL, 1)
    assert quotas.refusal(INTERNAL, HERE, limits(), 2) == "max.connections.per.ip"
    assert quotas.refusal(INTERNAL, "10.0.0.2", limits(), 2) is None


# --- what is closed --------------------------------------------------------------------------------


def test_the_least_recently_used_of_another_listener_is_closed() -> None:
    quotas = quotas_of(CLIENT, INTERNAL)
    open_ones = [Connection(INTERNAL, 1.0), Connection(CLIENT, 3.0), Connection(CLIENT, 2.0)]
    for each in open_ones:
        quotas.add(each.listener, each.address)
    assert quotas.excess(open_ones, 3) == []
    assert quotas.excess(open_ones, 2) == [open_ones[2]]
    assert quotas.excess(open_ones, 1) == [open_ones[2], open_ones[1]]
    assert quotas.excess(open_ones, 0) == [open_ones[2], open_ones[1]], "never one between nodes"


def test_a_lower_limit_closes_the_least_recently_used_of_an_only_listener() -> None:
    quotas = quotas_of(INTERNAL)
    open_ones = [Connection(INTERNAL, 2.0), Connection(INTERNAL, 1.0)]
    fill(quotas, INTERNAL, 2)
    assert quotas.excess(open_ones, 1) == [open_ones[1]]


@given(
    comers=st.lists(st.tuples(st.sampled_from([CLIENT, OTHER, INTERNAL]), st.booleans())),
    of_node=st.integers(1, 6),
    of_client=st.integers(1, 6),
    of_internal=st.integers(1, 8),
)
def test_whoever_comes_the_limits_hold(comers, of_node, of_client, of_internal) -> None:
    quotas = quotas_of(CLIENT, OTHER, INTERNAL)
    own = {CLIENT: of_client, OTHER: of_node, INTERNAL: of_internal}
    open_ones: list[Connection] = []
    for number, (listener, leaves) in enumerate(comers):
        if leaves and open_ones:
            gone = open_ones.pop(number % len(open_ones))
            quotas.remove(gone.listener, gone.address)
        refused = quotas.refusal(
            listener, HERE, limits(of_node=of_node, of_listener=own[listener]), UNLIMITED
        )
        counts = {each: sum(one.listener == each for one in open_ones) for each in own}
        if refused is None:
            assert counts[listener] < own[listener]
            assert listener == INTERNAL or len(open_ones) < of_node
            open_ones.append(Connection(listener, float(number)))
            quotas.add(listener, HERE)
        elif listener == INTERNAL:
            assert counts[INTERNAL] == of_internal
        closed = quotas.excess(open_ones, of_node)
        for each in closed:
            open_ones.remove(each)
            quotas.remove(each.listener, each.address)
        assert len(closed) <= 1
        assert all(each.listener != INTERNAL for each in closed)
        between = sum(each.listener == INTERNAL for each in open_ones)
        assert len(open_ones) <= max(of_node, between)


# --- rates -----------------------------------------------------------------------------------------


def served(quotas: ConnectionQuotas, listener: str, each: ConnectionLimits, now: float) -> int:
    """How many connections are accepted at once, of any number that wait."""
    count = 0
    while not quotas.seconds_to_wait(listener, each, now) and count < 1000:
        quotas.take(listener)
        count += 1
    return count


def test_the_rate_of_a_listener_leaves_the_others_alone() -> None:
    quotas = quotas_of(CLIENT, OTHER, INTERNAL)
    slow = limits(rate_of_listener=2)
    assert served(quotas, CLIENT, slow, 1.0) == 2
    assert quotas.seconds_to_wait(CLIENT, slow, 1.0) == 0.5
    assert served(quotas, OTHER, limits(), 1.0) == 1000
    assert served(quotas, CLIENT, slow, 1.5) == 1


def test_the_rate_of_the_node_is_of_all_listeners_but_that_between_nodes() -> None:
    quotas = quotas_of(CLIENT, OTHER, INTERNAL)
    node = limits(rate_of_node=3)
    assert served(quotas, INTERNAL, node, 1.0) == 1000, "and they are not counted"
    assert served(quotas, CLIENT, node, 1.0) == 3
    assert served(quotas, OTHER, node, 1.0) == 0
    assert served(quotas, INTERNAL, limits(rate_of_node=3, rate_of_listener=5), 2.0) == 5


def test_an_only_listener_is_under_the_rate_of_the_node() -> None:
    quotas = quotas_of(INTERNAL)
    assert served(quotas, INTERNAL, limits(rate_of_node=3), 1.0) == 3


def test_the_longer_of_two_waits_counts() -> None:
    quotas = quotas_of(CLIENT, INTERNAL)
    assert quotas.seconds_to_wait(CLIENT, limits(rate_of_node=4, rate_of_listener=2), 0.0) == 0.5
    assert quotas.seconds_to_wait(CLIENT, limits(rate_of_node=2, rate_of_listener=4), 0.0) == 0.5
