"""Autoscaling policy for Ray Serve: number of replicas by the lag of a consumer group.

    AutoscalingConfig(
        min_replicas=1, max_replicas=8,
        policy=AutoscalingPolicy(
            policy_function="bradbury.pipelines.serving.lag_policy:TopicLagPolicy",
            policy_kwargs={"topics": "flights", "group": "scorers", "target_lag": 1000},
        ),
    )

Serve's controller calls it ten times a second, on its event loop: the policy answers from the lag
that its thread read last, once a second. Delays, factors and bounds are Serve's own
(upscale_delay_s, ...), as with every policy.

Invariants:
    It never waits. While the lag is unknown (in the first second, or if brokers do not answer) the
    number of replicas does not change.
    The thread ends after IDLE_S seconds without a call: Serve drops policies without notice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from ...clients.admin.admin import Admin
from ...clients.consumer_group.backlogs import read_backlogs
from ...clients.consumer_group.group_arguments import partitions_of, topics_of
from ...clients.consumer_group.lag_scaling import Backlog, wanted_members
from ...clients.security.security_options import (
    SecurityOptions,
    given_security,
    secrets_in_clear,
)
from ...protocol.errors import ConnectionFailed, InvalidConfig, KafkaError

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
IDLE_S: Final = 30.0
STALE_S: Final = 30.0
"""Age in seconds from which on the lag read last is ignored."""


class TopicLagPolicy:
    """Autoscaling policy by lag, given to Serve by its path, with its arguments as `policy_kwargs`.

    Args:
        topics: a name or names.
        group: the consumer group of the replicas.
        target_lag: unread records for each replica. target_lag_s: most seconds since the oldest
            unread record. Give one or both: then the greater number of replicas is used.
        auto_offset_reset: of the group's consumers: where they start in a partition without a
            committed offset, and so what is unread there.
        bootstrap, namespace: of the brokers, if they are not in this Ray cluster.
        security: security_protocol, ssl_* and sasl_*; see SecurityOptions. Serve stores and shows
            arguments of policies in clear text, so secrets must be references.

    Raises:
        InvalidConfig: no target, or one that is not above 0; a secret in clear text.
        TypeError: an unknown argument.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        group: str,
        target_lag: int | None = None,
        target_lag_s: float | None = None,
        auto_offset_reset: str = "latest",
        bootstrap: str | None = None,
        namespace: str | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        given_security(security)
        for secret in secrets_in_clear(security):
            raise InvalidConfig(
                f"{secret}: Ray Serve shows the arguments of policies; use a reference, "
                '"${file:PATH:KEY}" or "${env:NAME}", or name a file with BRADBURY_CLIENT_CONFIG '
                "in the environment of Serve's controller"
            )
        if target_lag is None and target_lag_s is None:
            raise InvalidConfig(
                "scaling by lag needs target_lag (records for each replica) or target_lag_s "
                "(seconds)"
            )
        for name, value in (("target_lag", target_lag), ("target_lag_s", target_lag_s)):
            if value is not None and value <= 0:
                raise InvalidConfig(f"{name}={value}: use more than 0")
        self._topics = topics_of(topics)
        self._group = group
        self._target_lag = target_lag
        self._target_lag_s = target_lag_s
        self._starts_at_end = auto_offset_reset != "earliest"
        self._bootstrap = bootstrap
        self._namespace = namespace
        self._security = security
        self._seen: tuple[float, list[Backlog]] | None = None
        self._asked_at = 0.0
        self._thread: threading.Thread | None = None

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """Called by Serve: returns the number of replicas, and the state to keep (none)."""
        now = self._asked_at = time.monotonic()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="bradbury-lag", daemon=True)
            self._thread.start()
        seen = self._seen
        if seen is None or now - seen[0] > STALE_S:
            return context.target_num_replicas, {}
        wanted = wanted_members(
            context.current_num_replicas,
            seen[1],
            target_lag=self._target_lag,
            target_lag_s=self._target_lag_s,
        )
        lowest = context.capacity_adjusted_min_replicas
        return max(lowest, min(wanted, context.capacity_adjusted_max_replicas)), {}

    def _run(self) -> None:
        admin: Admin | None = None
        said = ""
        while time.monotonic() - self._asked_at < IDLE_S:
            try:
                admin = admin or Admin(self._bootstrap, namespace=self._namespace, **self._security)
                found = read_backlogs(
                    admin,
                    self._group,
                    partitions_of(self._topics, admin),
                    with_times=self._target_lag_s is not None,
                    starts_at_end=self._starts_at_end,
                )
                self._seen = (time.monotonic(), found)
                said = ""
            except (KafkaError, ConnectionFailed) as error:
                if said != type(error).__name__:  # once, and not every second
                    logger.warning("group %s: cannot read its lag: %s", self._group, error)
                said = type(error).__name__
            except Exception:
                logger.exception("group %s: cannot read its lag", self._group)
            time.sleep(LOOK_S)
        if admin is not None:
            admin.close()
