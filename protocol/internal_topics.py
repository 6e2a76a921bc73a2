"""Internal topics, which hold the state of coordinators. Source: Topic.java in apache/kafka."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
