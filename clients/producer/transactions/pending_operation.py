"""The call of a transactional producer that the application has not seen to its end yet.

Source: TransactionManager.PendingStateTransition in apache/kafka clients/.../producer/internals.
"""

from __future__ import annotations

from ....protocol.errors import InvalidTxnState
from .transaction_request import TransactionOperation


class PendingOperation:
    """At most one: after a time-out the same call waits on, and any other has to wait for it."""

    def __init__(self) -> None:
        self._operation: TransactionOperation | None = None

    def begin(self, name: str) -> TransactionOperation:
        self._operation = TransactionOperation(name)
        return self._operation

    def end(self, error: Exception | None) -> None:
        """End it, if there is one, with the error."""
        if self._operation is not None:
            self._operation.end(error)

    def same(self, name: str) -> TransactionOperation | None:
        """The same call, not seen to its end yet.

        Raises:
            InvalidTxnState: it is another one.
        """
        pending = self._operation
        if pending is None or pending.is_acknowledged:
            self._operation = None
            return None
        if pending.name == name:
            return pending
        raise InvalidTxnState(
            f"{name}: {pending.name}() has not ended yet, or has timed out; call it again first"
        )
