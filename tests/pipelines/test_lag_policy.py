"""How many replicas does the policy ask for, and what if nothing can be known?"""

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import bradbury
from bradbury import LocalCluster
from bradbury.clients.consumer_group.lag_scaling import Backlog, wanted_members
from bradbury.discovery import extras
from bradbury.protocol.errors import InvalidConfig


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with bradbury.local() as cluster:
        with cluster.admin() as admin:
            admin.create_topic("flights", 4)
        with bradbury.Producer(cluster.bootstrap_servers) as producer:
            for partition in range(3):
                for _ in range(100):
                    producer.send("flights", b"x", partition=partition)
        yield cluster


def context(current: int = 1, target: int = 1, low: int = 1, high: int = 8) -> Any:
    """As much of Serve's AutoscalingContext as is looked at."""
    return SimpleNamespace(
        current_num_replicas=current,
        target_num_replicas=target,
        capacity_adjusted_min_replicas=low,
        capacity_adjusted_max_replicas=high,
    )


def asked_until(policy: Callable[[Any], Any], given: Any, wanted: int) -> None:
    """As Serve asks: again and again, until it is so."""
    while (answer := policy(given)) != (wanted, {}):
        assert answer[1] == {}
        time.sleep(0.01)


def test_replicas_for_the_lag_within_the_bounds_and_the_partitions_that_lag(
    cluster: LocalCluster,
) -> None:
    policy = bradbury.TopicLagPolicy(
        "flights",
        "nobody-yet",
        target_lag=10,
        auto_offset_reset="earliest",
        bootstrap=cluster.bootstrap_servers,
    )
    assert policy(context(target=7)) == (7, {})  # nothing is known in the first moment
    asked_until(policy, context(), 3)  # 30, but three partitions lag
    assert policy(context(high=2)) == (2, {})
    assert policy(context(low=5)) == (5, {})
    with cluster.admin() as admin:
        admin.alter_group_offsets("nobody-yet", {("flights", n): 95 for n in range(3)})
        asked_until(policy, context(current=3, target=3), 2)  # 15 records
        admin.alter_group_offsets("nobody-yet", {("flights", n): 100 for n in range(3)})
        asked_until(policy, context(current=3, target=3), 1)
        asked_until(policy, context(current=1, target=1, low=0), 0)


def test_brokers_that_do_not_answer_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    policy = bradbury.TopicLagPolicy("flights", "g", target_lag=10, bootstrap="127.0.0.1:1")
    while "cannot read its lag" not in caplog.text:
        assert policy(context(target=4)) == (4, {})
        time.sleep(0.01)
    assert policy(context(target=4)) == (4, {})


def test_by_age_the_number_at_most_doubles_and_begins_at_one() -> None:
    old = [Backlog(5, 600.0)] * 8
    assert wanted_members(0, old, target_lag=None, target_lag_s=10) == 2
    assert wanted_members(2, old, target_lag=None, target_lag_s=10) == 4
    assert wanted_members(7, old, target_lag=None, target_lag_s=10) == 8
    assert wanted_members(4, [Backlog(5, 1.0)] * 8, target_lag=None, target_lag_s=10) == 1
    assert wanted_members(4, [Backlog(0, None)] * 8, target_lag=1, target_lag_s=None) == 0
    assert wanted_members(0, [Backlog(1, None)], target_lag=100, target_lag_s=None) == 1


def test_serve_takes_it_by_its_path() -> None:
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

    config = AutoscalingConfig(
        max_replicas=2,
        policy=AutoscalingPolicy(
            policy_function="bradbury.pipelines.serving.lag_policy:TopicLagPolicy",
            policy_kwargs={"topics": "flights", "group": "g", "target_lag": 10},
        ),
    )
    made = config.policy.get_policy()(**config.policy.policy_kwargs)
    assert made(context(target=3)) == (3, {})


def test_what_cannot_be_is_refused_before_anything_starts() -> None:
    def nothing(table: object) -> None: ...

    for wrong, said in (
        ({}, "target_lag"),
        ({"target_lag": 0}, "more than 0"),
        ({"target_lag_s": -1.0}, "more than 0"),
    ):
        with pytest.raises(InvalidConfig, match=said):
            bradbury.TopicLagPolicy("flights", "g", **wrong)
        with pytest.raises(InvalidConfig, match=said):
            bradbury.serve_topic(nothing, "flights", "g", max_replicas=2, **wrong)
    with pytest.raises(InvalidConfig, match="need max_replicas"):
        bradbury.serve_topic(nothing, "flights", "g", target_lag=5)
    with pytest.raises(InvalidConfig, match="colour: not a setting"):
        bradbury.serve_topic(nothing, "flights", "g", colour="red")
    with pytest.raises(InvalidConfig, match="transactional_id"):
        bradbury.serve_topic(nothing, "flights", "g", producer_options={"transactional_id": "x"})


def test_without_ray_serve_it_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.MODULES, "serve", ("no_such_module",))
    with pytest.raises(
        ImportError, match=r"^Ray Serve needs no_such_module; .*\[serve\]"
    ) as raised:
        bradbury.serve_topic(len, "flights", "g")
    assert "\n" not in str(raised.value)
