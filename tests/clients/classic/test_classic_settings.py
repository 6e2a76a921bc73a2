"""Which settings of 0.7 are taken, which are refused, and what is said then? No broker here."""

import threading
from pathlib import Path

import pytest

import bradbury
from bradbury import classic
from bradbury.clients.classic import (
    Blacklist,
    ConsumerConfig,
    ConsumerConnector,
    Producer,
    ProducerConfig,
    Whitelist,
)
from bradbury.clients.classic.consumer import consumer_config
from bradbury.clients.classic.consumer.turns import Turns
from bradbury.clients.classic.producer import producer_config
from bradbury.protocol.errors import InvalidConfig


def test_a_consumers_settings_have_the_names_and_defaults_of_0_7() -> None:
    config = ConsumerConfig.from_properties({"groupid": "g"})
    assert config.auto_commit
    assert config.auto_commit_interval_ms == 10_000
    assert config.auto_offset_reset == "smallest"
    assert config.consumer_timeout_ms == -1
    assert config.fetch_size == 1024 * 1024
    assert config.queued_chunks_max == 10
    given = ConsumerConfig.from_properties(
        {
            "groupid": "g",
            "consumerid": "c",
            "bootstrap.servers": "h:1",
            "socket.timeout.ms": "1000",
            "fetch.size": 300,
            "queuedchunks.max": "3",
            "autocommit.enable": "false",
            "autocommit.interval.ms": "7",
            "autooffset.reset": "largest",
            "consumer.timeout.ms": "0",
        }
    )
    assert given == ConsumerConfig(
        group_id="g",
        consumer_id="c",
        bootstrap="h:1",
        socket_timeout_ms=1000,
        fetch_size=300,
        queued_chunks_max=3,
        auto_commit=False,
        auto_commit_interval_ms=7,
        auto_offset_reset="largest",
        consumer_timeout_ms=0,
    )


def test_a_producers_settings_have_the_names_and_defaults_of_0_7() -> None:
    config = ProducerConfig.from_properties({})
    assert config.producer_type == "sync"
    assert (config.queue_time_ms, config.queue_size) == (5_000, 10_000)
    assert (config.batch_size, config.enqueue_timeout_ms) == (200, 0)
    assert (config.compression_codec, config.max_message_size) == ("none", 1_000_000)
    given = ProducerConfig.from_properties(
        {
            "broker.list": "0:one:9092, 1:two:9093",
            "producer.type": "async",
            "compression.codec": "2",
            "compressed.topics": "a, b",
            "queue.time": "1",
            "queue.size": 2,
            "batch.size": "3",
            "queue.enqueueTimeout.ms": "-1",
            "acks": "1",
        }
    )
    assert given == ProducerConfig(
        bootstrap="one:9092,two:9093",
        producer_type="async",
        compression_codec="snappy",
        compressed_topics=("a", "b"),
        queue_time_ms=1,
        queue_size=2,
        batch_size=3,
        enqueue_timeout_ms=-1,
        acks=1,
    )


