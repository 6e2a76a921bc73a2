"""In which order does a node join, take over an image of the metadata, and end?"""

from __future__ import annotations

from typing import Any

from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.protocol.errors import KafkaError
from bradbury.replication.effects import Effects, WorkingStep
from bradbury.replication.manager.broker_metadata_publisher import MetadataUsers, publish_metadata
from bradbury.replication.manager.node_close import close_node
from bradbury.replication.manager.node_join import join_node
from bradbury.replication.procedure import Procedure, ProcedureSteps

OLD, NEW = MetadataImage(offset=1), MetadataImage(offset=2)


class Part:
    """A condition that the test meets."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name, self.seen = name, seen
        self.step: WorkingStep | None = None

    def begin_waiting(self, step: WorkingStep) -> None:
        self.seen.append(f"{self.name} begins")
        self.step = step

    def meet(self, failure: Exception | None = None) -> None:
        assert self.step is not None
        self.seen.append(f"{self.name} ends")
        self.step.on_work_done(self, failure, 0)


class Run:
    """A procedure that runs; `end`: whether and how it has ended."""

    def __init__(self, steps: ProcedureSteps) -> None:
        effects: Effects = []
        self.end: list[Exception | None] = []
        Procedure(effects, steps, 0, self.end.append).begin()
        assert effects == []


class PublishingNode:
    def __init__(self, *, is_broker: bool = False) -> None:
        self.seen: list[str] = []
        self.image = OLD
        self.is_stopping = False
        self.partitions = Part("partitions", self.seen)
        hosts = not is_broker
        self.users = MetadataUsers(
            settings=lambda image: self.note("settings", image),
            access=lambda image: self.note("access", image),
            coordinators=(lambda image: self.note("coordinators", image)) if hosts else None,
            partitions=(lambda image: self.partitions) if hosts else None,
            serve_image=self.answer_by,
            quotas=lambda before, image: self.note("quotas", before, image),
            pending_verifications=lambda image: self.note("pending verifications", image),
            offsets=(lambda before, image: self.note("offsets", before, image)) if hosts else None,
            is_stopping=lambda: self.is_stopping,
        )

    def note(self, name: str, *images: MetadataImage) -> None:
        assert images in ((NEW,), (OLD, NEW))
        self.seen.append(name)

    def answer_by(self, image: MetadataImage) -> MetadataImage:
        self.note("serve image", image)
        before, self.image = self.image, image
        return before


def test_requests_are_answered_by_an_image_when_the_partitions_are_what_it_says() -> None:
    node = PublishingNode()
    run = Run(publish_metadata(NEW, node.users))
    assert node.seen == ["settings", "access", "coordinators", "partitions begins"]
    assert (node.image, run.end) == (OLD, [])
    node.partitions.meet()
    assert node.seen[4:] == [
        "partitions ends",
        "serve image",
        "quotas",
        "pending verifications",
        "offsets",
    ]
    assert (node.image, run.end) == (NEW, [None])


def test_a_node_without_partitions_takes_an_image_over_at_once() -> None:
    node = PublishingNode(is_broker=True)
    run = Run(publish_metadata(NEW, node.users))
    assert node.seen == ["settings", "access", "serve image", "quotas", "pending verifications"]
    assert run.end == [None]


def test_an_image_that_the_partitions_cannot_follow_answers_no_request() -> None:
    node = PublishingNode()
    run = Run(publish_metadata(NEW, node.users))
    failure = KafkaError("too many files")
    node.partitions.meet(failure)
    assert (node.image, run.end) == (OLD, [failure])


def test_a_node_that_has_begun_to_stop_takes_nothing_over() -> None:
    node = PublishingNode()
    run = Run(publish_metadata(NEW, node.users))
    node.is_stopping = True
    node.partitions.meet()
    assert node.seen[-1] == "partitions ends"
    assert (node.image, run.end) == (OLD, [None])


def closing(seen: list[str], **absent: None) -> tuple[Run, dict[str, Part]]:
    names = ("clients", "questions", "coordinators", "partitions", "voter")
    parts = {name: Part(name, seen) for name in names}
    given: dict[str, Any] = {
        "clients": parts["clients"],
        "metadata": lambda: seen.append("metadata"),
        "coordinators": (parts["questions"], parts["coordinators"]),
        "partitions": parts["partitions"],
        "voter": parts["voter"],
    }
    return Run(close_node(**given | absent)), parts


def test_each_part_of_a_node_ends_after_those_that_need_it() -> None:
    seen: list[str] = []
    run, parts = closing(seen)
    for part in parts.values():
        assert run.end == []
        part.meet()
    assert seen == [
        *("clients begins", "clients ends", "metadata"),
        *("questions begins", "questions ends", "coordinators begins", "coordinators ends"),
        *("partitions begins", "partitions ends", "voter begins", "voter ends"),
    ]
    assert run.end == [None]


def test_a_node_that_never_opened_its_directories_ends_without_them() -> None:
    seen: list[str] = []
    run, parts = closing(seen, partitions=None, voter=None)
    for name in ("clients", "questions", "coordinators"):
        parts[name].meet()
    assert run.end == [None]


def test_what_fails_while_a_part_ends_is_told() -> None:
    run, parts = closing([])
    failure = OSError("full")
    parts["clients"].meet(failure)
    assert run.end == [failure]


def joining(seen: list[str]) -> tuple[Run, Part, Part]:
    registered, followed = Part("registration", seen), Part("metadata", seen)
    steps = join_node(
        registered=registered,
        partitions=lambda: seen.append("partitions"),
        followed=followed,
        clients=lambda: seen.append("clients"),
    )
    return Run(steps), registered, followed


def test_a_node_that_joins_serves_clients_when_it_has_applied_the_first_image() -> None:
    seen: list[str] = []
    run, registered, followed = joining(seen)
    assert seen == ["registration begins"]
    registered.meet()
    assert seen[1:] == ["registration ends", "partitions", "metadata begins"]
    assert run.end == []
    followed.meet()
    assert seen[4:] == ["metadata ends", "clients"]
    assert run.end == [None]


def test_a_node_that_is_refused_starts_nothing() -> None:
    seen: list[str] = []
    run, registered, _followed = joining(seen)
    refused = KafkaError("another cluster's")
    registered.meet(refused)
    assert seen == ["registration begins", "registration ends"]
    assert run.end == [refused]


def test_without_the_first_image_no_client_is_served() -> None:
    seen: list[str] = []
    run, registered, followed = joining(seen)
    registered.meet()
    failure = KafkaError("fenced")
    followed.meet(failure)
    assert "clients" not in seen
    assert run.end == [failure]
