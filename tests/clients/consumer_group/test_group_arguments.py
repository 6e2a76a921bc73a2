"""What a group of actors is refused for, before it looks for a cluster."""

from typing import Any

import pytest

import bradbury
from bradbury.protocol.errors import InvalidConfig


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"target_lag": 5}, "need max_actors"),
        ({"min_actors": 2}, "need max_actors"),
        ({"target_lag_s": 1.0}, "need max_actors"),
        ({"upscale_delay_s": 0.0}, "need max_actors"),
        ({"downscale_delay_s": 1.0}, "need max_actors"),
        (
            {"max_actors": 4, "target_lag": 5, "workers": 3},
            "workers=3: use at least one for each of 4 actors, or 0",
        ),
        ({"worker_options": {"num_gpus": 1}}, "worker_options are for workers: give their number"),
    ],
)
def test_what_would_have_no_effect_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        bradbury.ConsumerGroup("flights", "readers", **options)
