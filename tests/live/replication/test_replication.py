"""Three replicas: are they the same, is what was acknowledged still there, whoever dies?"""

import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

import bradbury
from bradbury.protocol.errors import InvalidReplicationFactor
from bradbury.tests.support.ray.three_nodes import ThreeNodes, until

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ThreeNodes]:
    with ThreeNodes(tmp_path) as running:
        yield running


class Producing:
    """One idempotent producer with acks=all, in a thread of its own, from a number on."""

    def __init__(self, servers: str, topic: str, *, partitions: int = 1) -> None:
        self._topic = topic
        self._partitions = partitions
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """Number -> where it is."""
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 60_000,
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Producing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def more(self, count: int) -> None:
        """Returns when as many more were acknowledged."""
        wanted = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= wanted, "nothing is acknowledged")

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.poll(0.005)
            if len(self._producer) > 1000:
                continue  # nobody acknowledges now
            for _ in range(20):
                self._producer.produce(
                    self._topic,
                    b"%d" % number,
                    partition=number % self._partitions,
                    on_delivery=self._on_delivery(number),
                )
                number += 1
        self._producer.flush(60)

    def _on_delivery(self, number: int):
        def on_delivery(error, message) -> None:
            if error is None:
                self.acknowledged[number] = (message.partition(), message.offset())
            else:
                self.errors.append(error)

        return on_delivery


def read_all(servers: str, topic: str, partitions: int = 1) -> list[tuple[int, int, int]]:
    """(partition, offset, number) of all that is there."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[tuple[int, int, int]] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        for message in consumer.consume(1000, 0.5):
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                ended.add(message.partition())
            else:
                found.append((message.partition(), message.offset(), int(message.value())))
    consumer.close()
    return found


def check_nothing_is_lost(producing: Producing, found: list[tuple[int, int, int]]) -> None:
    assert producing.errors == []
    where = {number: (partition, offset) for partition, offset, number in found}
    assert len(where) == len(found), "some came twice"
    assert {number: where.get(number) for number in producing.acknowledged} == (
        producing.acknowledged
    )
    for partition in {partition for partition, _, _ in found}:
        numbers = [number for each, _, number in found if each == partition]
        assert numbers == sorted(numbers), "out of order"


def same_everywhere(nodes: ThreeNodes, topic: str, partitions: int = 1) -> bool:
    return all(
        len(contents := nodes.contents(topic, index)) == 3 and len(set(contents.values())) == 1
        for index in range(partitions)
    )


def test_replicas_are_on_all_nodes_and_the_same_byte_for_byte(nodes: ThreeNodes) -> None:
    nodes.create("t", 3)
    with Producing(nodes.servers, "t", partitions=3) as producing:
        producing.more(3000)
    until(lambda: same_everywhere(nodes, "t", 3))
    for index in range(3):
        assert nodes.partition("t", index).isr == nodes.partition("t", index).replicas
        assert len(set(nodes.ends("t", index).values())) == 1
    check_nothing_is_lost(producing, read_all(nodes.servers, "t", 3))


def test_when_the_leader_dies_another_one_has_everything_and_the_old_one_catches_up(
    nodes: ThreeNodes,
) -> None:
    nodes.create("t", min_insync_replicas="2")
    with Producing(nodes.servers, "t") as producing:
        for _ in range(3):
            producing.more(500)
            leader = nodes.leader("t")
            epoch = nodes.partition("t").leader_epoch
            nodes.kill(leader)
            until(lambda leader=leader: nodes.leader("t") not in (leader, -1))
            assert nodes.partition("t").leader_epoch > epoch
            producing.more(500)
            nodes.start(leader)
            until(lambda: len(nodes.partition("t").isr) == 3, "it does not come in sync again")
    until(lambda: same_everywhere(nodes, "t"))
    check_nothing_is_lost(producing, read_all(nodes.servers, "t"))


def test_a_clean_stop_hands_over_at_once(nodes: ThreeNodes) -> None:
    nodes.create("t", 6)
    with Producing(nodes.servers, "t", partitions=6) as producing:
        producing.more(500)
        nodes.stop(2)
        image = nodes.cluster.controller.image
        assert all(each.leader in (1, 3) for each in image.topics["t"].partitions)
        producing.more(500)
        nodes.start(2)
        until(lambda: all(len(nodes.partition("t", index).isr) == 3 for index in range(6)))
    check_nothing_is_lost(producing, read_all(nodes.servers, "t", 6))


def test_a_replica_that_does_not_copy_leaves_the_isr_and_joins_again_when_it_has_caught_up(
    nodes: ThreeNodes,
) -> None:
    nodes.create("t")
    leader, slow, _ = nodes.partition("t").replicas
    with Producing(nodes.servers, "t") as producing:
        producing.more(100)
        nodes.stop_fetching(slow)
        until(lambda: slow not in nodes.partition("t").isr)
        assert nodes.leader("t") == leader
        producing.more(500)
        shown = scraped(nodes, leader)
        assert shown["kafka_server_replicamanager_underreplicatedpartitions"] == 1
        assert shown["kafka_server_replicamanager_underminisrpartitioncount"] == 0
        assert shown["kafka_server_replicamanager_isrshrinks_total"] == 1
        assert scraped(nodes, slow)["kafka_server_brokertopicmetrics_replicationbytesin_total"] > 0
        nodes.fetch_again(slow)
        until(lambda: slow in nodes.partition("t").isr)
        until(lambda: scraped(nodes, leader)["kafka_server_replicamanager_isrexpands_total"] == 1)
    until(lambda: same_everywhere(nodes, "t"))
    check_nothing_is_lost(producing, read_all(nodes.servers, "t"))


def scraped(nodes: ThreeNodes, node_id: int) -> dict[str, float]:
    """The node's metrics without labels."""
    address = nodes.node(node_id).status()["metrics"]
    text = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
    lines = [line.split() for line in text.splitlines() if line and line[0] != "#"]
    return {name: float(value) for name, value, *_ in lines if "{" not in name}


