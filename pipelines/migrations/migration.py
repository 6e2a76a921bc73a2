"""`bradbury.Migration`: moves a cluster's topics and groups from Kafka to Bradbury, or back.

    move = bradbury.Migration("kafka-1:9092")
    move.follow(stop=stop)        # copies, and follows new records
    move.status().state           # "in step"; then stop the producers and consumers
    move.cut_over()               # then start them on the target

Each of these calls may run in another process. All state is in the target. The way back is the same
with the clusters swapped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Unpack

from ...clients.admin.admin import Admin
from ...clients.security.security_options import SecurityOptions, as_given, given_security
from ...protocol.errors import ProducerFenced
from ..mirrors.mirror_session import run_session
from ..mirrors.mirror_settings import (
    MirrorFailed,
    MirrorProgress,
    MirrorSettings,
    addresses_of,
    check_named_topics,
)
from ..mirrors.mirrored_topics import INTERNAL, NameFilter
from ..ranges.read_arguments import ALLOW_DATA_LOSS_OF_COMMANDS, read_limits, servers_of
from .cut_over import LOOK_SECONDS, CutOver, cut_over, wait_until_quiet
from .migration_notes import MigrationNote, migration_alias
from .migration_session import BothWays, MigrationSession, now_ms, read_both_ways
from .migration_status import MigrationStatus, read_status
from .verification import PartitionCheck
from .verifier import Verifier

EXCLUDE_GROUPS: Final = ("console-consumer-.*", "__.*")
POLL_TIMEOUT_MS: Final = 120_000
COMMIT_RECORDS: Final = 500_000
HAND_OVER_SECONDS: Final = 15.0
"""Most seconds from the fencing of the following process by a cut-over to the cut-over's note."""

Names = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class _Opened:
    source: Admin
    target: Admin
    settings: MirrorSettings
    note: MigrationNote
    ways: BothWays


