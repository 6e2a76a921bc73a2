"""Drivers of groups/: a coordinator for each led partition of __consumer_offsets."""
