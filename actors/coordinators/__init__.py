"""Drivers of coordinators: their shards, and what they ask of other nodes."""
