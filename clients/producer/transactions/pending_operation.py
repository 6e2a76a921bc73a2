"""The call of a transactional producer whose result the application has not received yet.

Source: TransactionManager.PendingStateTransition in apache/kafka clients/.../producer/internals.
"""

from __future__ import annotations

from ....protocol.errors import InvalidTxnState
from .transaction_request import TransactionOperation


class PendingOperation:
    """Pending call, at most one. After a time-out the same call resumes it; others are refused."""

    def __init__(self) -> None:
        self._operation: TransactionOperation | None = None

    def begin(self, name: str) -> TransactionOperation:
        self._operation = TransactionOperation(name)
        return self._operation

    def end(self, error: Exception | None) -> None:
        """End the pending call, if there is one. error: None: it has succeeded."""
        if self._operation is not None:
            self._operation.end(error)

    def same(self, name: str) -> TransactionOperation | None:
        """The pending call, if it is the call of this name; None if no call is pending.

        Raises:
            InvalidTxnState: another call is pending.
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
