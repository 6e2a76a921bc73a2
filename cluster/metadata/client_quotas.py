"""Client quotas as a part of the image: by entity, then by key. See quotas/quota_entity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ..quotas.quota_entity import QuotaEntity
from .metadata_records import ClientQuotaRecord

ClientQuotas = Mapping[QuotaEntity, Mapping[str, float]]


def client_quota_records(quotas: ClientQuotas) -> Iterator[ClientQuotaRecord]:
    """Records that build these quotas from nothing."""
    for entity, values in quotas.items():
        for key, value in values.items():
            yield client_quota_record(entity, key, value)


def client_quota_record(entity: QuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    flat = tuple(word for part in entity for word in part)
    return ClientQuotaRecord(entity=flat, key=key, value=value)


def apply_client_quota(
    quotas: dict[QuotaEntity, Mapping[str, float]], record: ClientQuotaRecord
) -> None:
    words = record.entity
    entity = tuple((kind or "", name) for kind, name in zip(words[::2], words[1::2], strict=True))
    values = dict(quotas.get(entity, {}))
    if record.value is None:
        values.pop(record.key, None)
    else:
        values[record.key] = record.value
    if values:
        quotas[entity] = MappingProxyType(values)
    else:
        quotas.pop(entity, None)
