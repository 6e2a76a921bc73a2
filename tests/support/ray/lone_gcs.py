"""The heart of a Ray cluster without its body: a GCS, which is there at once and has no nodes.

Whoever asks a Ray cluster who it is asks this process.
"""

import base64
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import ray

from ..child_process import ChildProcess

START_SECONDS = 60


@contextmanager
def lone_gcs(
    environment: Mapping[str, str], port: int, storage: Path | None = None
) -> Iterator[str]:
    """The address of one on `port`; killed at the end.

    storage: what it keeps its state in, as with RAY_gcs_storage=rocksdb; by default it forgets all.
    """
    host = ray.util.get_node_ip_address()  # which Ray puts in the place of 127.0.0.1
    folder = Path(environment["TMPDIR"]) / "gcs"
    folder.mkdir(exist_ok=True)
    kept = {} if storage is None else {"storage": "rocksdb", "storage_path": str(storage)}
    command = [
        str(Path(ray.__file__).parent / "core" / "src" / "ray" / "gcs" / "gcs_server"),
        f"--gcs_server_port={port}",
        f"--node-ip-address={host}",
        f"--node-id={'ab' * 28}",
        "--session-name=session",
        f"--session-dir={folder}",
        f"--log_dir={folder}",
        f"--config_list={base64.b64encode(b'{}').decode()}",
    ]
    with (
        (folder / "gcs.out").open("wb") as output,
        ChildProcess(
            command,
            env={**environment, **{f"RAY_gcs_{name}": value for name, value in kept.items()}},
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as gcs,
    ):
        deadline = time.monotonic() + START_SECONDS
        while not _listens(host, port):
            said = (folder / "gcs.out").read_text(errors="replace")
            assert gcs.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)
        yield f"{host}:{port}"
        gcs.kill()


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port)).close()
    except OSError:
        return False
    return True
