"""Kerberos (GSSAPI), Kafka's one SASL mechanism that is not supported: refused with a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import InvalidConfig

GSSAPI: Final = "GSSAPI"
NO_GSSAPI: Final = (
    "GSSAPI (Kerberos) is not there; SCRAM-SHA-512, SCRAM-SHA-256, PLAIN and OAUTHBEARER are, and "
    "certificates with SSL"
)


def refuse_gssapi(values: Mapping[str, Any]) -> None:
    """Raise InvalidConfig if a setting is about GSSAPI. Names: Kafka's, or with underscores."""
    for given, value in values.items():
        name = given.replace("_", ".").lower()
        words = {each.strip().upper() for each in str(value).split(",")}
        of_mechanisms = "sasl.enabled.mechanisms" in name or "sasl.mechanism" in name
        if "sasl.kerberos." in name or ".gssapi." in name or (of_mechanisms and GSSAPI in words):
            raise InvalidConfig(f"{given}: {NO_GSSAPI}")
