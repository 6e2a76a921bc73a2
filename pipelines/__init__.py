"""Spark (RayDP) on top of the clients."""
