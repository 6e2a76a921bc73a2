"""Errors of starting, finding and joining a cluster."""

from __future__ import annotations


class UpError(Exception):
    """The cluster could not be started or reached. One line: the cause and the remedy."""


class RayUnreachable(UpError):
    """No Ray cluster answers at the address; its processes may still run there."""


class AnotherRay(UpError):
    """Another Ray cluster answers at the address than the one that was meant."""
