"""`bradbury.mirror`: mirrors topics of another Kafka or Bradbury cluster into this one.

    bradbury.mirror("flights", "kafka-1:9092", alias="west", continuous=True)

Each record is written exactly once: positions are kept in the target and committed with the records
in one transaction, and a mirror that is run again resumes at them. With exactly_once=False records
are written without transactions, with lower latency, at least once.

Invariants:
    Batches are copied as they are, compressed and undecoded, where a producer may do so (replay).
    Keys, values, headers, timestamps, partitions and their order are the source's.
    Records of aborted transactions are not copied; those of open ones when they are committed.
    One mirror of an alias at a time: another that starts fences the former (its transactional id).
    Records copied from the target are never copied back to it, under any name.

Ray actors can share many partitions (actor_session).

Not here: the loop (mirror_session), records (record_copier), topics (followed_topics).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Unpack

from ...clients.security.security_options import SecurityOptions, given_security
from ..ranges.read_arguments import ALLOW_DATA_LOSS_OF_COMMANDS, read_limits, servers_of
from ..ranges.topic_offsets import Offset
from .mirror_checkpoints import EXCLUDED_GROUPS
from .mirror_session import MirrorSession, run_session
from .mirror_settings import (
    MirrorProgress,
    MirrorSettings,
    addresses_of,
    check_alias,
    check_named_topics,
)
from .mirrored_topics import EXCLUDE, INTERNAL, NameFilter, Policy, texts_of
from .worker_layout import MOST_ACTORS


def mirror(
    topics: str | Sequence[str],
    source: str | Sequence[str],
    *,
    alias: str,
    bootstrap_servers: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = EXCLUDE,
    policy: Policy = "prefix",
    groups: str | Sequence[str] = (),
    sync_groups_interval_s: float = 60.0,
    sync_configs_interval_s: float = 600.0,
    start_offset: Offset = "earliest",
    replication_factor: int = -1,
    fail_on_data_loss: bool = True,
    poll_timeout_ms: int = 120_000,
    commit_records: int = 500_000,
    exactly_once: bool = True,
    continuous: bool = False,
    stop: threading.Event | None = None,
    source_security: SecurityOptions | None = None,
    on_progress: Callable[[MirrorProgress], None] = lambda progress: None,
    actors: int | Literal["auto"] = 0,
    actor_options: Mapping[str, Any] | None = None,
    **security: Unpack[SecurityOptions],
) -> MirrorProgress:
    """Copy new records of the source's topics; returns when those that existed are copied.

    Args:
        topics, exclude: regular expressions that match whole names, as MirrorMaker 2 has them; a
            list, or one text with commas. Internal topics of brokers and mirrors are never copied.
            The default of `exclude` (EXCLUDE) is that of MirrorMaker 2 of Kafka 4.1.
        source: host:port of brokers of the cluster to read from.
        alias: a short name of the source; of letters, digits, "_" and "-".
        bootstrap_servers: of the cluster to write to; None: found as by all clients.
        policy: "prefix": the topic's name here is "<alias>.<name>"; "identity": the same.
        groups: regular expressions, as `topics`, of consumer groups whose offsets are synced every
            `sync_groups_interval_s` seconds and at the end (see mirror_checkpoints).
        sync_configs_interval_s: seconds between syncs of topic configs, which are also synced at
            the start, as by MirrorMaker 2 (see FollowedConfigs); 0: they are copied only when a
            topic is created.
        start_offset: start of partitions that were never mirrored under this alias: "earliest",
            "latest", or as for `read_topic`.
        replication_factor: of topics created in the target; -1: the brokers' default.
        fail_on_data_loss: False: records deleted by retention before they were copied are skipped,
            and a topic that was recreated is copied from its beginning.
        poll_timeout_ms: the mirror fails after this time without a response; a continuous mirror
            resumes if brokers are available again within it.
        commit_records: most records of a transaction, about.
        exactly_once: False: records are visible in the target as soon as they are written; a mirror
            that is killed copies the records of its last seconds again.
        continuous: continue until `stop` is set, or forever, also with new topics and partitions.
        source_security: security_protocol, ssl_* and sasl_* of the source (see SecurityOptions).
        on_progress: called after each transaction.
        actors: number of Ray actors that share the partitions; "auto": one for every eight
            partitions, growing with them; 0: this process alone.
        actor_options: Ray options of the actors: num_cpus, resources, label_selector,
            runtime_env, ...
        security: the same for the cluster to write to. If one of the two is not given,
            BRADBURY_CLIENT_CONFIG in the environment applies to that cluster.

    Raises:
        ValueError, InvalidConfig, TypeError: an argument is invalid, or a topic that is named is
            never copied by default.
        MirrorFailed: no topic matches; all topics would form a cycle; or one would, and has records
            of its own, which would never be copied if it were left out.
        DataLoss: records were deleted before they were copied.
        ProducerFenced: another mirror of this alias has begun.
        ConnectionFailed, RequestTimedOut, KafkaError: no partial transaction is
            committed; a new call resumes.
    """
    check_alias(alias)
    if policy not in ("prefix", "identity"):
        raise ValueError(f"policy is {policy!r}; use prefix or identity")
    if commit_records < 1:
        raise ValueError(f"commit_records={commit_records}: use more than 0")
    wanted = NameFilter(topics, (*INTERNAL, *texts_of(exclude)))
    if not wanted:
        raise ValueError("topics is empty; name at least one, or '.*' for all")
    check_named_topics(wanted)
    if sync_groups_interval_s <= 0:
        raise ValueError(f"sync_groups_interval_s={sync_groups_interval_s}: use more than 0")
    if sync_configs_interval_s < 0:
        raise ValueError(
            f"sync_configs_interval_s={sync_configs_interval_s}: use more than 0, or 0 for never"
        )
    settings = MirrorSettings(
        topics=wanted,
        source=addresses_of(source),
        target=servers_of(bootstrap_servers),
        alias=alias,
        policy=policy,
        groups=NameFilter(groups, EXCLUDED_GROUPS),
        sync_groups_interval_s=sync_groups_interval_s,
        sync_configs_interval_s=sync_configs_interval_s,
        start_offset=start_offset,
        limits=read_limits(
            "read_committed",
            f"bradbury-mirror-{alias}",
            poll_timeout_ms=poll_timeout_ms,
            fail_on_data_loss=fail_on_data_loss,
            allow_data_loss=ALLOW_DATA_LOSS_OF_COMMANDS,
            security=given_security(security),
        ),
        commit_records=commit_records,
        replication_factor=replication_factor,
        source_security=given_security(source_security or {}),
        exactly_once=exactly_once,
    )
    session = _session(settings, actors, actor_options)
    return run_session(session, stop or threading.Event(), on_progress, continuous=continuous)


def _session(
    settings: MirrorSettings,
    actors: int | Literal["auto"],
    actor_options: Mapping[str, Any] | None,
) -> MirrorSession:
    if actors != "auto" and not (isinstance(actors, int) and 0 <= actors <= MOST_ACTORS):
        raise ValueError(f'actors is {actors!r}; use 0 to {MOST_ACTORS}, or "auto"')
    if actors == 0:
        if actor_options:
            raise ValueError("actor_options need actors; set actors, too")
        return MirrorSession(settings)
    from .actor_session import ActorMirrorSession  # which imports Ray

    return ActorMirrorSession(settings, actors, actor_options or {})
