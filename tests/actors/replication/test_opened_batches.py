"""Are the records of a batch looked at that waits behind another one which is opened in a thread?"""

import asyncio
from pathlib import Path
from random import Random

import pytest

from bradbury.actors.replication import hosted_replica
from bradbury.protocol.errors import CorruptMessage, InvalidRecord
from bradbury.protocol.records.record_batch import build_batch
from bradbury.protocol.records.records import encode_records
from bradbury.replication.partition.conversion_queue import MOST_BYTES_OPENED_AT_ONCE
from bradbury.tests.support.storage.led_partition import LedPartition, run

LARGE = MOST_BYTES_OPENED_AT_ONCE + 1


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_small_batch_behind_a_large_one_is_opened_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_loaded: bool
) -> None:
    monkeypatch.setattr(hosted_replica, "is_record_check_loaded", lambda: is_loaded)
    large = encode_records(
        [(1_000, None, Random(7).randbytes(LARGE), ())], codec=0 if not is_loaded else 3
    )
    nonsense = build_batch(b"\xff" * 40, record_count=2, base_timestamp=1_000, max_timestamp=1_000)

    async def scenario(node: LedPartition) -> None:
        def produce(batch: bytearray) -> asyncio.Future[object]:
            answer = node.replica.produce(memoryview(batch), is_message_set=False, acks_all=False)
            return asyncio.ensure_future(answer)  # type: ignore[arg-type]

        def is_queued() -> int:
            return len(node.step.conversions)

        first = produce(large)
        assert is_queued() == 1, "or nothing is behind it"
        second = produce(nonsense)
        await first
        with pytest.raises((InvalidRecord, CorruptMessage)):
            await second
        assert node.log.log_end_offset == 1

    run(tmp_path, scenario)
