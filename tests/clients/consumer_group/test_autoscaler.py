"""Does the thread that resizes a group outlive what goes wrong?"""

import threading
from collections.abc import Callable

import pytest

import bradbury
from bradbury.clients.consumer_group.autoscaler import Autoscaler
from bradbury.clients.consumer_group.group_arguments import partitions_of
from bradbury.clients.consumer_group.lag_scaling import ScalingConfig

WAIT_S = 60


class Group:
    """A group whose first resize fails, as Ray may."""

    group = "resized"
    size = 1

    def __init__(self) -> None:
        self.resized = threading.Event()
        self.attempts = 0

    def resize(self, actors: int | None = None) -> None:
        self.attempts += 1
        if self.attempts == 1:
            raise RuntimeError("no node has room")
        self.resized.set()


def test_a_resize_that_fails_is_tried_again(
    bootstrap: str, new_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(2)
    with bradbury.Producer(bootstrap) as producer:
        for partition in range(2):
            producer.send(topic, b"unread", partition=partition)
    config = ScalingConfig(
        min_actors=1,
        max_actors=2,
        target_lag=1,
        target_lag_s=None,
        upscale_delay_s=0.0,
        downscale_delay_s=60.0,
    )
    group = Group()
    scaler = Autoscaler(
        config,
        lambda: group,
        lambda: bradbury.Admin(bootstrap),
        lambda admin: partitions_of((topic,), admin),
        starts_at_end=False,
    )
    assert group.resized.wait(WAIT_S)
    scaler.stop(WAIT_S)
    assert "group resized: it was not resized" in caplog.text
