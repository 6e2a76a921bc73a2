"""`bradbury.serve_topic`: a Ray Serve deployment that consumes topics, batch in, batch out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...clients.consumer_group.group_arguments import (
    check_consumer_options,
    check_exactly_once,
    connection_options,
    topics_of,
)
from ...clients.consumer_group.lag_scaling import DOWNSCALE_DELAY_S, UPSCALE_DELAY_S
from ...clients.consumer_group.processing.function import BatchFormat, Function
from ...clients.consumer_group.processing.member_config import MemberConfig
from ...discovery.ray_connection import join_for_clients
from ...protocol.errors import InvalidConfig
from .lag_policy import TopicLagPolicy
from .ray_serve_missing import require_ray_serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from ray.serve import Application

HEALTH_CHECK_PERIOD_S: Final = 2.0
GRACEFUL_SHUTDOWN_TIMEOUT_S: Final = 60.0
POLICY: Final = f"{TopicLagPolicy.__module__}:{TopicLagPolicy.__name__}"


def serve_topic(
    fn: Callable[..., Any],
    topics: str | Iterable[str],
    group: str,
    *,
    output: str | None = None,
    exactly_once: bool = False,
    batch_format: BatchFormat = "arrow",
    batch_records: int = 10_000,
    fn_constructor_args: Iterable[Any] = (),
    fn_constructor_kwargs: Mapping[str, Any] | None = None,
    min_replicas: int = 1,
    max_replicas: int | None = None,
    target_lag: int | None = None,
    target_lag_s: float | None = None,
    upscale_delay_s: float = UPSCALE_DELAY_S,
    downscale_delay_s: float = DOWNSCALE_DELAY_S,
    max_attempts: int = 3,
    retry_exceptions: bool = False,
    revoke_timeout_ms: int = 10_000,
    deployment_options: Mapping[str, Any] | None = None,
    producer_options: Mapping[str, Any] | None = None,
    **consumer_options: Any,
) -> Application:
    """An application for `serve.run`, whose replicas are the members of a consumer group.

        class Scores:
            def __init__(self):
                self.model = load()

            def __call__(self, table):          # batch in
                return self.model(table)        # batch out: what Producer.send_batch takes

        serve.run(bradbury.serve_topic(Scores, "flights", "scorers", output="scores"))

    Args:
        fn: a class, constructed once in each replica, then called with every batch; or a function.
        topics: a name or names.
        group: the consumer group.
        output: topic for what `fn` returns: a table, or a list of values or (key, value) pairs.
            With or without `output`, `fn` may also return {topic: one of these}, or None.
        exactly_once: True: output is written in one transaction with the offsets it came from, and
            only committed records are read. False: output is written, then offsets are committed:
            records that a replica was processing when it died are processed again.
        batch_format: "arrow": fn gets a table; "records": a list of ConsumerRecord.
        batch_records: most records of a batch; fewer if fewer are available.
        fn_constructor_args, fn_constructor_kwargs: arguments of the constructor if `fn` is a class.
        min_replicas, max_replicas: with a maximum, Serve scales by TopicLagPolicy between them;
            without one, there are `min_replicas`.
        target_lag, target_lag_s, upscale_delay_s, downscale_delay_s: as for ConsumerGroup.
        max_attempts: most attempts for a batch. retry_exceptions: whether exceptions that `fn`
            raises are retried.
        revoke_timeout_ms: most milliseconds that a rebalance waits for batches in progress.
        deployment_options: of Serve: name, ray_actor_options, graceful_shutdown_timeout_s, ...
        producer_options: of the Producer that writes the output.
        consumer_options: of the Consumer: bootstrap, auto_offset_reset, session_timeout_ms, ...;
            and security_protocol, ssl_* and sasl_*, for all clients of the replicas. With
            `max_replicas` secrets must be references, see TopicLagPolicy.

    Raises:
        RayServeMissing: the extra [serve] is not installed.
        InvalidConfig: settings that contradict one another, or that Consumer does not have.
    """
    require_ray_serve()
    from ray import serve
    from ray.serve import config as serve_config

    from .topic_replica import PENDING_NAME, TopicReplica

    check_consumer_options(consumer_options, "at_least_once", None)
    if batch_records < 1 or max_attempts < 1:
        raise InvalidConfig(
            f"batch_records={batch_records}, max_attempts={max_attempts}: use at least 1"
        )
    check_exactly_once("at_least_once", producer_options or {})
    if exactly_once:
        consumer_options = {"isolation_level": "read_committed", **consumer_options}
    names = topics_of(topics)
    if not isinstance(names, tuple):
        raise InvalidConfig("serve_topic needs names of topics; patterns are for ConsumerGroup")
    config = MemberConfig(
        topics=names,
        group=group,
        instance_id=PENDING_NAME,
        guarantee="exactly_once" if exactly_once else "at_least_once",
        batch_records=batch_records,
        max_attempts=max_attempts,
        retry_exceptions=retry_exceptions,
        revoke_timeout_ms=revoke_timeout_ms,
        function=Function.of(
            fn, batch_format, (), None, fn_constructor_args, fn_constructor_kwargs
        ),
        deliver=False,
        consumer_options={
            "partition_assignment_strategy": "cooperative-sticky",
            **consumer_options,
        },
        producer_options=dict(producer_options or {}),
    )
    options: dict[str, Any] = {
        "name": getattr(fn, "__name__", type(fn).__name__),
        "health_check_period_s": HEALTH_CHECK_PERIOD_S,
        "graceful_shutdown_timeout_s": GRACEFUL_SHUTDOWN_TIMEOUT_S,
        "graceful_shutdown_wait_loop_s": 0.0,
    }
    if max_replicas is None:
        usual = (None, None, UPSCALE_DELAY_S, DOWNSCALE_DELAY_S)
        if (target_lag, target_lag_s, upscale_delay_s, downscale_delay_s) != usual:
            raise InvalidConfig(
                "target_lag, target_lag_s, upscale_delay_s and downscale_delay_s need max_replicas"
            )
        options["num_replicas"] = min_replicas
    else:
        arguments: dict[str, Any] = {
            "topics": list(names),
            "group": group,
            "target_lag": target_lag,
            "target_lag_s": target_lag_s,
            **{
                name: consumer_options[name]
                for name in ("auto_offset_reset",)
                if name in consumer_options
            },
            **connection_options(consumer_options),
        }
        TopicLagPolicy(**arguments)  # raises here for wrong arguments, not in Serve's log
        policy_type: Any = serve_config.AutoscalingPolicy
        options["autoscaling_config"] = serve_config.AutoscalingConfig(
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            upscale_delay_s=upscale_delay_s,
            downscale_delay_s=downscale_delay_s,
            policy=policy_type(policy_function=POLICY, policy_kwargs=arguments),
        )
    join_for_clients(consumer_options.get("bootstrap"), consumer_options.get("namespace"))
    deployment: Any = serve.deployment(TopicReplica, **{**options, **(deployment_options or {})})
    application: Application = deployment.bind(config, output)
    return application
