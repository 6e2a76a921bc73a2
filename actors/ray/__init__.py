"""Ray: actors around nodes and controllers, their placement, drains, Ray's own metrics."""