@pytest.mark.parametrize(
    ("servers", "bootstrap"),
    [("h:1", "h:1"), ("3:h:1", "h:1"), ("[::1]:9092", "[::1]:9092"), (["h:1", "i:2"], "h:1,i:2")],
)
def test_a_broker_list_may_carry_the_ids_of_0_7(servers: object, bootstrap: str) -> None:
    assert ProducerConfig.from_properties({"broker.list": servers}).bootstrap == bootstrap


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({}, "needs a group"),
        ({"groupid": ""}, "groupid='': expected a string"),
        (
            {"groupid": "g", "zk.connect": "h:2181"},
            "zk.connect is not supported: there is no ZooKeeper",
        ),
        ({"groupid": "g", "zk.synctime.ms": 1}, "bootstrap.servers"),
        ({"groupid": "g", "fetcher.backoff.ms": 1}, "waits at the broker"),
        ({"groupid": "g", "rebalance.retries.max": 4}, "coordinator"),
        ({"groupid": "g", "shallowiterator.enable": "true"}, "is not supported"),
        ({"groupid": "g", "group.id": "g"}, "unknown setting 'group.id'"),
        ({"groupid": "g", "fetch.size": "big"}, "fetch.size='big': expected an integer"),
        ({"groupid": "g", "fetch.size": True}, "expected an integer"),
        ({"groupid": "g", "fetch.size": 0}, "fetch_size=0: use at least 1"),
        ({"groupid": "g", "consumer.timeout.ms": -2}, "at least -1"),
        ({"groupid": "g", "autocommit.enable": "yes"}, "expected true or false"),
        ({"groupid": "g", "autooffset.reset": "earliest"}, "use smallest, largest or none"),
    ],
)
def test_a_wrong_setting_of_a_connector_is_named(properties: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        ConsumerConnector.create(properties)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"zk.connect": "h:2181"}, "there is no ZooKeeper"),
        ({"serializer.class": "x"}, "pass the object itself"),
        ({"num.retries": 3}, "delivery.timeout.ms"),
        ({"broker.list": ""}, "expected host:port"),
        ({"producer.type": "both"}, "use sync or async"),
        ({"compression.codec": "9"}, "compression.codec='9'"),
        ({"compressed.topics": "a"}, "needs a compression.codec"),
        ({"queue.size": 0}, "queue_size=0: use at least 1"),
        ({"queue.enqueueTimeout.ms": -2}, "at least -1"),
        ({"batch.size": None}, "expected an integer"),
        ({"queue.tiem": 5}, "unknown setting 'queue.tiem'"),
    ],
)
def test_a_wrong_setting_of_a_producer_is_named(properties: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Producer(properties)
    assert text in str(caught.value)


def test_a_broker_list_that_is_none_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="is not an address"):
        Producer({"broker.list": "host:port:more:still"})


def test_the_document_names_every_setting() -> None:
    text = (Path(bradbury.__file__).resolve().parent / "docs" / "classic.md").read_text()
    for name in {**consumer_config.NAMES, **producer_config.NAMES}:
        assert f"`{name}`" in text, name
    for name in ("SimpleConsumer", "ConsumerConnector", "KafkaStream", "Producer", "QueueFull"):
        assert name in text
        assert name in classic.__all__


# --- topic filters -------------------------------------------------------------------------------


def test_a_whitelist_allows_whole_names_only() -> None:
    allowed = Whitelist("flights.*").is_topic_allowed
    assert allowed("flights")
    assert allowed("flights-2013")
    assert not allowed("old-flights")


def test_a_blacklist_allows_what_does_not_match() -> None:
    allowed = Blacklist("test.*").is_topic_allowed
    assert allowed("flights")
    assert not allowed("test-1")


def test_a_blacklist_of_several_forbids_each_whole_name() -> None:
    allowed = Blacklist("test.*, flights").is_topic_allowed
    assert not allowed("flights")
    assert not allowed("test-flights")
    assert allowed("flights-2013")
    assert allowed("a-test")
    assert not Blacklist(".*").is_topic_allowed("anything")


def test_a_comma_is_an_or_and_spaces_and_quotes_do_not_count() -> None:
    found = Whitelist(" 'flights, weather.*' ")
    assert found.regex == "flights|weather.*"
    assert found.is_topic_allowed("flights")
    assert found.is_topic_allowed("weather-ny")
    assert not found.is_topic_allowed("flights|weather.*x")


@pytest.mark.parametrize("raw", ["(", "", "  ", "''", "(?P<"])
def test_what_is_no_expression_is_refused(raw: str) -> None:
    with pytest.raises(ValueError, match="regular expression"):
        Whitelist(raw)


# --- turns ---------------------------------------------------------------------------------------


def test_a_waiting_thread_comes_before_one_that_released_and_returns() -> None:
    turns, came = Turns(), threading.Event()

    def come() -> None:
        turns.enter()
        came.set()
        turns.leave()

    for _ in range(10):
        came.clear()
        turns.enter()
        thread = threading.Thread(target=come)
        thread.start()
        assert not came.wait(0.02)  # it waits
        rounds = 0
        while not came.is_set() and rounds < 1000:
            rounds += 1
            turns.leave()
            turns.enter()
        turns.leave()
        thread.join(60)
        assert rounds <= 2  # with a plain lock all thousand


def test_a_try_never_waits() -> None:
    turns = Turns()
    turns.enter()
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(turns.try_enter()))
    thread.start()
    thread.join(60)
    assert results == [False]
    turns.enter()  # the same thread, as in a signal's handler
    assert turns.depth == 2
    turns.leave()
    turns.leave()
    assert turns.try_enter()
    turns.leave()
