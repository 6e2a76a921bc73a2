"""Joining a Ray cluster from this process, or starting an embedded one.

The Ray of a state file must also be the one that was meant: another may have taken its address
since, which is seen by its id, and nothing of it is touched.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from .byte_code import byte_code_kept
from .ray_errors import AnotherRay, RayUnreachable, UpError
from .ray_tokens import (
    AUTH_MODE,
    forget_own_mode,
    match_authentication,
    mode_kept,
    note_mode_of_ray,
    protect_token,
    refusal,
)
from .state_file import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_NAMESPACE,
    NAMESPACE_VARIABLE,
    SEPARATOR,
    ClusterState,
    default_namespace,
    read_state,
    running_namespaces,
)

LOCAL = "local"
"""Address that means: start an embedded Ray."""
AUTO = "auto"
"""Address that means: the Ray of RAY_ADDRESS, or the one that runs on this machine."""
REACH_SECONDS = 5.0
PROBE_SECONDS = 10.0
INSIDE_RAY = ("RAY_ADDRESS", "RAY_JOB_ID")
"""Variables set by a user who means a Ray cluster, by Ray for its jobs, or in its workers."""

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""Start of a client's HTTP/2 connection: the magic, and an empty SETTINGS frame."""
FRAME_HEADER = 9
SETTINGS_FRAME = 4

# Ray runs its workers at nice 15, which starves a broker on a node with busy tasks; and it ends
# every node 60 s after the loss of the head node, which must not stop the brokers of a log.
EMBEDDED_ENVIRONMENT = {
    "RAY_worker_niceness": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",
}
NO_RAY_HERE = (
    "no Ray cluster runs on this machine; start one with `ray start --head`, or omit the address"
)
RAY_TOO_SLOW = "Ray did not start within 30 s, twice: this machine is busy; try again"
RAY_TRIES = 2
"""Number of tries to start an embedded Ray. The second one finds files in the page cache."""
RAY_CLIENT = "ray://"
NO_RAY_CLIENT = (
    "Ray Client (ray://) cannot start or manage a cluster: its driver is on another machine; run "
    "the program as a job (`ray job submit`), or on a node, with the address host:6379 or 'auto'. "
    "Producers and consumers work through it where they reach the brokers"
)


class _Silent(RayUnreachable):
    """What listens there says nothing, as a process that stands still."""


def is_connected() -> bool:
    """Whether this process is connected to a Ray cluster. Never imports Ray."""
    ray: Any = sys.modules.get("ray")
    return ray is not None and ray.is_initialized()


def refuse_ray_client() -> None:
    """Raise UpError if this process is connected by Ray Client."""
    if is_connected() and import_module("ray.util.client").ray.is_connected():
        raise UpError(NO_RAY_CLIENT)


def named_address(address: str | None) -> str | None:
    """`address`; else RAY_ADDRESS; else "auto" in a process that Ray has started; else None."""
    if address:
        return address
    if any(os.environ.get(name) for name in INSIDE_RAY):
        return os.environ.get("RAY_ADDRESS") or AUTO
    return None


def join_ray(
    address: str | None, namespace: str, on_progress: Callable[[str], None] = lambda text: None
) -> bool:
    """Make sure that Ray is connected; True if an embedded one was started for it.

    Args:
        address: "host:port"; "auto" for RAY_ADDRESS or the Ray that runs on this machine; "local"
            for an embedded one; None: the result of `named_address`, else an embedded one.

    Raises:
        UpError: it cannot be joined; the text has the reason.
    """
    if is_connected():
        return False
    address = named_address(address) or LOCAL
    if address == LOCAL:
        on_progress("starting an embedded Ray")
        with _environment(EMBEDDED_ENVIRONMENT):
            _start_ray(namespace, on_progress)
        protect_token()
        return True
    connect_ray(address, namespace)
    return False


def connect_ray(address: str, namespace: str, cluster_id: str = "") -> None:
    """Connect this process to the Ray cluster at "host:port", or "auto", unless it is connected.

    cluster_id: that it must have; "": any.

    Raises:
        RayUnreachable: no Ray answers there.
        AnotherRay: its id is another.
        UpError: it requires another token, or another version of Ray.
    """
    if is_connected():
        return
    found = resolve_address(address)
    shown = found if address == AUTO else address  # Ray replaces 127.0.0.1
    _check_reachable(found, shown)
    _check_ray(found, shown)
    match_authentication(found)
    _check_cluster_id(found, cluster_id)
    _init_ray(found, namespace)


