"""Would `ray up` accept what is there for each place, and is in it what a log needs?"""

import os
import re
import shutil
import subprocess
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

import bradbury
from bradbury.actors.ray.placement import LABEL

ROOT = Path(bradbury.__file__).parent
DEPLOY = ROOT / "docs" / "deploy"
FOR_RAY_UP = [ROOT / "cluster.yaml", DEPLOY / "on-prem.yaml", DEPLOY / "gcp.yaml"]
SETTINGS = {"RAY_worker_niceness": "0", "RAY_gcs_rpc_server_reconnect_timeout_s": "86400"}
HEALTH_CHECKS = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
}

for_each = pytest.mark.parametrize("path", FOR_RAY_UP, ids=lambda path: path.name)


def read(path: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(path.read_text())
    return config


@for_each
def test_rays_own_validator_accepts_it(path: Path) -> None:
    validate_config(prepare_config(read(path)))


@for_each
def test_what_a_log_needs_of_ray_is_set(path: Path) -> None:
    config = read(path)
    head, worker = config["head_start_ray_commands"], config["worker_start_ray_commands"]
    for commands in (head, worker):
        assert commands[0] == "ray stop"
        for name, value in SETTINGS.items():
            assert f"{name}={value} " in commands[-1]
    for name, value in HEALTH_CHECKS.items():
        assert f"{name}={value} " in head[-1]
    assert "RAY_gcs_storage=rocksdb RAY_gcs_storage_path=/var/lib/bradbury/gcs " in head[-1]
    assert f"--labels={LABEL}=$(cat /var/lib/bradbury/node.id),log-role=broker" in worker[-1]
    assert config["idle_timeout_minutes"] > 60 * 24 * 365


@for_each
def test_the_wheel_is_taken_to_the_machines_and_nothing_is_asked_of_an_index_by_name(
    path: Path,
) -> None:
    """Nobody has `bradbury` on PyPI, or somebody else has."""
    config = read(path)
    assert "~/wheels" in config["file_mounts"]
    (choice,) = [line for line in config["setup_commands"] if "pip download" in line]
    assert "--no-index --find-links ~/wheels --dest ~/wheel bradbury" in choice
    installs = [line for line in config["setup_commands"] if line.startswith("pip install")]
    assert installs
    for line in installs:
        assert "~/wheel/bradbury-*.whl" in line
        assert not re.search(r"(?<![/\w])bradbury(?!-\*)", line)
    assert f"ray[default,data]=={ray.__version__}" in installs[0]


def says_spark_and_demo(install: str) -> bool:
    """What pip is told about the wheel once the shell has put its name in."""
    words = subprocess.run(
        ["sh", "-c", f'pip() {{ printf "%s\\n" "$@"; }}; {install}'],
        env={"PATH": os.environ["PATH"], "HOME": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()
    (wheel,) = (word for word in words if ".whl" in word)
    extras = set(wheel.partition("[")[2].rstrip("]").split(","))
    assert extras <= set(metadata("bradbury").get_all("Provides-Extra") or [])
    return extras == {"spark", "demo"}


@for_each
def test_the_machines_get_spark_and_what_the_demo_needs_with_the_wheel(path: Path) -> None:
    installs = [line for line in read(path)["setup_commands"] if line.startswith("pip install")]
    assert says_spark_and_demo(installs[0])


@for_each
@pytest.mark.parametrize(
    ("said", "is_installed"),
    [
        ('openjdk version "17.0.15" 2025-04-15', False),
        ('openjdk version "21.0.2" 2024-01-16', False),
        ('openjdk version "11.0.20" 2023-07-18', True),
        ('openjdk version "1.8.0_402"', True),
        (None, True),
    ],
)
def test_a_jdk_is_installed_where_there_is_none_that_spark_takes(
    path: Path, said: str | None, is_installed: bool, tmp_path: Path
) -> None:
    (command,) = (line for line in read(path)["setup_commands"] if line.startswith("java"))
    programs = {"sudo": 'echo "$@"'}
    if said is not None:
        programs["java"] = f"echo '{said}' >&2"
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "grep").symlink_to(shutil.which("grep") or "/bin/grep")
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    words = done.stdout.split()
    assert ("openjdk-17-jre-headless" in words) is is_installed


def test_the_image_has_spark_and_its_java() -> None:
    runs = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    (java,) = (line for line in runs if "apt-get install" in line)
    assert "openjdk-17-jre-headless" in java.split()
    (install,) = (line.removeprefix("RUN ") for line in runs if "pip install" in line)
    assert says_spark_and_demo(install)
    assert runs[1] == f"FROM rayproject/ray:{ray.__version__}-py311"


def test_what_ray_down_stops_is_started_again_with_its_disk() -> None:
    for name in ("cluster.yaml", "docs/deploy/gcp.yaml"):
        assert read(ROOT / name)["provider"]["cache_stopped_nodes"] is True
        broker = read(ROOT / name)["available_node_types"]["broker"]
        assert broker["resources"]["log_broker"] == 1
        assert broker["min_workers"] == broker["max_workers"]


def test_a_log_node_of_kuberay_is_a_group_of_one_pod_with_a_volume_of_its_own() -> None:
    *claims, cluster = yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert cluster["spec"]["rayVersion"] == ray.__version__
    assert not cluster["spec"]["enableInTreeAutoscaling"]
    mounted = []
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert group["replicas"] == group["minReplicas"] == group["maxReplicas"] == 1
        assert group["labels"] == {LABEL: group["groupName"], "log-role": "broker"}
        assert "labels" not in group["rayStartParams"]  # KubeRay refuses them there
        (volume,) = group["template"]["spec"]["volumes"]
        (container,) = group["template"]["spec"]["containers"]
        assert container["volumeMounts"] == [{"name": "data", "mountPath": "/var/lib/bradbury"}]
        assert SETTINGS.items() <= environment(container).items()
        drain_seconds = int(environment(container)["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
        assert drain_seconds < group["template"]["spec"]["terminationGracePeriodSeconds"]
        mounted.append(volume["persistentVolumeClaim"]["claimName"])
    assert sorted(mounted) == sorted(claim["metadata"]["name"] for claim in claims)
    (head,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert {**SETTINGS, **HEALTH_CHECKS}.items() <= environment(head).items()


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"]}
