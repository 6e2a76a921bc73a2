"""The order in which a node applies a new image of the metadata.

    settings               with which partitions are created and served
    access                 is revoked before more partitions are served
    coordinators           get the topics and leaders: those elected in the next step need them to
                           send the markers in their logs; see transactions/transaction_markers
    partitions             become what the image says; nothing continues before they serve
    serve_image            requests are answered by the image from here on: a node that says it
                           leads a partition leads it. The controller learns that it is applied
    quotas                 of clients
    pending_verifications  of partitions in transactions are sent to their new leaders
    offsets                of deleted topics are deleted, once no request sees the topic any more

Source: BrokerMetadataPublisher.onMetadataUpdate in apache/kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...cluster.metadata.metadata_image import MetadataImage
from ..procedure import Condition, ProcedureSteps

OnImage = Callable[[MetadataImage], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataUsers:
    """Parts of a node that apply an image: each is called with it. None: there is no such part.

    partitions: returns the condition that they are what the image says; it begins when waited for.
    serve_image: returns the image by which requests were answered until then.
    quotas, offsets: called with the image before, and the new one.
    is_stopping: whether the node has begun to stop, and applies nothing more.
    """

    settings: OnImage
    access: OnImage | None
    coordinators: OnImage | None
    partitions: Callable[[MetadataImage], Condition] | None
    serve_image: Callable[[MetadataImage], MetadataImage]
    quotas: Callable[[MetadataImage, MetadataImage], object]
    pending_verifications: OnImage
    offsets: Callable[[MetadataImage, MetadataImage], object] | None
    is_stopping: Callable[[], bool]


def publish_metadata(image: MetadataImage, users: MetadataUsers) -> ProcedureSteps:
    """Steps by which a node applies `image`. One at a time, in the order of their offsets.

    Raises the failure of the partitions' step; the image is polled again.
    """
    users.settings(image)
    if users.access is not None:
        users.access(image)
    if users.coordinators is not None:
        users.coordinators(image)
    if users.partitions is not None:
        [failure] = yield [users.partitions(image)]
        if failure is not None:
            raise failure
        if users.is_stopping():
            return
    before = users.serve_image(image)
    users.quotas(before, image)
    users.pending_verifications(image)
    if users.offsets is not None:
        users.offsets(before, image)
