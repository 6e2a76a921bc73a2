"""Does a secret that is given in clear reach what Ray's head keeps?

The GCS of Ray keeps in clear the arguments of actors' constructors and the functions of tasks with what
they close over; with RocksDB they are on a disk, where they can be looked for. Arguments of methods and
of tasks go from process to process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bradbury.tests.support.ray.ray_settings import RAY_ENVIRONMENT
from bradbury.tests.support.secured_cluster import PASSWORD

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.long]

KEPT = "arguments-of-this-actor-are-kept"
SECONDS = 300
PROGRAM = f"""
import json, sys, pathlib
import ray
import bradbury
from bradbury.pipelines import load
from bradbury.tests.support.certificates import CertificateAuthority
from bradbury.tests.support.secured_cluster import secured_cluster

folder = pathlib.Path(sys.argv[1])
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False

@ray.remote(num_cpus=0)
class Kept:
    def __init__(self, text):
        self.text = text
    def length(self):
        return len(self.text)

kept = Kept.remote("{KEPT}")
ray.get(kept.length.remote())
seen = {{}}
with (
    secured_cluster(CertificateAuthority(folder), nodes=1) as (cluster, alice),
    bradbury.local() as target,
):
    servers = cluster.bootstrap_servers
    with bradbury.Admin(servers, **alice) as admin:
        admin.create_topic("t", 2)
        admin.create_topic("copy", 2)
    with bradbury.Producer(servers, **alice) as producer:
        producer.send_batch("t", [b"%d" % number for number in range(100)]).result(60)
    read = bradbury.read_topic("t", bootstrap_servers=servers, columns=["value"], **alice)
    seen["read"] = read.count()
    bradbury.write_topic(read, "copy", bootstrap_servers=servers, **alice)
    seen["written"] = bradbury.read_topic("copy", bootstrap_servers=servers, **alice).count()
    endless = bradbury.read_topic(
        "t", bootstrap_servers=servers, trigger="continuous", group_id="g", **alice
    )
    seen["continuous"] = 0
    for batch in bradbury.committed_batches(endless, batch_size=None):
        seen["continuous"] += len(batch["value"])
        if seen["continuous"] >= 100:
            break
    seen["loaded"] = load(
        "t", str(folder / "table"), bootstrap_servers=servers, engine="ray", **alice
    ).records
    seen["mirrored"] = bradbury.mirror(
        "t",
        servers,
        alias="west",
        bootstrap_servers=target.bootstrap_servers,
        actors=2,
        source_security=alice,
    ).records
    with target.admin() as admin:
        admin.create_topic("of-target", 2)
    with bradbury.Producer(target.bootstrap_servers) as producer:
        producer.send_batch("of-target", [b"%d" % number for number in range(100)]).result(60)
    seen["mirrored back"] = bradbury.mirror(
        "of-target",
        target.bootstrap_servers,
        alias="back",
        bootstrap_servers=servers,
        actors=1,
        **alice,
    ).records
ray.shutdown()
(folder / "seen.json").write_text(json.dumps(seen))
"""


def test_what_reads_writes_loads_and_mirrors_leaves_no_password_there(tmp_path: Path) -> None:
    storage = tmp_path / "gcs"
    storage.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={
            **os.environ,
            **RAY_ENVIRONMENT,
            "RAY_gcs_storage": "rocksdb",
            "RAY_gcs_storage_path": str(storage),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen == dict.fromkeys(seen, 100)
    content = b"".join(file.read_bytes() for file in storage.rglob("*") if file.is_file())
    assert KEPT.encode() in content
    assert PASSWORD.encode() not in content
