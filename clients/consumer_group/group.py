"""A consumer group of Ray actors behind one handle: poll it, map a function over it, resize it.

    with bradbury.ConsumerGroup("flights", "delays", actors=3) as group:
        for result in group.map(parse):        # parse: Arrow table -> anything
            store(result)

Invariants:
    The first `map`, `for_each` or `poll` starts the actors; a group runs only one of them.
    Members end with the process that created the group. At `stop`, or the end of `with`, they
    finish their batches, commit and leave the group.

Not here: members (member), supervision of them (members), results (results).
"""

from __future__ import annotations

import random
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import ray

from ...discovery.ray_connection import join_for_clients
from ...protocol.errors import ConnectionFailed, InvalidConfig
from ...protocol.topic_partition import TopicPartition
from ..admin.admin import Admin
from .autoscaler import Autoscaler
from .group_arguments import (
    check_consumer_options,
    check_exactly_once,
    check_no_scaling,
    check_sizes,
    connection_options,
    partitions_of,
    topics_of,
)
from .lag_scaling import DOWNSCALE_DELAY_S, UPSCALE_DELAY_S, ScalingConfig
from .members import Members, WorkerMember
from .processing.batch import Order
from .processing.function import BatchFormat, Function
from .processing.member_config import LANES_PER_WORKER, Guarantee, MemberConfig
from .results import Results
from .status import GroupStatus, MemberStatus

_STATUS_S: Final = 5.0

Offsets = dict[TopicPartition, int]


