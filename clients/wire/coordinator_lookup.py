"""Lookup of the coordinator of a group or transactional id, with retries until there is one."""

from __future__ import annotations

from typing import Final

from ...protocol.error_code import ErrorCode
from ...protocol.errors import error_for
from ...protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ..threads.io_thread import Steps
from .cluster_client import ClusterClient
from .connection import Address

COORDINATOR_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which the coordinator is looked up again."""


GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1


class CoordinatorLookup:
    """Used on the I/O thread. `address` is None while the coordinator is not known."""

    def __init__(self, client: ClusterClient, key: str, *, key_type: int = GROUP_KEY) -> None:
        self.address: Address | None = None
        self._client = client
        self._key = key
        self._key_type = key_type

    def find(self) -> Steps[Address]:
        """Return the coordinator's address; retry until there is one.

        Raises:
            KafkaError: a broker refuses permanently.
            ConnectionFailed: no broker answers.
        """
        while self.address is None:
            request = FindCoordinatorRequest(
                key=self._key, key_type=self._key_type, coordinator_keys=[self._key]
            )
            response = yield from self._client.send_to_any(request, FindCoordinatorResponse)
            found = response.coordinators[0] if response.coordinators else response
            if not found.error_code:
                self.address = Address(found.host, found.port)
                break
            error = error_for(found.error_code, found.error_message)
            if not error.retriable:
                raise error
            yield self._client.config.retry_backoff_ms / 1000
        return self.address

    def forget(self) -> None:
        """Forget the address, as the coordinator has moved or does not answer."""
        self.address = None