def test_with_too_few_in_sync_nothing_is_acknowledged_and_nothing_is_shown(
    nodes: ThreeNodes,
) -> None:
    nodes.create("t", min_insync_replicas="3")
    with bradbury.Producer(nodes.servers) as producer:
        producer.send("t", b"0").result(60)
    slow = nodes.partition("t").replicas[-1]
    nodes.stop_fetching(slow)
    producer = Producer({"bootstrap.servers": nodes.servers, "message.timeout.ms": 20_000})
    reported: list[KafkaError | None] = []
    producer.produce("t", b"1", partition=0, on_delivery=lambda error, _: reported.append(error))
    until(lambda: producer.poll(0.1) or slow not in nodes.partition("t").isr)
    assert reported == []
    assert [number for _, _, number in read_all(nodes.servers, "t")] == [0]
    nodes.fetch_again(slow)
    producer.flush(20)
    assert reported == [None]
    assert [number for _, _, number in read_all(nodes.servers, "t")] == [0, 1]


def test_records_that_only_the_old_leader_has_give_way_to_the_new_ones(nodes: ThreeNodes) -> None:
    """acks=1 promises no more than that: the leader alone had them when it died."""
    nodes.create("t")
    with bradbury.Producer(nodes.servers) as producer:
        producer.send("t", b"0").result(60)
    leader, *others = nodes.partition("t").replicas
    for node in others:
        nodes.stop_fetching(node)
    alone = Producer({"bootstrap.servers": nodes.servers, "acks": 1})
    for _ in range(10):
        alone.produce("t", b"1", partition=0)
    assert alone.flush(10) == 0
    assert nodes.ends("t")[leader] == 11
    nodes.kill(leader)
    for node in others:
        nodes.fetch_again(node)
    until(lambda: nodes.leader("t") in others)
    with bradbury.Producer(nodes.servers) as producer:
        for _ in range(3):
            producer.send("t", b"2").result(60)
    nodes.start(leader)
    until(lambda: len(nodes.partition("t").isr) == 3)
    until(lambda: same_everywhere(nodes, "t"))
    assert [number for _, _, number in read_all(nodes.servers, "t")] == [0, 2, 2, 2]


