"""Requests whose partitions count against the client's mutation quota (KIP-599).

Such a request takes the partitions that it creates or deletes from a meter, topic by topic, after
all other checks of the topic have passed. Requests of the cluster itself, or of a client without a
quota, are not metered. Which clients have a meter: quotas/mutation_quotas.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeVar

from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import MetadataRecord
from ..quotas.mutation_quotas import UNMETERED, MutationMeter
from .controller_request import ConfigRules, ControllerRequest

A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredRequest(ControllerRequest[A]):
    """Base class of metered requests; see the module."""

    def decide(self, image: MetadataImage, rules: ConfigRules) -> tuple[list[MetadataRecord], A]:
        return self.decide_metered(image, rules, UNMETERED)

    @abstractmethod
    def decide_metered(
        self, image: MetadataImage, rules: ConfigRules, meter: MutationMeter
    ) -> tuple[list[MetadataRecord], A]:
        """Version of `decide` with a meter; parts that the meter refuses are outcomes with an error
        code.
        """
