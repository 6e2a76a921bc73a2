"""Drivers of replication/: the partitions of a node, their logs, fetchers, upkeep, moves."""
