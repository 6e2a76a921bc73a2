"""While the compiled kernels are not loaded a poll decodes a part of what has come: none is lost."""

import pytest

import bradbury
from bradbury.clients.fetch import record_stream
from bradbury.protocol import kernel_loading
from bradbury.protocol.columns import columns_loops, columns_plain
from bradbury.protocol.topic_partition import TopicPartition

COUNT = 400


@pytest.fixture(autouse=True)
def never_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernels, pieces of one batch, and no time: every poll is cut as short as it may be."""
    monkeypatch.setattr(record_stream, "kernels_ready", lambda: False)
    monkeypatch.setattr(record_stream, "PLAIN_BYTES", 1)
    monkeypatch.setattr(record_stream, "PLAIN_SECONDS", 0.0)


@pytest.fixture
def topic(bradbury_cluster: bradbury.LocalCluster, bradbury_topic: str) -> str:
    """Two partitions of 400 records, in batches of ten."""
    with bradbury_cluster.admin() as admin:
        admin.create_topic(bradbury_topic, 2)
    with bradbury.Producer(bradbury_cluster.bootstrap_servers) as producer:
        for number in range(0, COUNT, 10):
            for partition in (0, 1):
                values = [b"%d" % one for one in range(number, number + 10)]
                producer.send_batch(bradbury_topic, values, partition=partition).result()
    return bradbury_topic


@pytest.fixture
def consumer(bradbury_cluster: bradbury.LocalCluster, topic: str):
    with bradbury.Consumer(
        topic, bootstrap=bradbury_cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        yield consumer


def test_every_record_comes_once_and_in_order_one_batch_a_poll(consumer: bradbury.Consumer) -> None:
    offsets: dict[int, list[int]] = {0: [], 1: []}
    while sum(map(len, offsets.values())) < 2 * COUNT:
        table = consumer.poll(5_000)
        assert table.num_rows == 10
        offsets[table["partition"][0].as_py()] += table["offset"].to_pylist()
    assert offsets == {0: [*range(COUNT)], 1: [*range(COUNT)]}
    assert consumer.poll(100).num_rows == 0


def test_what_was_not_decoded_yet_is_dropped_by_a_seek_and_kept_by_a_pause(
    consumer: bradbury.Consumer, topic: str
) -> None:
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    first = consumer.poll(5_000)
    began, other = (zero, one) if first["partition"][0].as_py() == 0 else (one, zero)
    consumer.pause(began)
    for _ in range(COUNT // 10):
        assert set(consumer.poll(5_000)["partition"].to_pylist()) == {other.partition}
    assert consumer.poll(200).num_rows == 0
    consumer.resume(began)
    assert consumer.poll(5_000)["offset"].to_pylist() == [*range(10, 20)]
    consumer.seek(began, 395)
    assert consumer.poll(5_000)["offset"].to_pylist() == [*range(395, 400)]


def test_positions_follow_what_was_handed_out(consumer: bradbury.Consumer, topic: str) -> None:
    taken = consumer.poll(5_000)["partition"][0].as_py()
    assert consumer.position((topic, taken)) == 10


def test_nobody_loads_the_kernels_while_another_thread_is_at_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns_loops, "_compiled", None)
    monkeypatch.setattr(kernel_loading, "_plain_records", 0)
    monkeypatch.setattr(kernel_loading, "_loading_elsewhere", False)
    kernel_loading.load_elsewhere(loading=True)
    assert columns_loops.loops_for(10 * kernel_loading.PLAIN_RECORDS) is columns_plain
    kernel_loading.load_elsewhere(loading=False)
    assert columns_loops.loops_for(1) is not columns_plain
