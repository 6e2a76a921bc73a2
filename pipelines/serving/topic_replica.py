"""Replica of a deployment that consumes a topic: a group member in an actor of Serve.

Invariants:
    A replica is a static member with a unique name: `<application>.<deployment>.<tag>`.
    When Serve stops it, it finishes its batches, commits and leaves the group.
    When its process dies, the replica that replaces it removes it from the group, and aborts its
    open transaction: Ray reports that it is dead, so no session timeout has to pass.
    A permanent error (a batch that fails, a deleted topic) is raised by check_health: Serve shows
    it, and replaces the replica by one that resumes at the last commit.

Not here: polling, committing, transactions (clients/consumer_group/member).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import ray
from ray import serve

from ...clients.admin.admin import Admin
from ...clients.consumer_group.group_arguments import connection_options
from ...clients.consumer_group.group_output import outputs_of, send_outputs
from ...clients.consumer_group.member import MemberProcess
from ...clients.consumer_group.processing.function import BatchFailed, Function, records_in
from ...clients.consumer_group.processing.member_config import MemberConfig
from ...clients.producer.producer import Producer
from ...clients.wire.interceptors import ProducerRecord
from ...protocol.errors import ConnectionFailed, GroupIdNotFound, KafkaError, UnknownMemberId

if TYPE_CHECKING:
    from ...clients.consumer_group.status import MemberStatus

logger = logging.getLogger(__name__)

SERVE_NAMESPACE: Final = "serve"
"""Ray namespace of Serve's actors."""
PENDING_NAME: Final = "replica"
"""Placeholder for the instance id in a MemberConfig made before the replica."""


class TopicReplica:
    """Replica, created by Serve in its own actor.

    Args:
        config: of the member, except its name.
        output: topic for what the function returns; None: the function names topics itself.
    """

    def __init__(self, config: MemberConfig, output: str | None) -> None:
        context = serve.get_replica_context()
        assert config.function is not None
        prefix = f"{context.app_name}.{context.deployment}."
        options = connection_options(config.consumer_options)
        self._producer: Producer | None = None
        if not config.exactly_once:
            self._producer = Producer(**{**config.producer_options, **options})
        function = _made(config.function, output, self._producer)
        self._config = replace(config, instance_id=prefix + context.replica_tag, function=function)
        with Admin(**options) as admin:
            self._remove_dead(admin, prefix)
        self._member: Any = MemberProcess(self._config)  # a plain object here, not a Ray actor

    def check_health(self) -> None:
        """Check the member; called by Serve periodically.

        Raises:
            BatchFailed: the function raised, or its output cannot be written.
            KafkaError: the member failed.
        """
        member = self._member
        if member is None:
            return
        report = member.take(member.alive(), [], [], -1, 0)
        if report.failure is not None:
            raise report.failure
        for entry in report.entries:
            if entry.outcome.error is not None:
                raise BatchFailed(
                    entry.spans, entry.table, entry.outcome.error, entry.outcome.traceback
                )

    def status(self) -> MemberStatus | None:
        """Partitions, positions and metrics of this replica; None: it has left the group."""
        return None if self._member is None else self._member.status()

    def __del__(self) -> None:
        """Leave the group. Serve calls it at shutdown, for at most graceful_shutdown_timeout_s."""
        member = getattr(self, "_member", None)
        if member is not None:
            self._member = None
            member.stop()
            if self._producer is not None:
                self._producer.close()

    def _remove_dead(self, admin: Admin, prefix: str) -> None:
        """Remove dead former replicas from the group, and fence their producers."""
        group = self._config.group
        try:
            (described,) = admin.describe_groups([group])
        except GroupIdNotFound:
            return
        dead = [
            member.instance_id
            for member in described.members
            if member.instance_id is not None
            and member.instance_id.startswith(prefix)
            and not _is_alive(member.instance_id.removeprefix(prefix))
        ]
        for instance_id in dead:
            logger.warning("replica %s has died; removing it from the group", instance_id)
            try:
                if self._config.exactly_once:
                    admin.fence_producers([f"{group}.{instance_id}"])
                admin.remove_members(group, instance_ids=[instance_id], reason="its replica died")
            except UnknownMemberId:
                pass  # another new replica was faster
            except (KafkaError, ConnectionFailed) as error:
                logger.warning("cannot remove replica %s, it must time out: %s", instance_id, error)


def _is_alive(tag: str) -> bool:
    """Whether the actor of this replica is alive in Ray. Serve never restarts an actor."""
    replica_id = replace(serve.get_replica_context().replica_id, unique_id=tag)
    try:
        ray.get_actor(replica_id.to_full_id_str(), namespace=SERVE_NAMESPACE)
    except ValueError:
        return False
    return True


def _made(given: Function, output: str | None, producer: Producer | None) -> Function:
    """Function for the member. A class is constructed here, so that Serve shows its errors."""
    fn = given.fn
    if isinstance(fn, type):
        fn = fn(*given.constructor_arguments, **given.constructor_keywords)

    def process(table: pa.Table) -> Any:
        batch = table if given.batch_format == "arrow" else records_in(table)
        returned = fn(batch, *given.arguments, **given.keywords)
        if output is not None and not _names_topics(returned):
            returned = {output: returned}
        if producer is None:
            return returned  # it is written together with the offsets
        _write(producer, returned)
        return None

    return Function(fn=process)


def _names_topics(returned: object) -> bool:
    """Whether output names its topics: {topic: ...}, ProducerRecords, or nothing."""
    if returned is None or isinstance(returned, Mapping):
        return True
    return isinstance(returned, list) and all(isinstance(one, ProducerRecord) for one in returned)


def _write(producer: Producer, returned: object) -> None:
    """Write output and wait for acknowledgement; the batch is committed only afterwards."""
    for future in send_outputs(producer, outputs_of(returned)):
        future.result()