class ConsumerGroup:
    """Consumer actors that share the partitions of topics. One process holds and uses it.

    Args:
        topics: a name, names, or a compiled pattern that whole names match.
        group: the consumer group; members of other kinds may be in it, too.
        actors: number of members, which share the partitions; the initial one with `max_actors`.
        min_actors, max_actors: with a maximum the group grows and shrinks with its lag, between
            them, and never beyond the number of partitions that lag.
        target_lag: records per member; target_lag_s: maximum age of the oldest unread record, in
            seconds. With both the greater number of members is used.
        upscale_delay_s, downscale_delay_s: time for which the lag must require another size before
            the group is resized.
        workers: number of actors that only process, shared among the members; it may exceed the
            number of partitions. 0: each member processes by itself, in its own thread.
        guarantee: "at_least_once" commits finished batches; "at_most_once" commits before a batch
            is processed.
        exactly_once: output of the `for_each` function for other topics is written in one
            transaction with the offsets it came from; only committed records are read. It returns
            {topic: table or list}, as Producer.send_batch takes it, ProducerRecords, or None.
        order: "key" or "partition": records with the same key, or of the same partition, are
            processed one after another, in the order of the log. None: any worker processes any
            batch. Without workers the order is always by partition.
        batch_records: maximum records of a batch.
        max_in_flight: maximum batches per worker, including the one it processes, until their
            results are handled; beyond that nothing is read (back-pressure).
        max_attempts: number of workers that may end while processing a batch before it fails;
            and, with retry_exceptions, number of times the function may raise.
        revoke_timeout_ms: time that a rebalance waits for batches in progress. Those that take
            longer are processed again by the partition's next owner, if that is another member.
        restart_grace_ms: time that a member that died has for its restart, before it is removed
            from the group.
        instance_prefix: members are static ones named `<prefix>-0`, ...; by default the group's
            name. Two ConsumerGroups in one group need different prefixes.
        actor_options, worker_options: Ray's: num_cpus, resources, label_selector, runtime_env, ...
        producer_options: with exactly_once, Producer's: compression_type, partitioner, ...
        consumer_options: Consumer's: bootstrap, auto_offset_reset, session_timeout_ms, ...; and
            security_protocol, ssl_* and sasl_*, which are for the group's producers, too.

    Raises:
        InvalidConfig: settings that contradict one another, or that are unknown.
    """

    def __init__(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        group: str,
        actors: int | None = None,
        *,
        min_actors: int = 1,
        max_actors: int | None = None,
        target_lag: int | None = None,
        target_lag_s: float | None = None,
        upscale_delay_s: float = UPSCALE_DELAY_S,
        downscale_delay_s: float = DOWNSCALE_DELAY_S,
        workers: int = 0,
        guarantee: Guarantee = "at_least_once",
        exactly_once: bool = False,
        order: Order = None,
        batch_records: int = 10_000,
        max_in_flight: int = 2,
        max_attempts: int = 3,
        retry_exceptions: bool = False,
        revoke_timeout_ms: int = 10_000,
        restart_grace_ms: int = 15_000,
        instance_prefix: str | None = None,
        actor_options: Mapping[str, Any] | None = None,
        worker_options: Mapping[str, Any] | None = None,
        producer_options: Mapping[str, Any] | None = None,
        **consumer_options: Any,
    ) -> None:
        check_consumer_options(consumer_options, guarantee, order)
        if exactly_once:
            check_exactly_once(guarantee, producer_options or {})
            consumer_options = {"isolation_level": "read_committed", **consumer_options}
        elif producer_options:
            raise InvalidConfig("producer_options need exactly_once=True, which writes")
        for name, value in (
            ("batch_records", batch_records),
            ("max_in_flight", max_in_flight),
            ("max_attempts", max_attempts),
        ):
            if value < 1:
                raise InvalidConfig(f"{name}={value}: use at least 1")
        max_poll_interval_ms = consumer_options.get("max_poll_interval_ms", 300_000)
        if revoke_timeout_ms >= max_poll_interval_ms:
            raise InvalidConfig(
                f"revoke_timeout_ms={revoke_timeout_ms} must be less than "
                f"max_poll_interval_ms={max_poll_interval_ms}"
            )
        self._scaling: ScalingConfig | None = None
        if max_actors is not None:
            self._scaling = ScalingConfig(
                min_actors=min_actors,
                max_actors=max_actors,
                target_lag=target_lag,
                target_lag_s=target_lag_s,
                upscale_delay_s=upscale_delay_s,
                downscale_delay_s=downscale_delay_s,
            )
            cooperative = {"partition_assignment_strategy": "cooperative-sticky"}
            consumer_options = {**cooperative, **consumer_options}
            check_sizes(max_actors, workers)
        else:
            check_no_scaling(
                min_actors, target_lag, target_lag_s, (upscale_delay_s, downscale_delay_s)
            )
        if worker_options and not workers:
            raise InvalidConfig(
                "worker_options are for workers: give their number, or use actor_options for the "
                "members"
            )
        if actors is None:
            actors = min_actors
        check_sizes(actors, workers)
        join_for_clients(consumer_options.get("bootstrap"), consumer_options.get("namespace"))
        self.group = group
        self._actors = actors
        self._workers = workers
        self._restart_grace_ms = restart_grace_ms
        self._actor_options = dict(actor_options or {})
        self._member_config = MemberConfig(
            topics=topics_of(topics),
            group=group,
            instance_id=instance_prefix or group,
            guarantee="exactly_once" if exactly_once else guarantee,
            order=order,
            lanes=max(1, workers) * LANES_PER_WORKER,
            batch_records=batch_records,
            max_in_flight=max_in_flight,
            max_attempts=max_attempts,
            retry_exceptions=retry_exceptions,
            revoke_timeout_ms=revoke_timeout_ms,
            worker_options=dict(worker_options or {}),
            consumer_options=consumer_options,
            producer_options=dict(producer_options or {}),
        )
        """Configuration that all members share; instance_id: the prefix of theirs."""
        self._members: Members | None = None
        self._results: Results | None = None
        self._polls: Polls | None = None
        self._autoscaler: Autoscaler | None = None
        self._resizing = threading.Lock()
        self._leaving: list[WorkerMember] = []
        self._stopped = False

    # --- processing --------------------------------------------------------------------------

    def map(
        self,
        fn: Callable[..., Any],
        *,
        batch_format: BatchFormat = "arrow",
        fn_args: Iterable[Any] = (),
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        stop_at_end: bool = False,
    ) -> Results:
        """Call `fn` with every batch, and iterate over the results, in any order of batches.

        A batch is committed when its result was handled: when the loop requests the next one.

        Args:
            fn: a function, or a class: created once in each actor that processes, then called.
            batch_format: "arrow": fn gets a table; "records": a list of ConsumerRecord.
            fn_args, fn_kwargs: passed with each batch.
            fn_constructor_args, fn_constructor_kwargs: passed to the constructor of a class.
            stop_at_end: end when all records in the topics at the start are committed; by default
                the results end when the group is stopped.

        Raises:
            RuntimeError: the group runs a function or polls already.
        """
        function = Function.of(
            fn, batch_format, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs
        )
        return self._begin(function, deliver=True, stop_at_end=stop_at_end)

    def for_each(
        self,
        fn: Callable[..., Any],
        *,
        batch_format: BatchFormat = "arrow",
        fn_args: Iterable[Any] = (),
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        stop_at_end: bool = False,
    ) -> Run:
        """Call `fn` with every batch, without results: a batch is done when the function returns.

        With exactly_once it is done when the function's output is committed. It runs in the
        background; `wait` for its end, and for errors. Arguments are those of `map`.
        """
        function = Function.of(
            fn, batch_format, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs
        )
        return Run(self._begin(function, deliver=False, stop_at_end=stop_at_end))

    @property
    def poll(self) -> Polls:
        """Polls of members: `group.poll.remote(timeout_ms=1000)` is a reference to the next batch.

        The table is empty if the member has no records within the time. `group.poll` can be passed
        to tasks. Polled batches are committed by `group.commit.remote()`.
        """
        if self._polls is None:
            self._begin(None, deliver=True, stop_at_end=False, results=False)
            self._polls = Polls([])
        self._polls.actors[:] = [member.actor for member in self._all()]
        return self._polls

    @property
    def commit(self) -> Commits:
        """Commits of polled batches: `ray.get(group.commit.remote())`."""
        if self._polls is None:
            raise RuntimeError(
                "commit is for polled tables: call poll first; map and for_each commit"
            )
        return Commits([member.actor for member in self._all()])

    # --- while it runs -----------------------------------------------------------------------

    def resize(self, actors: int | None = None, *, workers: int | None = None) -> None:
        """Change the number of members, with a rebalance, or of workers, without one.

        Surplus members finish their batches, commit and leave before this returns.
        """
        with self._resizing:
            self._resize(actors, workers)

    @property
    def size(self) -> int:
        """Number of members, now or at the start."""
        return self._actors

    def _resize(self, actors: int | None, workers: int | None) -> None:
        wanted = self._actors if actors is None else actors
        workers = self._workers if workers is None else workers
        check_sizes(wanted, workers)
        if bool(workers) != bool(self._workers):
            raise InvalidConfig(
                f"workers={workers}: a group that started with {self._workers} workers cannot "
                "change between none and some; make another group"
            )
        self._actors, self._workers = wanted, workers
        if self._members is None:
            return
        leaving = self._members.resize(wanted)
        for member in self._members.all():
            member.actor.resize.remote(self._configure(member.number).workers)
        if self._polls is not None:
            self._polls.actors[:] = [member.actor for member in self._members.all()]
        # Wait for their unhandled results, which would be processed again; but not in the thread
        # that handles them.
        results = self._results
        settle = self._polls is None and self._member_config.deliver
        settle = settle and not (results is None or results.is_iterated_here())
        self._leaving = leaving
        self._members.stop(leaving, None, settle=settle)
        self._leaving = []
        for member in leaving:
            if self._results is not None:
                self._results.on_gone(member)

    def status(self) -> GroupStatus:
        """Members, partitions, lag and records per second; print it with rich for a table."""
        members = self._all()
        asked = {member.actor.status.remote(): member for member in members}
        done = ray.wait(list(asked), num_returns=len(asked), timeout=_STATUS_S)[0] if asked else []
        found = [_status_of(member, ref if ref in done else None) for ref, member in asked.items()]
        keys = [one.topic_partition for member in found for one in member.partitions]
        with self._admin() as admin:
            ends = admin.list_offsets(keys) if keys else {}
        events = () if self._autoscaler is None else tuple(self._autoscaler.events)
        return GroupStatus(self.group, tuple(found), events).with_ends(
            {key: at.offset for key, at in ends.items()}
        )

    def stop(self, timeout_s: float | None = None) -> list[str]:
        """Finish batches in progress, commit, leave the group, and end the actors. Idempotent.

        Args:
            timeout_s: maximum time for functions in progress; None: no limit. Interrupted batches
                are not committed.

        Returns the names of members that were too slow, or could not be reached.
        """
        members, self._stopped = self._members, True
        if members is None:
            return []
        if self._autoscaler is not None:
            for member in self._leaving:
                member.actor.stop.remote(timeout_s)  # and do not wait for results to be handled
            self._autoscaler.stop(timeout_s)
        self._members = None
        stopping = members.resize(0)
        late = members.stop(stopping, timeout_s)
        for member in stopping:
            if self._results is not None:
                self._results.on_gone(member)
        self._finalizer()
        return late

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # --- internals ---------------------------------------------------------------------------

    def _begin(
        self,
        function: Function | None,
        *,
        deliver: bool,
        stop_at_end: bool,
        results: bool = True,
    ) -> Results:
        if self._member_config.guarantee == "exactly_once" and (deliver or function is None):
            raise InvalidConfig(
                "exactly_once=True needs for_each: results in this process are not in the "
                "transaction"
            )
        if self._members is not None or self._stopped:
            raise RuntimeError(
                "the group runs a map, for_each or poll already: make another ConsumerGroup"
            )
        ends, committed = self._list_offsets(stop_at_end=stop_at_end)
        self._member_config = replace(self._member_config, function=function, deliver=deliver)
        weak = weakref.ref(self)  # the thread that watches must not keep a dropped group alive
        members = Members(
            lambda number: _alive(weak)._configure(number),
            options=self._actor_options,
            grace_s=self._restart_grace_ms / 1000,
            remove=lambda instance_id: _alive(weak)._remove_from_group(instance_id),
        )
        self._members = members
        self._finalizer = weakref.finalize(self, members.close)
        members.resize(self._actors)
        found = Results(
            members,
            owner=self,
            by_reference=self._workers > 0,
            ends=ends,
            committed=committed,
        )
        self._results = found
        if self._scaling is not None:
            self._autoscaler = Autoscaler(
                self._scaling,
                weak,
                self._admin,
                partial(partitions_of, self._member_config.topics),
                starts_at_end=self._member_config.consumer_options.get("auto_offset_reset")
                != "earliest",
            )
        return found

    def _configure(self, number: int) -> MemberConfig:
        each, more = divmod(self._workers, self._actors)
        return replace(
            self._member_config,
            instance_id=f"{self._member_config.instance_id}-{number}",
            order=self._member_config.order if self._workers else None,
            workers=each + (1 if number < more else 0),
        )

    def _list_offsets(self, *, stop_at_end: bool) -> tuple[Offsets | None, Offsets | None]:
        """Return the end offsets of the topics, and the offsets at which the group starts to read.

        Both are None unless `stop_at_end`.

        Raises:
            UnknownTopicOrPartition: there is no such topic; raised here, before actors start.
        """
        with self._admin() as admin:
            keys = partitions_of(self._member_config.topics, admin)
            if not stop_at_end:
                return None, None
            isolation = self._member_config.consumer_options.get(
                "isolation_level", "read_uncommitted"
            )
            ends = admin.list_offsets(keys, isolation_level=isolation)
            starts = admin.list_offsets(keys, "earliest")
            stored = admin.group_offsets(self.group)
        done = {key: at.offset for key, at in starts.items()}
        for key in keys:
            if key in stored:
                done[key] = stored[key].offset
            elif (
                self._member_config.consumer_options.get("auto_offset_reset", "latest") == "latest"
            ):
                done[key] = ends[key].offset  # existing records are not read
        return {key: at.offset for key, at in ends.items()}, done

    def _remove_from_group(self, instance_id: str) -> None:
        with self._admin() as admin:
            admin.remove_members(self.group, instance_ids=[instance_id], reason="its actor died")

    def _admin(self) -> Admin:
        return Admin(**connection_options(self._member_config.consumer_options))

    def _all(self) -> list[WorkerMember]:
        return [] if self._members is None else self._members.all()


