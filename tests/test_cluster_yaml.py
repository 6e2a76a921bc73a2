"""Would `ray up cluster.yaml` accept the file?"""

from pathlib import Path

import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

import bradbury
from bradbury.actors.placement import LABEL

PATH = Path(bradbury.__file__).parent / "cluster.yaml"


def test_rays_own_validator_accepts_it() -> None:
    validate_config(prepare_config(yaml.safe_load(PATH.read_text())))


def test_what_a_log_needs_of_ray_is_set() -> None:
    config = yaml.safe_load(PATH.read_text())
    for commands in (config["head_start_ray_commands"], config["worker_start_ray_commands"]):
        start = commands[-1]
        assert "RAY_worker_niceness=0" in start
        assert "RAY_gcs_rpc_server_reconnect_timeout_s=86400" in start
    assert f"--labels={LABEL}=" in config["worker_start_ray_commands"][-1]
    assert config["available_node_types"]["broker"]["resources"]["log_broker"] == 1
