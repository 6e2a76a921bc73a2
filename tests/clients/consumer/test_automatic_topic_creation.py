"""Does a misspelt name make a topic? Not unless one asks for that."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import bradbury
from bradbury.classic import ConsumerConnector, Producer, ProducerData
from bradbury.protocol.errors import KafkaError, RequestTimedOut, UnknownTopicOrPartition
from bradbury.protocol.messages.metadata import MetadataRequest
from bradbury.tests.support.wire.scripted_broker import SILENCE, ScriptedBroker

Use = Callable[[str, str, bool], object]


@pytest.fixture(scope="module")
def creating() -> Iterator[bradbury.LocalCluster]:
    """Brokers that create what they are asked for, as they do unless told otherwise."""
    with bradbury.local() as running:
        yield running


def produce(servers: str, topic: str, allowed: bool) -> None:
    options: dict[str, Any] = {"allow_auto_create_topics": True} if allowed else {}
    with bradbury.Producer(servers, **options) as producer:
        producer.send(topic, b"").result(60)


def produce_tables(servers: str, topic: str, allowed: bool) -> None:
    options: dict[str, Any] = {"allow_auto_create_topics": True} if allowed else {}
    with bradbury.Producer(servers, **options) as producer:
        producer.send_batch(topic, [b""]).result(60)


def consume(servers: str, topic: str, allowed: bool) -> None:
    options: dict[str, Any] = {"allow_auto_create_topics": True} if allowed else {}
    with bradbury.Consumer(topic, bootstrap=servers, **options) as consumer:
        assert consumer.assignment()


def consume_in_a_group(servers: str, topic: str, allowed: bool) -> None:
    options: dict[str, Any] = {"allow_auto_create_topics": True} if allowed else {}
    with bradbury.Consumer(topic, bootstrap=servers, group=f"g-{topic}", **options) as consumer:
        consumer.poll(100)


def produce_as_in_0_7(servers: str, topic: str, allowed: bool) -> None:
    settings: dict[str, object] = {"broker.list": servers}
    if allowed:
        settings["allow.auto.create.topics"] = "true"
    with Producer(settings) as producer:
        producer.send(ProducerData(topic, None, b""))


def consume_as_in_0_7(servers: str, topic: str, allowed: bool) -> None:
    settings: dict[str, object] = {"bootstrap.servers": servers, "groupid": f"g-{topic}"}
    if allowed:
        settings["allow.auto.create.topics"] = "true"
    with ConsumerConnector.create(settings) as connector:
        connector.create_message_streams({topic: 1})


USES = [
    produce,
    produce_tables,
    consume,
    consume_in_a_group,
    produce_as_in_0_7,
    consume_as_in_0_7,
]


@pytest.mark.usefixtures("unknown_soon")
@pytest.mark.parametrize("use", USES)
def test_an_unknown_topic_is_refused_in_one_line_and_not_created(
    creating: bradbury.LocalCluster, use: Use
) -> None:
    topic = f"refused-{use.__name__}"
    with pytest.raises(UnknownTopicOrPartition) as raised:
        use(creating.bootstrap_servers, topic, False)
    text = str(raised.value)
    assert "\n" not in text
    assert f"topic {topic!r} does not exist" in text
    assert f"`bradbury topics create {topic}`" in text
    assert "allow_auto_create_topics=True" in text
    with creating.admin() as admin:
        assert topic not in admin.list_topics()


@pytest.mark.parametrize("use", USES)
def test_a_client_that_allows_it_gets_the_topic(creating: bradbury.LocalCluster, use: Use) -> None:
    topic = f"made-{use.__name__}"
    use(creating.bootstrap_servers, topic, True)
    with creating.admin() as admin:
        assert topic in admin.list_topics()


@pytest.mark.usefixtures("unknown_soon")
def test_where_brokers_create_none_the_remedy_is_theirs(bootstrap: str) -> None:
    with (
        bradbury.Producer(bootstrap, allow_auto_create_topics=True) as producer,
        pytest.raises(UnknownTopicOrPartition, match=r"auto\.create\.topics\.enable=true"),
    ):
        producer.send("nowhere", b"")


@pytest.mark.parametrize("allowed", [True, False])
def test_requests_say_whether_brokers_may_create(allowed: bool) -> None:
    with ScriptedBroker({"t": 1}) as broker:
        with bradbury.Producer(broker.address, allow_auto_create_topics=allowed) as producer:
            assert producer.partitions_for("t") == 1
        asked = broker.wait_for(MetadataRequest)
    assert {one.allow_auto_topic_creation for one in asked} == {allowed}


def test_a_topic_that_is_made_meanwhile_elsewhere_is_found(
    bootstrap: str, admin: bradbury.Admin
) -> None:
    asked = threading.Event()

    class Asked(bradbury.ProducerInterceptor):
        def on_send(self, record: bradbury.ProducerRecord) -> bradbury.ProducerRecord:
            asked.set()
            return record

    def make() -> None:
        asked.wait(60)
        admin.create_topic("made-late")

    maker = threading.Thread(target=make)
    maker.start()
    with bradbury.Producer(bootstrap, interceptors=[Asked()]) as producer:
        assert producer.send("made-late", b"").result(60).offset == 0
    maker.join(60)


def test_max_block_ms_bounds_the_search_for_a_topic(bootstrap: str) -> None:
    with (
        bradbury.Producer(bootstrap, max_block_ms=300) as producer,
        pytest.raises((UnknownTopicOrPartition, RequestTimedOut), match="topic 'nowhere'"),
    ):
        producer.send("nowhere", b"")


def test_brokers_without_an_answer_are_named_as_the_cause() -> None:
    with ScriptedBroker({"t": 1}) as broker:
        broker.on(MetadataRequest, SILENCE)
        with (
            bradbury.Producer(broker.address, max_block_ms=200) as producer,
            pytest.raises(KafkaError, match="topic 't': no metadata of its partitions"),
        ):
            producer.send("t", b"")
