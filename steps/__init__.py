"""What the steps of replication/, controller/ and groups/ have in common: docs/design/steps.md."""