def join_running(namespace: str) -> None:
    """Connect this process to the Ray in which the cluster `namespace` is up. Starts nothing.

    In this order: the Ray it is connected to; RAY_ADDRESS, or the Ray that has started this
    process; the one that the state file names.

    Raises:
        UpError: there is none of these, or it cannot be joined.
    """
    if is_connected():
        return
    address = running_address(namespace)
    state = read_state(namespace) if named_address(None) in (None, LOCAL) else None
    if state is None:
        connect_ray(address, namespace)
        return
    try:
        connect_ray(address, namespace, state.ray_cluster_id)
    except RayUnreachable:
        raise RayUnreachable(
            f"no cluster is up: the Ray cluster at {address}, where it was, does not answer; start "
            f"that again, or {_start_again(state)}"
        ) from None
    except AnotherRay:
        raise AnotherRay(
            f"no cluster is up: another Ray cluster than the one where it was answers at {address}"
            f"; if that is where it belongs now, run `bradbury up --address {address}`, else "
            f"{_start_again(state)}"
        ) from None


def why_gone(state: ClusterState) -> str | None:
    """Why the Ray cluster that the state file names is not there any more; None if it is.

    One that refuses this user's token does not say which one it is; it is taken for another's if
    none of the brokers is there, either.

    Raises:
        UpError: it requires another token, and brokers are there; or it does not answer at all.
    """
    address = state.ray_address
    was = f"the Ray cluster at {address}, where Bradbury was up, is gone"
    if is_connected() and address == _own_address():
        return None if state.is_in(address, ray_cluster_id()) else was
    try:
        _check_reachable(address)
    except RayUnreachable:
        return was
    try:
        _check_ray(address, address)
        with mode_kept():
            if not is_connected():  # whose mode is its Ray's
                match_authentication(address)
            _check_cluster_id(address, state.ray_cluster_id)
    except _Silent:
        raise
    except RayUnreachable:
        return f"{was}: another program listens there"
    except AnotherRay:
        return f"{was}: another one answers there; `bradbury up --address {address}` joins it"
    except UpError:
        if any(is_reachable(broker) for broker in state.bootstrap.split(",")):
            raise
        return f"{was}: another one, which requires another token, answers there"
    return None


def join_for_clients(bootstrap: str | None, namespace: str | None) -> None:
    """Join the Ray of the cluster that clients connect to, before they become actors.

    Otherwise Ray would start a new one. That is fine if the brokers are given and no cluster of
    ours is up here: then the brokers run somewhere else. Raises UpError.
    """
    try:
        join_running(namespace or default_namespace())
    except UpError:
        if not bootstrap and not os.environ.get(BOOTSTRAP_VARIABLE):
            raise


def running_address(namespace: str, address: str | None = None) -> str:
    """Address of the Ray in which the cluster `namespace` is up. Raises UpError if unknown."""
    named = named_address(address)
    if named is not None and named != LOCAL:
        return named
    state = read_state(namespace)
    if state is None:
        others = [name for name in running_namespaces() if name != namespace]
        if others:
            raise UpError(
                f"no cluster is up in namespace {namespace!r} here, only in "
                f"{', '.join(map(repr, others))}; name it by {NAMESPACE_VARIABLE}={others[0]} or "
                f"--namespace {others[0]}"
            )
        raise UpError(
            f"no cluster is up in namespace {namespace!r} here; start one with `bradbury up` or "
            "bradbury.up(), or give the address of its Ray (--address, RAY_ADDRESS)"
        )
    if state.is_stale:
        raise UpError(
            f"no cluster is up: process {state.pid} has ended without `bradbury down`; "
            f"{_start_again(state)}"
        )
    return state.ray_address


def _start_again(state: ClusterState) -> str:
    data_dirs = state.data_dir.replace(SEPARATOR, " --data-dir ")
    named = "" if state.namespace == DEFAULT_NAMESPACE else f" --namespace {state.namespace}"
    return f"`bradbury up --data-dir {data_dirs}{named}` starts it again with its data"


def resolve_address(address: str) -> str:
    """Resolve `address` to "host:port" of a Ray cluster. Raises RayUnreachable without one."""
    from ray._private import services

    if address == AUTO and not os.environ.get("RAY_ADDRESS"):
        return _only_address()
    if address.startswith(RAY_CLIENT) or (
        address == AUTO and os.environ["RAY_ADDRESS"].startswith(RAY_CLIENT)
    ):
        raise UpError(NO_RAY_CLIENT)
    try:
        found = services.canonicalize_bootstrap_address(address)
    except (ValueError, OSError):  # Ray's message names options that we lack
        raise UpError(
            f"{address!r} is not the address of a Ray cluster; use host:port, 'auto' or 'local'"
        ) from None
    if found is None:  # RAY_ADDRESS=local
        raise RayUnreachable(NO_RAY_HERE)
    return str(found)


def _only_address() -> str:
    """Address of the last Ray that `ray start` started here, or of the only one that runs here."""
    services: Any = import_module("ray._private.services")
    services.find_gcs_addresses.cache_clear()
    last = services.find_bootstrap_address(None)
    running = sorted(services.find_gcs_addresses())
    if last and (last in running or not running):
        return str(last)
    if len(running) > 1:
        raise UpError(
            f"{len(running)} Ray clusters run on this machine, at {', '.join(running)}; choose one "
            "with --address or RAY_ADDRESS"
        )
    if not running:
        raise RayUnreachable(NO_RAY_HERE)
    return str(running[0])


