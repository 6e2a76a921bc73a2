"""Finds the class that bradbury.log.deletion.policy names; see storage/log/retention."""

from __future__ import annotations

from importlib import import_module

from ...protocol.errors import InvalidConfig
from ...storage.log.retention import RETENTION_POLICY, DeletionPolicy

SETTING = "bradbury.log.deletion.policy"


def load_deletion_policy(path: str) -> DeletionPolicy:
    """Make an object of the class at `package.module:Class`; Kafka's retention if `path` is empty.

    Raises:
        InvalidConfig: there is no such class, or it cannot be made, or it has no `reason`.
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
    return policy
