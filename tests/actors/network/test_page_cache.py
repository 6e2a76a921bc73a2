"""Does a record that has left the page cache come back without holding up the event loop?"""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

import bradbury
from bradbury.actors.network.page_cache import is_resident, read_into_page_cache
from bradbury.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from bradbury.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from bradbury.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from bradbury.protocol.records.record_batch import read_size
from bradbury.protocol.records.records import encode_records, iterate_records
from tests.support.wire.raw_client import RawClient


class Slice(NamedTuple):
    file: object
    position: int
    size: int


def evict(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_an_evicted_file_is_cold_until_it_is_brought_in(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3_000_000))
    with path.open("rb") as file:
        whole = Slice(file, 0, 3_000_000)
        assert is_resident(whole)
        evict(path)
        if is_resident(whole):
            pytest.skip("this file system keeps its pages (tmpfs)")
        read_into_page_cache(whole)
        assert is_resident(whole)


def test_cold_records_are_fetched_whole_and_in_order(tmp_path: Path) -> None:
    with (
        bradbury.local(str(tmp_path)) as cluster,
        RawClient(cluster.bootstrap_servers) as client,
    ):
        small_segments = CreatableTopicConfig(name="segment.bytes", value="400000")
        made = CreatableTopic(
            name="cold", num_partitions=1, replication_factor=1, configs=[small_segments]
        )
        client.call(CreateTopicsRequest(topics=[made], timeout_ms=5000), CreateTopicsResponse, 7)
        for number in range(12):
            value = b"%d-" % number + os.urandom(90_000)
            records = bytes(encode_records([(1_700_000_000_000, None, value, ())]))
            data = [PartitionProduceData(index=0, records=records)]
            request = ProduceRequest(
                acks=-1,
                timeout_ms=5000,
                topic_data=[TopicProduceData(name="cold", partition_data=data)],
            )
            client.call(request, ProduceResponse, 9)
        for path in tmp_path.rglob("*.log"):
            evict(path)
        offset, numbers = 0, []
        while offset < 12:
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_bytes=1 << 20, topics=[FetchTopic(topic="cold", partitions=[wanted])]
            )
            answer = client.call(request, FetchResponse, 12).responses[0].partitions[0]
            records = memoryview(answer.records)
            while records:
                _, size = read_size(records)
                for record in iterate_records(records[:size]):
                    numbers.append(int(record.value.split(b"-")[0]))
                    offset = record.offset + 1
                records = records[size:]
        assert numbers == list(range(12))