def _alive(group: weakref.ref[ConsumerGroup]) -> ConsumerGroup:
    found = group()
    if found is None:
        raise ConnectionFailed("the group was garbage-collected, and its actors with it")
    return found


class Run:
    """Handle of a running ConsumerGroup.for_each."""

    def __init__(self, results: Results) -> None:
        self._results = results

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when the group was stopped or, with stop_at_end, has reached the end.

        Raises:
            BatchFailed: a batch failed. Waiting again marks it as handled, and commits it.
            TimeoutError: it has not ended within `timeout_s`.
            KafkaError, ConnectionFailed: a member cannot continue.
        """
        while self._results.next(timeout_s) is not None:
            pass


class Polls:
    """Polls the members in turn. Passed to a task, it has the members of that time."""

    def __init__(self, actors: list[Any]) -> None:
        self.actors = actors
        self._turn = random.randrange(1_000)  # each task begins with another member

    def __reduce__(self) -> tuple[Any, ...]:
        return Polls, (self.actors,)

    def remote(self, timeout_ms: int = 1000) -> Any:
        """Poll the next member; returns a reference to a table."""
        self._turn += 1
        return self.actors[self._turn % len(self.actors)].poll.remote(timeout_ms)


class Commits:
    def __init__(self, actors: list[Any]) -> None:
        self._actors = actors

    def remote(self) -> list[Any]:
        """Commit polled batches in all members; returns a reference for each."""
        return [actor.commit.remote() for actor in self._actors]


def _status_of(member: WorkerMember, ref: Any) -> MemberStatus:
    if ref is not None:
        try:
            found: MemberStatus = ray.get(ref)
        except ray.exceptions.RayActorError:
            pass
        else:
            state = found.state if member.state == "running" else member.state
            return replace(found, state=state, restarts=member.restarts)
    state = "restarting" if member.state == "running" else member.state
    return MemberStatus(instance_id=member.instance_id, state=state, restarts=member.restarts)
