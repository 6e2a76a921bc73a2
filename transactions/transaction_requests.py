"""Requests of producers to the transaction coordinator of one partition.

Each brings a ticket, and is answered by a Reply or Refuse with that ticket.
"""

from __future__ import annotations

from .transaction_coordinators import TransactionContext
from .transaction_markers import MarkersWritten
from .transaction_metadata import Partitions


class TransactionRequests:
    """Requests, allowed only while the context is ACTIVE; on_markers_written at any time."""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context

    def init_producer_id(
        self,
        ticket: object,
        transactional_id: str,
        timeout_ms: int,
        *,
        expected: tuple[int, int] | None,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        self._context.write(
            ticket,
            lambda coordinator, request_id: coordinator.on_init_producer_id(
                request_id, transactional_id, timeout_ms, expected=expected, now_ms=wall_ms
            ),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    def add_partitions(
        self,
        ticket: object,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Partitions,
        *,
        client_version: int,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        self._context.write(
            ticket,
            lambda coordinator, request_id: coordinator.on_add_partitions(
                request_id,
                transactional_id,
                producer_id,
                producer_epoch,
                partitions,
                client_version=client_version,
                now_ms=wall_ms,
            ),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    def end(
        self,
        ticket: object,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        client_version: int,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        self._context.write(
            ticket,
            lambda coordinator, request_id: coordinator.on_end(
                request_id,
                transactional_id,
                producer_id,
                producer_epoch,
                is_commit=is_commit,
                client_version=client_version,
                now_ms=wall_ms,
            ),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )

    def on_markers_written(self, written: MarkersWritten, *, now_ms: int, wall_ms: int) -> None:
        """Called when all markers are written. Ignored while loading, as a loaded coordinator sends
        the markers again, and for an older coordinator epoch: since then another node may have been
        the coordinator, and the id may have begun another transaction.
        """
        key, markers = written
        if key.coordinator_epoch != self._context.leader_epoch:
            return
        self._context.run_if_active(
            lambda coordinator: coordinator.on_markers_written(markers, now_ms=wall_ms),
            now_ms=now_ms,
            wall_ms=wall_ms,
        )
