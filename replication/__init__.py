"""Replication of one node's partitions, as step objects: docs/design/steps.md."""
