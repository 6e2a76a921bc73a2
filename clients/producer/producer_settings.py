"""Which settings of a producer are allowed, alone and together."""

from __future__ import annotations

from typing import Final, Literal

from ...protocol.errors import InvalidConfig

_ACKS: Final[dict[object, int]] = {"all": -1, -1: -1, "-1": -1, 0: 0, "0": 0, 1: 1, "1": 1}


def check_delivery(
    acks: Literal["all"] | int,
    enable_idempotence: bool | None,
    max_in_flight: int,
    transactional_id: str | None,
) -> tuple[int, bool]:
    """The protocol's `acks`, and whether the producer is idempotent.

    Raises:
        InvalidConfig: they contradict one another.
    """
    if acks not in _ACKS:
        raise InvalidConfig(f'acks={acks!r}: use "all", 1 or 0')
    if enable_idempotence is None:
        enable_idempotence = _ACKS[acks] == -1 and max_in_flight <= 5
    if enable_idempotence and (_ACKS[acks] != -1 or max_in_flight > 5):
        raise InvalidConfig(
            f"enable_idempotence=True with acks={acks!r} and max_in_flight={max_in_flight}: "
            'use acks="all" and max_in_flight up to 5'
        )
    if transactional_id is not None and not (transactional_id and enable_idempotence):
        raise InvalidConfig(
            f"transactional_id={transactional_id!r}: use a name that is not empty, with "
            'acks="all" and enable_idempotence=True, the defaults'
        )
    return _ACKS[acks], enable_idempotence


def check_times(delivery_timeout_ms: int, linger_ms: int, request_timeout_ms: int) -> None:
    """Check that a record has time for one request at least.

    Raises:
        InvalidConfig: delivery_timeout_ms is too short.
    """
    if delivery_timeout_ms < linger_ms + request_timeout_ms:
        raise InvalidConfig(
            f"delivery_timeout_ms={delivery_timeout_ms}: use at least linger_ms + "
            f"request_timeout_ms, {linger_ms + request_timeout_ms}"
        )


def check_positive(**values: int) -> None:
    """Check settings by name.

    Raises:
        InvalidConfig: a value is below 1.
    """
    for name, value in values.items():
        if value < 1:
            raise InvalidConfig(f"{name} must be at least 1, not {value}")
