"""What do offsets mean that a log holds as parts of transactions? (KIP-98, KIP-447)

We do not write them yet, but a log may hold them: one that Apache Kafka wrote.
"""

from bradbury.groups.group_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
    TransactionalOffset,
    TransactionEnd,
)
from bradbury.protocol.error_code import ErrorCode
from bradbury.tests.support.groups.group_driver import START_MS, GroupDriver

DAY_MS = 24 * 60 * 60 * 1000


def offset(value: int | None, partition: int = 0) -> OffsetRecord:
    stored = None if value is None else OffsetCommitValue(offset=value, commit_timestamp=START_MS)
    return OffsetRecord(OffsetCommitKey(group="orders", topic="t", partition=partition), stored)


def log(*entries: object) -> GroupDriver:
    driver = GroupDriver()
    for entry in entries:
        driver.coordinator.apply(entry)  # type: ignore[arg-type]
    return driver


def test_they_count_when_the_transaction_is_committed() -> None:
    before = log(TransactionalOffset(7, offset(5)))
    assert before.all_offsets() == {}
    after = log(TransactionalOffset(7, offset(5)), TransactionEnd(7, is_commit=True))
    assert after.all_offsets() == {("t", 0): 5}


def test_they_vanish_when_it_is_aborted_and_with_them_a_group_that_had_nothing_else() -> None:
    driver = log(TransactionalOffset(7, offset(5)))
    assert driver.state == "Empty"
    driver = log(TransactionalOffset(7, offset(5)), TransactionEnd(7, is_commit=False))
    assert (driver.state, driver.all_offsets()) == ("none", {})


def test_a_reader_that_wants_stable_offsets_must_wait_and_others_see_the_former_one() -> None:
    driver = log(offset(3), TransactionalOffset(7, offset(5)))
    waits = driver.fetch("t", 0, require_stable=True)
    assert (waits.error_code, waits.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert driver.fetch("t", 0).committed_offset == 3
    assert driver.fetch("t", 1, require_stable=True).error_code == 0


def test_a_plain_commit_behind_it_in_the_log_outlives_the_transaction() -> None:
    """The order in the log decides, not the order of the markers."""
    driver = log(TransactionalOffset(7, offset(5)), offset(6), TransactionEnd(7, is_commit=True))
    assert driver.all_offsets() == {("t", 0): 6}
    driver = log(offset(6), TransactionalOffset(7, offset(5)), TransactionEnd(7, is_commit=True))
    assert driver.all_offsets() == {("t", 0): 5}


def test_transactions_of_two_producers_end_on_their_own() -> None:
    driver = log(
        TransactionalOffset(7, offset(5)),
        TransactionalOffset(8, offset(6, partition=1)),
        TransactionEnd(8, is_commit=True),
    )
    assert driver.all_offsets() == {("t", 1): 6}
    assert driver.fetch("t", 0, require_stable=True).error_code != 0
    assert driver.fetch("t", 1, require_stable=True).error_code == 0


def test_a_deletion_ends_what_is_pending_for_good() -> None:
    driver = log(
        offset(1),
        TransactionalOffset(7, offset(5)),
        offset(None),
        TransactionEnd(7, is_commit=True),
    )
    assert driver.all_offsets() == {}


def test_deleting_the_group_or_the_offset_covers_what_is_pending() -> None:
    driver = log(TransactionalOffset(7, offset(5)))
    driver.hold_commits = True
    driver.delete_offsets(("t", 0))
    assert [record.key.partition for record in driver.uncommitted[0].records] == [0]
    driver = log(TransactionalOffset(7, offset(5)))
    driver.hold_commits = True
    driver.delete("orders")
    assert [record.key.partition for record in driver.uncommitted[0].records] == [0]


def test_what_is_pending_does_not_expire_and_keeps_its_group() -> None:
    driver = log(offset(1), TransactionalOffset(7, offset(5)))
    driver.advance(30 * DAY_MS)
    assert driver.all_offsets() == {("t", 0): 1}
    driver.coordinator.apply(TransactionEnd(7, is_commit=False))
    driver.advance(DAY_MS)
    assert driver.state == "none"
