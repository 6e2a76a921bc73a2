"""The metrics of one node: names and values, and GET /metrics.

metrics_collector   every metric: its name, type, labels, and where its value is from
metrics_endpoint    the port that Prometheus reads them at
"""