def ray_on_this_machine() -> str | None:
    """Address "host:port" of a Ray that runs here, of any user; None if there is none."""
    with contextlib.suppress(UpError):
        return resolve_address(AUTO)
    return None


def is_reachable(address: str) -> bool:
    """Whether something listens at "host:port"."""
    try:
        _check_reachable(address)
    except RayUnreachable:
        return False
    return True


def _check_reachable(address: str, shown: str | None = None) -> None:
    """Check that something listens there, as Ray would retry for minutes. Raises RayUnreachable.

    shown: the address as the user gave it.
    """
    try:
        _connect(address).close()
    except (OSError, OverflowError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RayUnreachable(
            f"no Ray cluster answers at {shown or address!r} ({why}); "
            "start one with `ray start --head`, or omit the address (--address, RAY_ADDRESS)"
        ) from None


def _check_ray(address: str, shown: str) -> None:
    """Check that the port is Ray's: with another program's, Ray would retry for 15 minutes.

    Ray's port speaks gRPC, so its first frame is HTTP/2's SETTINGS (RFC 9113, 3.4).

    Raises RayUnreachable.
    """
    if os.environ.get("RAY_USE_TLS", "0") == "1":
        return
    try:
        with _connect(address) as probe:
            probe.settimeout(PROBE_SECONDS)
            probe.sendall(HTTP2_PREFACE)
            head = probe.recv(FRAME_HEADER, socket.MSG_WAITALL)
    except TimeoutError:
        raise _Silent(
            f"what listens at {shown!r} has not answered for {PROBE_SECONDS:.0f} s; if that is "
            "Ray, see whether its machine is busy, and end it if it stands still"
        ) from None
    except OSError:
        head = b""
    if len(head) < FRAME_HEADER or head[3] != SETTINGS_FRAME:
        raise RayUnreachable(
            f"what listens at {shown!r} is not Ray; name the port of `ray start --head` (by "
            "default 6379, and never a broker's), or omit the address"
        )


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS)


# --- the id of a Ray cluster ---------------------------------------------------------------------


def ray_cluster_id() -> str:
    """Id of the Ray cluster that this process is connected to."""
    worker: Any = import_module("ray._private.worker").global_worker
    return str(worker.gcs_client.cluster_id.hex())


def _own_address() -> str:
    ray: Any = sys.modules["ray"]
    return str(ray.get_runtime_context().gcs_address)


def _check_cluster_id(address: str, cluster_id: str) -> None:
    """Check that the Ray cluster there has this id; "": it may have any. Raises AnotherRay."""
    if cluster_id and "WrongClusterID" in refusal(address, cluster_id):
        raise AnotherRay(f"another Ray cluster has the address {address} now")


# --- ray.init ------------------------------------------------------------------------------------


class _RayTooSlow(UpError):
    """An embedded Ray did not start within Ray's own timeout. All its processes are ended."""


def _start_ray(namespace: str, on_progress: Callable[[str], None]) -> None:
    for left in reversed(range(RAY_TRIES)):
        try:
            _init_ray(LOCAL, namespace)
            return
        except _RayTooSlow:
            if not left:
                raise
            on_progress("starting an embedded Ray again: 30 s were not enough")


def _init_ray(address: str, namespace: str) -> None:
    import ray

    if address == LOCAL:
        forget_own_mode()
    users_mode = os.environ.get(AUTH_MODE)
    try:
        ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            include_dashboard=False if address == LOCAL else None,
            logging_level=logging.ERROR,
            configure_logging=True,
        )
    except ConnectionError as error:
        raise RayUnreachable(
            f"no Ray cluster answers at {address!r} ({str(error).splitlines()[0]}); "
            "start one with `ray start --head`, or omit the address (--address, RAY_ADDRESS)"
        ) from None
    except RuntimeError as error:
        if "ersion mismatch" in str(error):
            said = " ".join(str(error).split())
            raise UpError(
                f"this environment's Ray {ray.__version__} is not the cluster's: {said}; "
                "install the cluster's Ray and Python versions here"
            ) from None
        raise
    except Exception as error:
        if "timed out during startup" in str(error):  # Ray has no class for this error
            _end_half_started(error)
            raise _RayTooSlow(RAY_TOO_SLOW) from None
        raise
    note_mode_of_ray(users_mode)


def _end_half_started(error: Exception) -> None:
    """End the processes of the Ray node whose start failed with `error`.

    Ray drops its reference to such a node, whose processes would run until this process ends.
    """
    node_kind = import_module("ray._private.node").Node
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("self")
        if isinstance(node, node_kind):
            node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
            return


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes that Ray starts in this block; the user's values are kept."""
    changed = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(changed)
    try:
        with byte_code_kept():
            yield
    finally:
        # Only what was changed here: what Ray itself sets for its children (its token) must stay.
        for name in changed:
            os.environ.pop(name, None)
