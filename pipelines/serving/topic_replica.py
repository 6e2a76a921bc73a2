"""One replica of a deployment that consumes a topic: a member of the group in an actor of Serve.

What always holds:
    A replica is a static member with a name that no other has: `<application>.<deployment>.<tag>`.
    When Serve ends it in order it finishes its batches, commits and leaves the group.
    When its process dies, the replica that takes its place sends it away from the group, and ends
    its open transaction: Ray knows that it is dead, so nobody waits for its session to end.
    What it cannot go on with (a batch that fails, a topic that is gone) is raised by check_health:
    Serve shows it, and replaces the replica, which goes on at the last commit.

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
"""Where Serve's actors have their names."""
PENDING_NAME: Final = "replica"
"""In a MemberConfig that is made before there is a replica."""


class TopicReplica:
    """Made by Serve, in an actor of its own.

    Args:
        config: of the member, but for its name.
        output: the topic for what the function returns; None: it names topics itself.
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
            self._bury(admin, prefix)
        self._member: Any = MemberProcess(self._config)  # as a plain object: Ray types an actor's

    def check_health(self) -> None:
        """Serve asks again and again.

        Raises:
            BatchFailed: the function raised, or what it returned cannot be written.
            KafkaError: the member cannot go on.
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
        """Partitions, positions and figures of this replica; None when it has left."""
        return None if self._member is None else self._member.status()

    def __del__(self) -> None:
        """Serve calls it when the replica is to end, and waits graceful_shutdown_timeout_s."""
        member = getattr(self, "_member", None)
        if member is not None:
            self._member = None
            member.stop()
            if self._producer is not None:
                self._producer.close()

    def _bury(self, admin: Admin, prefix: str) -> None:
        """Send former replicas away that have died as members of the group."""
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
            logger.warning("replica %s has died; its partitions go to others", instance_id)
            try:
                if self._config.exactly_once:
                    admin.fence_producers([f"{group}.{instance_id}"])
                admin.remove_members(group, instance_ids=[instance_id], reason="its replica died")
            except UnknownMemberId:
                pass  # another new replica was faster
            except (KafkaError, ConnectionFailed) as error:
                logger.warning("replica %s stays for its session: %s", instance_id, error)


def _is_alive(tag: str) -> bool:
    """Whether Ray has the actor of this replica of the deployment. Serve never restarts one."""
    replica_id = replace(serve.get_replica_context().replica_id, unique_id=tag)
    try:
        ray.get_actor(replica_id.to_full_id_str(), namespace=SERVE_NAMESPACE)
    except ValueError:
        return False
    return True


def _made(given: Function, output: str | None, producer: Producer | None) -> Function:
    """The function as the member calls it. A class is made here: Serve shows why it cannot be."""
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
    """Nothing, {topic: ...}, or ProducerRecords."""
    if returned is None or isinstance(returned, Mapping):
        return True
    return isinstance(returned, list) and all(isinstance(one, ProducerRecord) for one in returned)


def _write(producer: Producer, returned: object) -> None:
    """All of it is acknowledged when this returns, and only then is the batch committed."""
    for future in send_outputs(producer, outputs_of(returned)):
        future.result()
