"""How often does a voter's mark cost an fsync, and what is it after a loss of power?"""

import pytest

from bradbury.cluster.quorum.voter import LogEnd
from bradbury.controller.voter_files.acknowledged_offset import SYNC_EVERY, AcknowledgedOffset
from bradbury.tests.support.storage.memory_file_system import MemoryFileSystem


class Counted(MemoryFileSystem):
    """Counts fsyncs of files."""

    def __init__(self) -> None:
        super().__init__()
        self.make_directory("/v")
        self.syncs = 0
        self.before = self._count

    def _count(self, operation: str, path: str) -> None:
        self.syncs += operation == "sync" and path.endswith("acknowledged-offset")


def test_it_is_synced_every_few_times_and_not_for_nothing() -> None:
    disk = Counted()
    mark = AcknowledgedOffset(disk, "/v")
    mark.set_durably(LogEnd(1, 0))
    assert disk.syncs == 1
    for offset in range(1, SYNC_EVERY):
        mark.advance(LogEnd(1, offset))
    assert disk.syncs == 1, "each fsync of the log would cost one more"
    mark.advance(LogEnd(1, SYNC_EVERY))
    assert disk.syncs == 2
    mark.sync()
    mark.close()
    assert disk.syncs == 2
    assert AcknowledgedOffset(disk, "/v").read() == LogEnd(1, SYNC_EVERY)


def test_after_a_loss_of_power_it_may_lag_and_is_never_beyond() -> None:
    disk = Counted()
    mark = AcknowledgedOffset(disk, "/v")
    mark.set_durably(LogEnd(1, 0))
    for offset in range(1, SYNC_EVERY + 3):
        mark.advance(LogEnd(1, offset))
    left = disk.crash()
    assert AcknowledgedOffset(left, "/v").read() == LogEnd(1, SYNC_EVERY)
    assert AcknowledgedOffset(disk, "/v").read() == LogEnd(1, SYNC_EVERY + 2)


def test_a_sync_that_fails_is_not_taken_for_one() -> None:
    disk = Counted()
    mark = AcknowledgedOffset(disk, "/v")
    mark.set_durably(LogEnd(1, 0))
    mark.advance(LogEnd(1, 1))
    counted = disk.before

    def fail(operation: str, path: str) -> None:
        if operation == "sync":
            raise OSError(5, "Input/output error")

    disk.before = fail
    with pytest.raises(OSError, match="Input/output error"):
        mark.sync()
    disk.before = counted
    before = disk.syncs
    mark.sync()
    assert disk.syncs == before + 1
    assert AcknowledgedOffset(disk.crash(), "/v").read() == LogEnd(1, 1)
