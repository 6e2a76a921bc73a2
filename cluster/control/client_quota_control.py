"""Requests that set and remove client quotas.

The quotas of one entity are changed together or not at all; other entities of the request do not
depend on it. An entity that is named twice, or has a key twice, is refused with Kafka's error text;
the changes of an earlier valid entry of it are made all the same, as in Kafka.
Source: apache/kafka metadata/.../controller/ClientQuotaControlManager.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...protocol.errors import InvalidRequest, KafkaError
from ..metadata.client_quotas import client_quota_record
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import MetadataRecord
from ..quotas.quota_entity import QuotaEntity, check_entity, check_quota, show_entity
from .controller_request import DONE, ConfigRules, ControllerRequest, RequestOutcome


class QuotaChange(NamedTuple):
    """A quota to set; value None removes it."""

    key: str
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotas(ControllerRequest[dict[QuotaEntity, RequestOutcome]]):
    """Changes client quotas; answered with an outcome for each entity."""

    entries: tuple[tuple[QuotaEntity, tuple[QuotaChange, ...]], ...]

    def decide(
        self, image: MetadataImage, rules: ConfigRules
    ) -> tuple[list[MetadataRecord], dict[QuotaEntity, RequestOutcome]]:
        records: list[MetadataRecord] = []
        outcomes: dict[QuotaEntity, RequestOutcome] = {}
        for entity, changes in self.entries:
            keys = [change.key for change in changes]
            try:
                if entity in outcomes or len(set(keys)) < len(keys):
                    raise InvalidRequest(f"Ignoring duplicate entity {show_entity(entity)}")
                records += _alter(image, entity, changes)
            except KafkaError as error:
                outcomes[entity] = RequestOutcome.of(error)
            else:
                outcomes[entity] = DONE
        return records, outcomes


def _alter(
    image: MetadataImage, entity: QuotaEntity, changes: tuple[QuotaChange, ...]
) -> list[MetadataRecord]:
    check_entity(entity)
    present = image.client_quotas.get(entity, {})
    records: list[MetadataRecord] = []
    for key, value in changes:
        if value is not None:
            check_quota(entity, key, value)
        if present.get(key) != value:
            records.append(client_quota_record(entity, key, value))
    return records
