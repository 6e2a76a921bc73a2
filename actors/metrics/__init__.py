"""The metrics of one node: names and values, and GET /metrics."""