class Migration:
    """A migration from one cluster to another. Nothing stays open between calls.

    Args:
        source: host:port of brokers of the cluster to move from.
        bootstrap_servers: of the cluster to move to; None: found as by all clients.
        topics, exclude, groups, exclude_groups: regular expressions that match whole names; a list,
            or one text with commas. None: those given when the migration began, by default all.
                Internal topics are never moved.
        replication_factor: of topics created in the target; -1: the brokers' default.
        without_configs: topic configs that are not copied, as the target does not support them;
            None: those given when the migration began.
        fail_on_data_loss: False: records deleted by retention before they were copied are skipped.
        sync_groups_interval_s: seconds between syncs of group offsets while it follows.
        source_security: security_protocol, ssl_* and sasl_* of the source (see SecurityOptions).
        security: the same for the target.

    Raises:
        ValueError, InvalidConfig, TypeError: an argument is invalid.
    """

    def __init__(
        self,
        source: str | Sequence[str],
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        topics: Names | None = None,
        exclude: Names | None = None,
        groups: Names | None = None,
        exclude_groups: Names | None = None,
        replication_factor: int = -1,
        without_configs: Names | None = None,
        fail_on_data_loss: bool = True,
        sync_groups_interval_s: float = 10.0,
        source_security: SecurityOptions | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        if sync_groups_interval_s <= 0:
            raise ValueError(f"sync_groups_interval_s={sync_groups_interval_s}: use more than 0")
        self._source = addresses_of(source)
        self._target = servers_of(bootstrap_servers)
        self._given = (
            _patterns(topics),
            _with(INTERNAL, exclude),
            _patterns(groups),
            _with(EXCLUDE_GROUPS, exclude_groups),
            _patterns(without_configs),
        )
        for wanted in self._given[:4]:
            NameFilter(wanted or (), ())  # raises now for an invalid regular expression
        if self._given[0] == ():
            raise ValueError("topics is empty; name at least one, or '.*' for all")
        check_named_topics(NameFilter(self._given[0] or (), INTERNAL))
        self._replication_factor = replication_factor
        self._fail_on_data_loss = fail_on_data_loss
        self._sync_groups_interval_s = sync_groups_interval_s
        self._source_security = given_security(source_security or {})
        self._security = given_security(security)

    def follow(
        self,
        *,
        continuous: bool = True,
        stop: threading.Event | None = None,
        on_progress: Callable[[MirrorProgress], None] = lambda progress: None,
    ) -> MirrorProgress:
        """Copy, and follow new records until `stop` is set or a cut-over has begun.

        continuous: False: return when all records that existed at the call are copied.

        Raises:
            MirrorFailed: no topic matches; a topic of the target has records of its own; the
                migration is cut over already, or was reversed; another process follows now.
            DataLoss: records were deleted before they were copied.
            ConnectionFailed, RequestTimedOut, KafkaError: a new call continues.
        """
        with self._opened() as opened:
            settings, wanted = opened.settings, opened.note
        session = MigrationSession(settings, wanted)
        stopped = stop or threading.Event()
        try:
            return run_session(session, stopped, on_progress, continuous=continuous)
        except ProducerFenced:
            if self._is_handed_over():
                return session.progress
            raise MirrorFailed(
                "this process was fenced: another `bradbury migrate` of this cluster has started"
            ) from None

    def _is_handed_over(self) -> bool:
        """Whether a cut-over has fenced this process, which is in its note right after that."""
        deadline = time.monotonic() + HAND_OVER_SECONDS
        while True:
            with self._opened() as opened:
                note = opened.ways.note
            if note is not None and not note.is_following:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)

    def status(self) -> MigrationStatus:
        """Progress of the migration.

        Raises:
            MirrorFailed: source and target are the same cluster.
            ConnectionFailed, KafkaError: as Admin.
        """
        with self._opened() as opened:
            settings = opened.settings
            return read_status(
                opened.ways, opened.source, opened.target, settings.topics, settings.groups
            )

    def verify(
        self,
        *,
        again: bool = False,
        on_check: Callable[[PartitionCheck], None] = lambda check: None,
        on_records: Callable[[int], None] = lambda records: None,
    ) -> list[PartitionCheck]:
        """Compare both sides, partition by partition; with `again` also what was compared before.

        Raises:
            MirrorFailed: the migration has not begun.
            ConnectionFailed, RequestTimedOut, KafkaError: reading failed.
        """
        with self._opened() as opened:
            verifier = Verifier(opened.settings, opened.source, opened.target)
            return verifier.verify(again=again, on_check=on_check, on_records=on_records)

    def cut_over(
        self,
        *,
        quiet_s: float = 3.0,
        timeout_s: float = 60.0,
        allow_live_groups: bool = False,
        verify: bool = True,
        on_progress: Callable[[MirrorProgress], None] = lambda progress: None,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> CutOver:
        """Switch to the target; a second call copies records that arrived in the source later.

        Args:
            quiet_s: seconds for which the source must be idle.
            timeout_s: most seconds to wait for that.
            allow_live_groups: whether groups may have members in the source.
            verify: whether to compare both sides first, except what was compared before.
            on_progress, on_step: called with progress and with the name of each step.

        Raises:
            MirrorFailed: it has not begun, or the source is not idle. Nothing was changed.
            ConnectionFailed, RequestTimedOut, KafkaError: a new call continues.
        """
        with self._opened() as opened:
            settings, wanted = opened.settings, opened.note
            note = opened.ways.note
            if note is None or opened.ways.is_turned_back:
                raise MirrorFailed(
                    f"no migration from {self._source} is in progress; start one: bradbury migrate "
                    f"--from {self._source} --bootstrap {self._target}"
                )
            wait_until_quiet(
                opened.source,
                settings.topics,
                None if allow_live_groups or note.is_cut_over else settings.groups,
                quiet_s=quiet_s,
                timeout_s=timeout_s,
                on_wait=on_step,
            )
        return cut_over(
            settings,
            wanted,
            is_late=note.is_cut_over,
            verify=verify,
            on_progress=on_progress,
            on_step=on_step,
        )

    @contextmanager
    def _opened(self) -> Iterator[_Opened]:
        with (
            Admin(self._source, **as_given(self._source_security)) as source,
            Admin(self._target, **as_given(self._security)) as target,
        ):
            settings = self._settings("unknown", MigrationNote.begun(self._patterns(None)))
            ways = read_both_ways(settings, source, target)
            if ways.cluster == ways.target_cluster:
                raise MirrorFailed(
                    f"{self._source} and {self._target} are one cluster; --from must be another"
                )
            note = MigrationNote.begun(self._patterns(ways.note), at=now_ms())
            yield _Opened(source, target, self._settings(ways.cluster, note), note, ways)

    def _patterns(self, known: MigrationNote | None) -> list[tuple[str, ...]]:
        """Patterns that were given, else those of the migration's note, else the defaults."""
        usual = [(".*",), INTERNAL, (".*",), EXCLUDE_GROUPS, ()]
        if known is not None:
            usual = [known.topics, known.exclude, known.groups, known.exclude_groups]
            usual.append(known.without_configs)
        return [
            other if given is None else given
            for given, other in zip(self._given, usual, strict=True)
        ]

    def _settings(self, cluster: str, note: MigrationNote) -> MirrorSettings:
        alias = migration_alias(cluster)
        return MirrorSettings(
            topics=NameFilter(note.topics, note.exclude),
            source=self._source,
            target=self._target,
            alias=alias,
            policy="identity",
            groups=NameFilter(note.groups, note.exclude_groups),
            sync_groups_interval_s=self._sync_groups_interval_s,
            start_offset="earliest",
            limits=read_limits(
                "read_committed",
                f"bradbury-{alias}",
                poll_timeout_ms=POLL_TIMEOUT_MS,
                fail_on_data_loss=self._fail_on_data_loss,
                allow_data_loss=ALLOW_DATA_LOSS_OF_COMMANDS,
                security=self._security,
            ),
            commit_records=COMMIT_RECORDS,
            replication_factor=self._replication_factor,
            source_security=self._source_security,
            without_configs=frozenset(note.without_configs),
        )


def _with(always: tuple[str, ...], given: Names | None) -> tuple[str, ...] | None:
    patterns = _patterns(given)
    return None if patterns is None else (*always, *patterns)


def _patterns(given: Names | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    texts = given.split(",") if isinstance(given, str) else given
    return tuple(text.strip() for text in texts if text.strip())
