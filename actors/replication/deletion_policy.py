"""Finds the class that bradbury.log.deletion.policy names; see storage/log/retention.

A user's policy that raises, or returns neither a text nor None, deletes nothing: the segment and
later ones of that log are kept, which is logged. Retention of the node's other logs continues.
"""

from __future__ import annotations

import inspect
import logging
from importlib import import_module

from ...protocol.errors import InvalidConfig
from ...storage.log.retention import RETENTION_POLICY, DeletionPolicy
from ...storage.log_config import LogConfig
from ...storage.segments.log_segment import LogSegment

logger = logging.getLogger(__name__)

SETTING = "bradbury.log.deletion.policy"


def load_deletion_policy(path: str) -> DeletionPolicy:
    """Make an object of the class at `package.module:Class`; Kafka's retention if `path` is empty.

    Raises:
        InvalidConfig: there is no such class, or it cannot be made, or it has no `reason` that
            takes what a DeletionPolicy is given.
    """
    if not path:
        return RETENTION_POLICY
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise InvalidConfig(f"{SETTING} must be package.module:Class, not {path!r}")
    try:
        policy: DeletionPolicy = getattr(import_module(module), name)()
    except Exception as error:  # whatever the user's module raises
        raise InvalidConfig(f"{SETTING}={path} cannot be used: {error!r}") from error
    if not callable(getattr(policy, "reason", None)):
        raise InvalidConfig(f"{SETTING}={path} cannot be used: it has no method `reason`")
    try:
        inspect.signature(policy.reason).bind(None, None, excess_bytes=0, now_ms=0)
    except TypeError as error:
        raise InvalidConfig(
            f"{SETTING}={path} cannot be used: {error}; define "
            "reason(self, segment, config, *, excess_bytes, now_ms)"
        ) from None
    return _OwnPolicy(policy, path)


class _OwnPolicy:
    """A user's policy. Its failures keep segments."""

    def __init__(self, policy: DeletionPolicy, path: str) -> None:
        self._policy = policy
        self._path = path

    def reason(
        self, segment: LogSegment, config: LogConfig, *, excess_bytes: int, now_ms: int
    ) -> str | None:
        """Reason to delete `segment`; None also if the class does not answer with a text."""
        found: object
        try:
            found = self._policy.reason(segment, config, excess_bytes=excess_bytes, now_ms=now_ms)
        except Exception as error:  # noqa: BLE001 -- whatever the user's class raises
            self._keep(segment, f"raised {error!r}")
            return None
        if found is None or (isinstance(found, str) and found):
            return found
        self._keep(segment, f"returned {found!r}, which is neither a text nor None")
        return None

    def _keep(self, segment: LogSegment, what: str) -> None:
        logger.error(
            "%s=%s: reason() of %s %s; nothing of this log is deleted until the class is mended",
            SETTING,
            self._path,
            segment.files.path_prefix,
            what,
        )
