"""Requests that make and remove rules of access."""
