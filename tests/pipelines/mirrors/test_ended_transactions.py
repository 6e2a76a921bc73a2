"""What does a mirror do, or a worker of one, when somebody else has ended its transaction?"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

import bradbury
from bradbury.pipelines.mirrors import record_copier, worker_layout
from bradbury.pipelines.mirrors.mirror_session import MirrorSession
from bradbury.pipelines.mirrors.mirror_settings import MirrorSettings
from bradbury.pipelines.mirrors.mirror_worker import MirrorPlan, MirrorWorker
from bradbury.pipelines.mirrors.mirrored_topics import NameFilter
from bradbury.pipelines.mirrors.record_copier import RecordCopier
from bradbury.pipelines.mirrors.worker_layout import lay_out, worker_id
from bradbury.pipelines.ranges.read_arguments import read_limits
from bradbury.protocol.error_code import ErrorCode
from bradbury.protocol.errors import ProducerFenced
from bradbury.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from bradbury.tests.support.wire.raw_client import RawClient
from tests.pipelines.mirrors.mirror_scene import send, values


@dataclass
class Leader:
    """A mirror's session that has one worker, and what this worker copies."""

    settings: MirrorSettings
    session: MirrorSession
    worker: MirrorWorker
    plan: MirrorPlan

    @property
    def workers_id(self) -> str:
        return worker_id(self.settings, self.worker._epoch, 0)


@pytest.fixture(params=[True, False], ids=["exactly_once", "at_least_once"])
def leader(
    source: bradbury.LocalCluster,
    bootstrap: str,
    topic: str,
    alias: str,
    request: pytest.FixtureRequest,
) -> Iterator[Leader]:
    settings = MirrorSettings(
        topics=NameFilter(topic, ()),
        source=source.bootstrap_servers,
        target=bootstrap,
        alias=alias,
        policy="prefix",
        groups=NameFilter((), ()),
        sync_groups_interval_s=60.0,
        start_offset="earliest",
        limits=read_limits("read_committed", alias, poll_timeout_ms=60_000, fail_on_data_loss=True),
        commit_records=100,
        replication_factor=1,
        source_security=None,
        exactly_once=request.param,
    )
    with MirrorSession(settings) as session:
        session.copier.leads = True
        session.topics.look(must_find=True)
        epoch = lay_out(settings, session.target, session.producer, session.cluster, 1).epoch
        worker = MirrorWorker(settings.alias, session.cluster, epoch, 0, 1)
        copier = session.copier
        plan = MirrorPlan(dict(copier.targets), dict(copier.partitions), copier.commits)
        yield Leader(settings, session, worker, plan)
        worker.close()


def end_transaction(servers: str, transactional_id: str) -> None:
    """Abort it as its time-out does: its producer's epoch is raised, and nobody has the next."""
    with RawClient(servers) as client:
        answer = client.call(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000),
            InitProducerIdResponse,
            4,
        )
    assert ErrorCode(answer.error_code) is ErrorCode.CONCURRENT_TRANSACTIONS
    deadline = time.monotonic() + 30
    with bradbury.Admin(servers) as admin:
        while admin.describe_transactions([transactional_id])[0].state != "CompleteAbort":
            assert time.monotonic() < deadline


def before_one_is_committed(
    monkeypatch: pytest.MonkeyPatch, number: int, do: Callable[[], None]
) -> list[RecordCopier]:
    """Of the transactions with positions the `number`th; whose they were is returned."""
    write = RecordCopier._write_positions
    seen: list[RecordCopier] = []

    def watched(copier: RecordCopier, *arguments: Any) -> None:
        write(copier, *arguments)
        seen.append(copier)
        if len(seen) == number:
            copier._producer.flush(30)
            do()

    monkeypatch.setattr(RecordCopier, "_write_positions", watched)
    monkeypatch.setattr(record_copier, "POSITIONS_SECONDS", 0.0)
    return seen


def test_it_begins_anew_when_its_transaction_has_been_ended(
    source: bradbury.LocalCluster,
    bootstrap: str,
    topic: str,
    leader: Leader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send(source.bootstrap_servers, topic, range(300))
    seen = before_one_is_committed(
        monkeypatch, 2, lambda: end_transaction(bootstrap, leader.workers_id)
    )
    report = leader.worker.turn(leader.settings, leader.plan, math.inf)
    assert seen[1] is not seen[-1]
    assert (report.progress.records, report.is_done) == (300, True)
    assert values(bootstrap, f"{leader.settings.alias}.{topic}") == list(range(300))


def test_it_ends_when_another_mirror_is_about_to_fence_it(
    source: bradbury.LocalCluster,
    bootstrap: str,
    topic: str,
    leader: Leader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its transaction is aborted by then, and nobody has its id yet."""
    session = leader.session

    def fence_halfway(transactional_ids: Sequence[str], settings: MirrorSettings) -> None:
        for one in transactional_ids:
            end_transaction(settings.target, one)

    def begin_another() -> None:
        lay_out(leader.settings, session.target, session.producer, session.cluster, 1)

    monkeypatch.setattr(worker_layout, "_fence", fence_halfway)
    send(source.bootstrap_servers, topic, range(300))
    before_one_is_committed(monkeypatch, 2, begin_another)
    with pytest.raises(ProducerFenced, match="another mirror"):
        leader.worker.turn(leader.settings, leader.plan, math.inf)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_mirror_without_workers_says_that_another_one_has_begun(
    source: bradbury.LocalCluster,
    bootstrap: str,
    topic: str,
    alias: str,
    exactly_once: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the other one, which has had the transaction aborted, has no epoch yet."""
    send(source.bootstrap_servers, topic, range(300))
    before_one_is_committed(
        monkeypatch, 2, lambda: end_transaction(bootstrap, f"bradbury-mirror-{alias}")
    )
    with pytest.raises(ProducerFenced, match="another mirror of this alias has begun"):
        bradbury.mirror(
            topic,
            source.bootstrap_servers,
            alias=alias,
            bootstrap_servers=bootstrap,
            commit_records=100,
            exactly_once=exactly_once,
        )


def test_a_worker_goes_on_by_a_new_plan_when_all_of_a_recreated_topic_was_aborted(
    source: bradbury.LocalCluster, bootstrap: str, topic: str, leader: Leader
) -> None:
    """Nothing of it is in the target yet, so there is nothing by which to translate offsets."""
    worker, limits = leader.worker, replace(leader.settings.limits, fail_on_data_loss=False)
    settings = replace(leader.settings, limits=limits)
    send(source.bootstrap_servers, topic, range(30))
    assert worker.turn(settings, leader.plan, math.inf).progress.records == 30
    with source.admin() as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, 3)
    assert worker.turn(settings, leader.plan, math.inf).progress.records == 0
    with bradbury.Producer(source.bootstrap_servers, transactional_id=f"of-{topic}") as producer:
        producer.begin()
        for partition in range(3):
            producer.send(topic, b"aborted", partition=partition).result(60)
        producer.abort()
    assert worker.turn(settings, leader.plan, math.inf).progress.records == 0
    send(source.bootstrap_servers, topic, range(30, 60))
    again = replace(leader.plan, revision=leader.plan.revision + 1)
    assert worker.turn(settings, again, math.inf).progress.records == 30
    assert values(bootstrap, f"{leader.settings.alias}.{topic}") == list(range(60))