def test_a_group_goes_on_with_its_commits_when_its_coordinator_dies(nodes: ThreeNodes) -> None:
    nodes.create("t")
    with bradbury.Producer(nodes.servers) as producer:
        for number in range(20):
            producer.send("t", b"%d" % number)
    settings = {
        "bootstrap.servers": nodes.servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 10_000,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    found = []
    while len(found) < 10:
        found += [int(message.value()) for message in consumer.consume(10 - len(found), 0.5)]
    consumer.commit(asynchronous=False)
    image = nodes.cluster.controller.image
    offsets = image.topics["__consumer_offsets"]
    assert {len(each.replicas) for each in offsets.partitions} == {3}
    leaders = {each.leader for each in offsets.partitions}
    assert leaders == {1, 2, 3}
    from bradbury.protocol.partitioner import partition_for_group

    index = partition_for_group("g", len(offsets.partitions))
    coordinator = offsets.partitions[index].leader
    nodes.kill(coordinator)
    until(lambda: nodes.leader("__consumer_offsets", index) not in (coordinator, -1))
    while len(found) < 20:
        found += [int(message.value()) for message in consumer.consume(20 - len(found), 0.5)]
    assert found == list(range(20))
    consumer.commit(asynchronous=False)
    consumer.close()
    again = Consumer(settings)
    [committed] = again.committed([TopicPartition("t", 0)], timeout=20)
    again.close()
    assert committed.offset == 20


def test_more_replicas_than_machines_are_refused(nodes: ThreeNodes) -> None:
    with nodes.cluster.admin() as admin, pytest.raises(InvalidReplicationFactor, match="4"):
        admin.create_topic("t", 1, replication_factor=4)


def test_the_death_of_a_process_is_noticed_long_before_its_session_ends(tmp_path: Path) -> None:
    """Followers find its port closed; a session of an hour would have the test time out."""
    with ThreeNodes(tmp_path, {"broker.session.timeout.ms": 3_600_000}) as nodes:
        nodes.create("t")
        with Producing(nodes.servers, "t") as producing:
            producing.more(100)
            leader = nodes.leader("t")
            nodes.kill(leader)
            until(lambda: nodes.leader("t") not in (leader, -1))
            producing.more(100)
        check_nothing_is_lost(producing, read_all(nodes.servers, "t"))


def test_the_death_of_a_follower_that_leads_nothing_is_noticed_as_early(tmp_path: Path) -> None:
    """Nobody asks it for anything; its leader misses the connection over which it has asked."""
    hour = 3_600_000
    config = {"broker.session.timeout.ms": hour, "replica.lag.time.max.ms": hour}
    with ThreeNodes(tmp_path, config) as nodes:
        nodes.create("t", min_insync_replicas="2")
        with Producing(nodes.servers, "t") as producing:
            producing.more(100)
            leader = nodes.leader("t")
            follower = next(node for node in nodes.partition("t").replicas if node != leader)
            nodes.kill(follower)
            until(lambda: follower not in nodes.partition("t").isr)
            producing.more(100)
        assert nodes.leader("t") == leader
        check_nothing_is_lost(producing, read_all(nodes.servers, "t"))


def test_replicas_move_while_producers_and_consumers_go_on(nodes: ThreeNodes) -> None:
    """kafka-python moves them from one node to another, to more nodes and to fewer."""
    with nodes.cluster.admin() as admin:
        admin.create_topic("t", 1, replication_factor=1)
    admin = kafka.KafkaAdminClient(bootstrap_servers=nodes.servers)
    partition = kafka.TopicPartition("t", 0)
    with Producing(nodes.servers, "t") as producing:
        producing.more(2000)
        for replicas in ([2], [3, 1], [1, 2, 3], [3], [2, 3]):
            admin.alter_partition_reassignments({partition: replicas})
            until(lambda: not admin.list_partition_reassignments())
            assert list(nodes.partition("t").replicas) == replicas
            producing.more(200)
    admin.close()
    until(lambda: set(nodes.contents("t")) == {2, 3})
    assert len(set(nodes.contents("t").values())) == 1
    check_nothing_is_lost(producing, read_all(nodes.servers, "t"))


@pytest.mark.parametrize("is_unclean", [False, True])
def test_a_replica_out_of_sync_leads_only_where_the_topic_allows_it(
    nodes: ThreeNodes, is_unclean: bool
) -> None:
    nodes.create("t", unclean_leader_election_enable=str(is_unclean).lower())
    leader, *others = nodes.partition("t").replicas
    with bradbury.Producer(nodes.servers) as producer:
        producer.send("t", b"0").result(60)
        for node in others:
            nodes.stop_fetching(node)
        producer.send("t", b"1")
        until(lambda: nodes.partition("t").isr == (leader,))
    nodes.kill(leader)
    until(lambda: nodes.leader("t") != leader)
    for node in others:
        nodes.fetch_again(node)
    if is_unclean:
        until(lambda: nodes.leader("t") in others)
        elected = next(one for one in nodes.states("t") if one.leader in others)
        assert elected.recovering  # until a follower has caught up, which may be soon
        until(lambda: numbers_in(nodes) == [0])  # once followers have told what they have
    nodes.start(leader)
    until(lambda: len(nodes.partition("t").isr) == 3)
    until(lambda: same_everywhere(nodes, "t"))
    left = [0] if is_unclean else [0, 1]
    until(lambda: numbers_in(nodes) == left)


def numbers_in(nodes: ThreeNodes) -> list[int]:
    return [number for _, _, number in read_all(nodes.servers, "t")]


def test_leaders_go_back_to_the_first_replicas_by_themselves(tmp_path: Path) -> None:
    with ThreeNodes(tmp_path, {"leader.imbalance.check.interval.seconds": 1}) as nodes:
        nodes.create("t", 3)
        first = [nodes.partition("t", index).replicas[0] for index in range(3)]
        nodes.stop(first[0])
        assert nodes.leader("t", 0) != first[0]
        nodes.start(first[0])
        until(lambda: [nodes.leader("t", index) for index in range(3)] == first)


def test_deleted_records_are_gone_on_all_replicas_when_it_is_answered(nodes: ThreeNodes) -> None:
    nodes.create("t")
    with bradbury.Producer(nodes.servers) as producer:
        for number in range(10):
            producer.send("t", b"%d" % number)
    with nodes.cluster.admin() as admin:
        admin.delete_records({bradbury.TopicPartition("t", 0): 6})
    starts = {node: each.log.log_start_offset for node, each in nodes.replicas("t").items()}
    assert starts == {1: 6, 2: 6, 3: 6}
    nodes.kill(nodes.leader("t"))
    until(lambda: nodes.leader("t") != -1)
    until(lambda: numbers_in(nodes) == [6, 7, 8, 9])


def test_a_consumer_reads_from_the_replica_in_its_rack(tmp_path: Path) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with ThreeNodes(tmp_path, {"replica.selector.class": selector}) as nodes:
        nodes.create("t")
        _, near, _ = nodes.partition("t").replicas
        rack = nodes.cluster.controller.image.nodes[near].rack
        consumer = Consumer(
            {"bootstrap.servers": nodes.servers, "group.id": "g", "client.rack": rack}
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        found: list[int] = []
        with Producing(nodes.servers, "t") as producing:
            producing.more(500)
            while len(found) < 500:
                found += [int(message.value()) for message in consumer.consume(500, 0.5)]
            assert bytes_out(nodes, near) > 0, "it reads there"
            nodes.kill(near)
            until(lambda: near not in nodes.partition("t").isr)
            producing.more(500)
            while len(found) < 1000:
                found += [int(message.value()) for message in consumer.consume(500, 0.5)]
        consumer.close()
        assert found == list(range(len(found)))


def test_our_own_consumer_does_so_too_and_goes_on_when_that_replica_is_gone(
    tmp_path: Path,
) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with ThreeNodes(tmp_path, {"replica.selector.class": selector}) as nodes:
        nodes.create("t")
        leader, near, _ = nodes.partition("t").replicas
        rack = nodes.cluster.controller.image.nodes[near].rack
        found: list[int] = []
        with (
            Producing(nodes.servers, "t") as producing,
            bradbury.Consumer(bootstrap=nodes.servers, client_rack=rack) as consumer,
        ):
            producing.more(500)
            # A replica that has nothing yet is no place to send a consumer to.
            until(lambda: near in nodes.partition("t").isr and nodes.ends("t")[near] > 0)
            consumer.assign([bradbury.TopicPartition("t", 0)])
            consumer.seek(bradbury.TopicPartition("t", 0), 0)

            def read(count: int) -> None:
                while len(found) < count:
                    found.extend(int(v) for v in consumer.poll(500).column("value").to_pylist())

            read(500)
            assert bytes_out(nodes, near) > 0
            assert bytes_out(nodes, leader) == 0
            nodes.kill(near)
            producing.more(500)
            read(len(producing.acknowledged))  # so the last of them come from the leader
        assert found == list(range(len(found)))
        assert bytes_out(nodes, leader) > 0


def bytes_out(nodes: ThreeNodes, node_id: int) -> int:
    """What a node has given to consumers."""
    return nodes.node(node_id).metrics.bytes_out.get("t", 0)
