"""A deletion policy of one's own, named by a broker setting."""

from pathlib import Path

import pytest

from bradbury.actors.replication.deletion_policy import load_deletion_policy
from bradbury.protocol.errors import InvalidConfig
from bradbury.storage.log.retention import RETENTION_POLICY, apply_retention
from bradbury.storage.log_config import LogConfig
from bradbury.storage.segments.log_segment import LogSegment
from tests.support.storage.keyed_logs import append, keyed_batch
from tests.support.storage.logs import open_log


class EvenOffsets:
    """Lets go what begins at an even offset."""

    def reason(
        self, segment: LogSegment, config: LogConfig, *, excess_bytes: int, now_ms: int
    ) -> str | None:
        return "even" if segment.base_offset % 2 == 0 else None


class Careless:
    """Answers 'is it old?' with yes or no, and fails once it is asked about offset 2."""

    def reason(
        self, segment: LogSegment, config: LogConfig, *, excess_bytes: int, now_ms: int
    ) -> object:
        if segment.base_offset == 2:
            raise ZeroDivisionError
        return "old" if now_ms == 1 else now_ms > 10


class Unlike:
    """Takes other arguments than a policy is given."""

    def reason(self, segment: LogSegment) -> None:
        """Never called."""


def test_a_policy_decides_on_the_old_segments_but_never_on_uncommitted_ones(tmp_path: Path) -> None:
    policy = load_deletion_policy(f"{EvenOffsets.__module__}:EvenOffsets")
    config = LogConfig(segment_bytes=120, retention_ms=0)
    log = open_log(tmp_path, config=config)
    for _ in range(3):  # segments at 0, 2, 4: of two records each
        append(log, keyed_batch([(b"k", b"v" * 20)] * 2))
    append(log, keyed_batch([(b"k", b"v" * 20)]))  # 6
    append(log, keyed_batch([(b"k", b"v" * 20)] * 2))  # 7: the policy keeps it
    log.local.roll(now_ms=1000)
    deleted = apply_retention(log, 10**12, policy)
    assert [(each.base_offset, each.reason) for each in deleted] == [
        (offset, "even") for offset in (0, 2, 4, 6)
    ]
    assert apply_retention(log, 10**12, policy) == []
    log.local.reconfigure(LogConfig(segment_bytes=120, cleanup_policy="compact"))
    assert apply_retention(log, 10**12, EvenOffsets()) == []


def test_a_policy_that_fails_or_says_yes_or_no_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = load_deletion_policy(f"{Careless.__module__}:Careless")
    log = open_log(tmp_path, config=LogConfig(segment_bytes=120))
    for _ in range(3):  # segments at 0, 2, 4
        append(log, keyed_batch([(b"k", b"v" * 20)] * 2))
    for now_ms, answer in ((5, False), (15, True)):
        assert apply_retention(log, now_ms, policy) == []
        assert f"0 returned {answer}, which is neither a text nor None" in caplog.messages[-1]
    assert [each.base_offset for each in apply_retention(log, 1, policy)] == [0]
    assert "2 raised ZeroDivisionError(); nothing of this log" in caplog.messages[-1]


def test_without_a_name_it_is_kafkas() -> None:
    assert load_deletion_policy("") is RETENTION_POLICY


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nocolon", "must be package.module:Class, not 'nocolon'"),
        ("no.such.module:Policy", "cannot be used: ModuleNotFoundError"),
        ("pathlib:NoSuchClass", "cannot be used: AttributeError"),
        ("pathlib:Path", "it has no method `reason`"),
        ("uuid:UUID", "cannot be used: TypeError"),
        (f"{__name__}:Unlike", "cannot be used: .*; define reason.self, segment, config, "),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(path: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        load_deletion_policy(path)
