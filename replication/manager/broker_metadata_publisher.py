"""The order in which a node takes over a new image of the metadata.

    settings      what the partitions are made and served with
    access        who may not get at them any more is kept out before more of them are served
    coordinators  know the topics and leaders by which those that are elected in the next step send
                  the markers they find in their logs; see transactions/transaction_markers
    partitions    become what the image says; nothing goes on before they serve
    answers       requests are answered by the image from here on: a node that says it leads a
                  partition leads it. The controller is told, too, that this image is applied
    quotas        of clients
    questions     that wait for leaders of transactions' partitions are sent to the new ones
    offsets       of topics that are gone are deleted, once no request sees the topic any more

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
    """What of a node takes over an image: each is called with it. None: the node has no such part.

    partitions: returns the condition that they are what the image says; it begins when waited for.
    answers: returns the image that requests were answered by until then.
    quotas, offsets: called with the image before, and the new one.
    is_over: whether the node has begun to stop, and takes over nothing more.
    """

    settings: OnImage
    access: OnImage | None
    coordinators: OnImage | None
    partitions: Callable[[MetadataImage], Condition] | None
    answers: Callable[[MetadataImage], MetadataImage]
    quotas: Callable[[MetadataImage, MetadataImage], object]
    questions: OnImage
    offsets: Callable[[MetadataImage, MetadataImage], object] | None
    is_over: Callable[[], bool]


def publish_metadata(image: MetadataImage, users: MetadataUsers) -> ProcedureSteps:
    """Steps by which a node takes over `image`. One at a time, in the order of their offsets.

    Raises what has kept the partitions from becoming what it says; the image is asked for again.
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
        if users.is_over():
            return
    before = users.answers(image)
    users.quotas(before, image)
    users.questions(image)
    if users.offsets is not None:
        users.offsets(before, image)
