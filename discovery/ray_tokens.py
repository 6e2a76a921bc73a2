"""Ray's token authentication: which mode a Ray cluster has, and this process's.

`ray.init` turns token authentication on only for the address None or "auto", and then whether the
cluster requires a token or not. Both fail here: a driver without a token is refused by a cluster
that requires one, and a driver in token mode at a cluster without tokens refuses the answers of its
own workers (OwnerDiedError, seen with Ray 2.60). So the cluster is asked first which mode it has.
RAY_AUTH_MODE, where the user has set it, is kept.

Only this module depends on how Ray decides about tokens; for that it uses private modules of Ray.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from .ray_errors import UpError

AUTH_MODE = "RAY_AUTH_MODE"
QUESTION_SECONDS = 10.0

# A made-up id of a Ray cluster: Ray checks the token first, and then rejects the id as
# another cluster's. Ray's client logs neither.
NO_CLUSTER = "ab" * 28

# Run in a process that sends no token.
TOKEN_REQUIRED = 3
"""Exit code of ASK_WITHOUT_TOKEN if the GCS requires a token. Any other one, as after a failed
import, does not show that it does.
"""
ASK_WITHOUT_TOKEN = f"""
import sys
from ray._raylet import GcsClient
try:
    client = GcsClient(address=sys.argv[1], cluster_id={NO_CLUSTER!r})
    client.internal_kv_keys(b"", namespace=b"bradbury", timeout={QUESTION_SECONDS})
except Exception as error:
    sys.exit({TOKEN_REQUIRED} if "InvalidAuthToken" in str(error) else 0)
"""
ASK_SECONDS = 60.0

_own_mode: list[str] = []
"""Authentication mode that this module has set, as distinct from the user's; or empty."""


def match_authentication(address: str) -> None:
    """Use the cluster's authentication mode. Raises UpError for a missing or wrong token."""
    users_mode = os.environ.get(AUTH_MODE)
    if users_mode is not None and users_mode not in _own_mode:
        wants_token = _requires_token(address)
        if wants_token and users_mode.lower() == "disabled":
            raise UpError(
                f"the Ray cluster at {address!r} requires a token, and RAY_AUTH_MODE={users_mode} "
                "sends none; unset it"
            )
    else:
        _set_mode("disabled")
        wants_token = _requires_token(address)
        if wants_token:
            _set_mode("token")
    if not wants_token:
        return
    loader = _raylet().AuthenticationTokenLoader.instance()
    loader.reset_cache()
    if not loader.has_token(ignore_auth_mode=True):
        raise UpError(
            f"the Ray cluster at {address!r} requires a token, and there is none here; put what "
            "`ray get-auth-token` prints where it was started into ~/.ray/auth_token or "
            "RAY_AUTH_TOKEN"
        )
    if _requires_token(address):
        raise UpError(
            f"the Ray cluster at {address!r} requires another token than that in RAY_AUTH_TOKEN, "
            "RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token; `ray get-auth-token` prints it where it "
            "was started"
        )


def protect_token() -> None:
    """Let only this user read Ray's token, with which one can run code on every node.

    Ray makes the file readable for all users of the machine.
    """
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    with contextlib.suppress(OSError):  # none, or another user's
        path.chmod(0o600)


def authentication_mode() -> str:
    """Authentication mode of this process, which is connected, as a value of RAY_AUTH_MODE.

    Another process that is to join the same cluster gets it from the environment only; a driver
    whose mode was found by Ray or `connect_ray` may have no such variable of the user's.
    """
    raylet = _raylet()
    is_token = raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN
    return "token" if is_token else "disabled"


def asks_for_token() -> bool:
    """Whether the connected Ray cluster requires a token.

    A driver with RAY_AUTH_MODE=token is also accepted by a cluster that checks no tokens, so a
    separate process connects without one, which takes a second.
    """
    if authentication_mode() == "disabled":
        return False
    import ray

    done = subprocess.run(
        [sys.executable, "-c", ASK_WITHOUT_TOKEN, ray.get_runtime_context().gcs_address],
        env={**os.environ, AUTH_MODE: "disabled"},
        capture_output=True,
        timeout=ASK_SECONDS,
        check=False,
    )
    return done.returncode == TOKEN_REQUIRED


def _requires_token(address: str) -> bool:
    """Whether the cluster refuses this process because of a missing or wrong token."""
    return "InvalidAuthToken" in refusal(address, NO_CLUSTER)


def refusal(address: str, cluster_id: str) -> str:
    """Why the GCS refuses a question that is for the Ray cluster `cluster_id`; "" if it answers."""
    try:
        client = _raylet().GcsClient(address=address, cluster_id=cluster_id)
        client.internal_kv_keys(b"", namespace=b"bradbury", timeout=QUESTION_SECONDS)
    except Exception as error:  # noqa: BLE001 -- Ray's own kinds differ by release; the text says it
        return str(error)
    return ""


@contextlib.contextmanager
def mode_kept() -> Iterator[None]:
    """The authentication mode that this block sets is not for processes that are started later."""
    before, own = os.environ.get(AUTH_MODE), list(_own_mode)
    try:
        yield
    finally:
        if os.environ.get(AUTH_MODE) != before:
            if before is None:
                del os.environ[AUTH_MODE]
            else:
                os.environ[AUTH_MODE] = before
            _raylet().Config.initialize("")
        _own_mode[:] = own


def _raylet() -> Any:
    return import_module("ray._raylet")  # compiled, without types


def _set_mode(mode: str) -> None:
    """Set the mode for this process and its children, as Ray itself does for new local clusters."""
    os.environ[AUTH_MODE] = mode
    _own_mode[:] = [mode]
    _raylet().Config.initialize("")


def forget_own_mode() -> None:
    """Unset the mode of a cluster that was joined before: it does not apply to a new one."""
    if os.environ.get(AUTH_MODE) in _own_mode:
        del os.environ[AUTH_MODE]


def note_mode_of_ray(users_mode: str | None) -> None:
    """Note the mode that `ray.init` has set for its own cluster; users_mode: the one before."""
    if users_mode is None and AUTH_MODE in os.environ:
        _own_mode[:] = [os.environ[AUTH_MODE]]
