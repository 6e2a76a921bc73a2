"""Base class of requests to the controller: each computes its own changes from the newest image.

A request is a value that is sent between actors. The controller (controller/active/change_queue)
runs `decide` while no other change is under way, makes the records durable, applies them, and
returns the answer. So a new request is one new class: no code between handler and `decide` depends
on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from ...protocol.error_code import ErrorCode
from ...protocol.errors import KafkaError
from ..metadata.metadata_image import MetadataImage
from ..metadata.metadata_records import MetadataRecord

A = TypeVar("A")


class RequestOutcome(NamedTuple):
    """Outcome of one part of a request: an error code, 0 for success, and a message for users."""

    code: int
    message: str | None

    @classmethod
    def of(cls, error: KafkaError) -> RequestOutcome:
        return cls(error.code, str(error))


DONE = RequestOutcome(ErrorCode.NONE, None)


class ConfigRules(Protocol):
    """Settings that exist and their allowed values. See handlers/configs/config_rules.

    topics    storage/log_config
    groups    groups/dynamic_group_config
    brokers   the tables that handlers/ports/server_config joins

    How a table is defined: protocol/config_key.
    """

    def is_list(self, resource_type: int, name: str) -> bool: ...

    def default_of(self, image: MetadataImage, resource_type: int, name: str) -> str:
        """Effective value of a setting that the resource does not set itself."""
        ...

    def topic_defaults(self, image: MetadataImage) -> tuple[int, int]:
        """Default number of partitions and default replication factor of a new topic."""
        ...

    def check_topic(self, image: MetadataImage, configs: Mapping[str, str]) -> None:
        """Raises InvalidConfig unless a topic may have these settings."""
        ...

    def check_group(self, configs: Mapping[str, str]) -> None:
        """Raises InvalidConfig unless a group may have these settings."""
        ...

    def check_broker(self, image: MetadataImage, name: str, configs: Mapping[str, str]) -> None:
        """Check that node `name` ("": all nodes) may be given these settings while it runs.

        Raises:
            InvalidRequest: a setting cannot be changed while brokers run, or its value is not
                allowed, by itself or together with the settings of a topic.
            InvalidConfig: there is no such setting.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRequest(ABC, Generic[A]):
    """A request to the controller; A is the type of its answer.

    needs_confirmation: the client relies on an answer without a change, too, so only the active
        controller may give it, not one that was deposed and has not noticed.
    is_for_all: the answer waits until every node in service has applied the requested state, even
        if no change was needed: an earlier attempt may have made it just before.
    validate_only: decide and answer, change nothing.
    is_repeated: an earlier attempt was sent and its answer lost; it may have been carried out.
    """

    needs_confirmation: ClassVar[bool] = False
    is_for_all: ClassVar[bool] = False
    validate_only: bool = False
    is_repeated: bool = False

    @abstractmethod
    def decide(self, image: MetadataImage, rules: ConfigRules) -> tuple[list[MetadataRecord], A]:
        """Return (records of the change, answer). Pure. May raise a KafkaError: then nothing
        changes.
        """
