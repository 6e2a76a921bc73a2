"""Planted faults of what operators are told, and of what a coordinator finds again; see planted_faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bradbury.groups.classic import group_view
from bradbury.groups.coordinator import coordinator
from bradbury.groups.offsets.lag_query import LagQuery
from bradbury.protocol.messages.describe_groups import DescribedGroup
from bradbury.transactions import transaction_records
from bradbury.transactions.transaction_metadata import TransactionMetadata

from ..fault_registry import Patch, fault
from .planted_in_groups import GROUPS
from .planted_in_transactions import TRANSACTIONS


@fault(**GROUPS)
def members_are_described_with_anothers_partitions(patch: Patch) -> None:
    """DescribeGroups says of each member what the first one owns."""
    original = group_view.described

    def described(group: Any) -> DescribedGroup:
        found = original(group)
        for member in found.members:
            member.member_assignment = found.members[0].member_assignment
        return found

    patch(coordinator, "described", described)


@fault(**GROUPS)
def groups_without_members_are_not_listed(patch: Patch) -> None:
    """Nobody finds the offsets that they still have."""
    original = coordinator.list_groups

    def list_groups(groups: Any) -> Any:
        return original({name: each for name, each in groups.items() if len(each.metadata.members)})

    patch(coordinator, "list_groups", list_groups)


@fault(readers=2)
def a_lag_is_as_old_as_the_oldest_record_there_is(patch: Patch) -> None:
    """Instead of the first one that is unread."""

    def first_unread(look: Any, key: Any, offset: int) -> Any:
        return key, look._starts.get(key, 0)

    patch(LagQuery, "_first_unread", first_unread)


@fault(**TRANSACTIONS)
def a_transaction_begins_anew_with_its_coordinator(patch: Patch) -> None:
    """When it began is not taken from its record: it is not aborted in time."""
    original = transaction_records._metadata

    def metadata(value: Any) -> TransactionMetadata:
        return replace(original(value), start_ms=value.transaction_last_update_timestamp_ms)

    patch(transaction_records, "_metadata", metadata)


@fault(**TRANSACTIONS)
def the_former_producer_id_is_not_found_again(patch: Patch) -> None:
    """A client that repeats its request at the next coordinator is fenced."""
    original = transaction_records._metadata

    def metadata(value: Any) -> TransactionMetadata:
        return replace(original(value), previous_producer_id=-1)

    patch(transaction_records, "_metadata", metadata)
