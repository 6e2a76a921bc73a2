"""A cluster as the controller sees it, built from requests; every record goes through its bytes."""

from typing import Any, TypeVar
from uuid import UUID

from bradbury.cluster.control import controller_state
from bradbury.cluster.control.config_control import (
    TOPIC,
    AlterConfigs,
    ConfigChange,
    Operation,
    ResourceChanges,
)
from bradbury.cluster.control.controller_request import ControllerRequest
from bradbury.cluster.control.controller_state import NodeRegistration
from bradbury.cluster.control.topic_control import CreateTopics, TopicToCreate
from bradbury.cluster.metadata.metadata_image import MetadataImage
from bradbury.cluster.metadata.metadata_records import (
    ClusterRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from bradbury.handlers.configs.config_rules import ServerConfigRules
from bradbury.handlers.ports.server_config import ServerConfig

A = TypeVar("A")
RULES = ServerConfigRules(ServerConfig.from_kafka({"num.partitions": "3"}))
TOPIC_ID = UUID(int=42)


class Refused(Exception):
    """The one outcome of a request was an error."""


def registration(name: str, *, roles: tuple[str, ...] = ("partition",), incarnation: str = "a"):
    return NodeRegistration(
        directory_id=name,
        incarnation=incarnation,
        roles=roles,
        host="127.0.0.1",
        port=9092,
        rack=name[:1],
        machine=name,
    )


def applied(image: MetadataImage, records) -> MetadataImage:
    """Every record goes through its bytes, as on the voters' disks."""
    decoded = [decode_metadata_record(encode_metadata_record(record)) for record in records]
    assert decoded == list(records)
    return image.apply(decoded, offset=image.offset + len(decoded))


def cluster(*names: str) -> MetadataImage:
    image = applied(MetadataImage(), [ClusterRecord(cluster_id="c", voters=("v",))])
    for name in names:
        _, records = controller_state.register_node(image, registration(name))
        image = applied(image, records)
    return image


def decide(image: MetadataImage, request: ControllerRequest[A]) -> tuple[list[Any], A]:
    return request.decide(image, RULES)


def create(image: MetadataImage, name: str, **options: Any) -> list[Any]:
    """The records of a new topic. Raises Refused."""
    options.setdefault("topic_id", UUID(int=1000 + image.offset))
    request = CreateTopics(topics=(TopicToCreate(name=name, **options),))
    records, (outcome,) = decide(image, request)
    if outcome.outcome.code:
        raise Refused(outcome.outcome.message)
    return records


def one_setting(resource_type: int, name: str, *, unset: bool = False) -> AlterConfigs:
    """Set or unset how long records are kept, of a topic or a broker."""
    key = "retention.ms" if resource_type == TOPIC else "log.retention.ms"
    change = ConfigChange(key, Operation.DELETE if unset else Operation.SET, "77")
    return AlterConfigs(
        resources=(ResourceChanges(resource_type=resource_type, name=name, changes=(change,)),)
    )
