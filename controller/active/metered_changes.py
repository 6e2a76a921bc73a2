"""Changes requested by clients, decided with or without a mutation quota.

Not here: how much a client may change (cluster/quotas/mutation_quotas), and how the records are
written (quorum_controller).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...cluster.broker_config import BrokerConfig
from ...cluster.control.controller_request import ConfigRules
from ...cluster.metadata.metadata_image import MetadataImage
from ...cluster.metadata.metadata_records import MetadataRecord
from ...cluster.quotas.mutation_quotas import MutationQuotas
from ..controller_calls import Change, MeteredAnswer, MeteredChange
from ..controller_effects import Instant

Finish = Callable[[Instant], Any]
"""Makes the answer when it is sent: the time since the decision counts as waited."""


class MeteredChanges:
    """Recent changes of each client. Soft state of the active controller."""

    def __init__(self, config: BrokerConfig) -> None:
        self._quotas = MutationQuotas(
            samples=config.controller_quota_window_num,
            window_ms=config.controller_quota_window_size_seconds * 1000,
        )

    def decide(
        self,
        call: Change[Any] | MeteredChange[Any],
        image: MetadataImage,
        rules: ConfigRules,
        now: Instant,
    ) -> tuple[Sequence[MetadataRecord], Finish]:
        """Decide a change: (records, function that makes the answer). Raises what the request
        raises.
        """
        if isinstance(call, Change):
            records, answer = call.request.decide(image, rules)
            return records, lambda _: answer
        claim = self._quotas.claim(
            image.client_quotas,
            call.user,
            call.client_id,
            now.now_ms,
            is_strict=call.is_strict,
        )
        if claim is None:
            records, answer = call.request.decide(image, rules)
            return records, lambda _: MeteredAnswer(answer, 0)
        records, answer = call.request.decide_metered(image, rules, claim)
        return records, lambda later: MeteredAnswer(answer, claim.throttle_ms(later.now_ms))
