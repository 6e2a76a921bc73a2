"""Apache Kafka's own console tools, from its jars, do their work on a Bradbury cluster."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bradbury
from bradbury.tests.compatibility.support.compatibility import Ran, Tool
from bradbury.tests.compatibility.support.kafka_jars import java_command, run_java

pytestmark = [pytest.mark.slow, pytest.mark.java]

Java = Callable[..., Ran]
TOOLS = "org.apache.kafka.tools."


@pytest.fixture
def run(java: Java, servers: str) -> Java:
    """Run a tool on the cluster; it must end well. Its output."""

    def call(tool: str, *arguments: str, stdin: bytes = b"") -> str:
        ran = java(tool, "--bootstrap-server", servers, *arguments, stdin=stdin)
        assert ran.code == 0, f"{ran.code}\n{ran.out}\n{ran.err}"
        return ran.out

    return call


# --- topics --------------------------------------------------------------------------------------


def test_topics(run: Java, kafka_tools: Tool, new_name: str) -> None:
    topic = TOOLS + "TopicCommand"
    with kafka_tools.call("kafka-topics --create"):
        created = run(
            topic, "--create", "--topic", new_name, "--partitions", "2",
            "--replication-factor", "1", "--config", "retention.ms=60000",
        )  # fmt: skip
        assert f"Created topic {new_name}" in created
    with kafka_tools.call("kafka-topics --list"):
        assert new_name in run(topic, "--list").split()
    with kafka_tools.call("kafka-topics --describe"):
        described = run(topic, "--describe", "--topic", new_name)
        assert "PartitionCount: 2" in described
        assert "retention.ms=60000" in described
        assert len(re.findall(r"Partition: \d+\s+Leader: \d+", described)) == 2
    with kafka_tools.call("kafka-topics --describe --under-replicated-partitions"):
        assert run(topic, "--describe", "--under-replicated-partitions").strip() == ""
    with kafka_tools.call("kafka-topics --alter --partitions"):
        run(topic, "--alter", "--topic", new_name, "--partitions", "5")
        assert "PartitionCount: 5" in run(topic, "--describe", "--topic", new_name)
    with kafka_tools.call("kafka-topics --delete"):
        run(topic, "--delete", "--topic", new_name)
        assert new_name not in run(topic, "--list").split()


def test_topics_that_cannot_be_are_refused_as_kafka_refuses_them(
    java: Java, servers: str, kafka_tools: Tool, topic: str
) -> None:
    def said(*arguments: str) -> str:
        ran = java(TOOLS + "TopicCommand", "--bootstrap-server", servers, *arguments)
        assert ran.code == 1
        return ran.out + ran.err

    with kafka_tools.call("kafka-topics: errors"):
        assert "already exists" in said("--create", "--topic", topic)
        assert "does not exist" in said("--describe", "--topic", "absent")
        few = said("--alter", "--topic", topic, "--partitions", "1")
        assert "2 partitions already" in few
        bad = said("--create", "--topic", "bad", "--config", "segment.bytes=x")
        assert "Invalid value x for configuration segment.bytes" in bad


# --- configs -------------------------------------------------------------------------------------


def test_configs_of_a_topic(run: Java, kafka_tools: Tool, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool = "kafka.admin.ConfigCommand"
    with kafka_tools.call("kafka-configs --alter --add-config (topic)"):
        run(tool, "--alter", *entity, "--add-config", "retention.ms=12345,segment.bytes=2000000")
    with kafka_tools.call("kafka-configs --describe (topic)"):
        described = run(tool, "--describe", *entity)
        assert "retention.ms=12345" in described
        assert "segment.bytes=2000000" in described
    with kafka_tools.call("kafka-configs --alter --delete-config (topic)"):
        run(tool, "--alter", *entity, "--delete-config", "retention.ms")
        described = run(tool, "--describe", *entity)
        assert "retention.ms" not in described
        assert "segment.bytes=2000000" in described
    with kafka_tools.call("kafka-configs --describe --all (topic)"):
        everything = run(tool, "--describe", "--all", *entity)
        assert "cleanup.policy=delete" in everything
        assert "max.message.bytes=" in everything


def test_configs_of_brokers(run: Java, kafka_tools: Tool) -> None:
    tool = "kafka.admin.ConfigCommand"
    one = ("--entity-type", "brokers", "--entity-name", "1")
    every = ("--entity-type", "brokers", "--entity-default")
    with kafka_tools.call("kafka-configs --describe --all (broker)"):
        assert "log.retention.ms" in run(tool, "--describe", "--all", *one)
    with kafka_tools.call("kafka-configs --alter --add-config (broker)"):
        run(tool, "--alter", *one, "--add-config", "log.retention.ms=7200000")
        assert "log.retention.ms=7200000" in run(tool, "--describe", *one)
    with kafka_tools.call("kafka-configs --alter --delete-config (broker)"):
        run(tool, "--alter", *one, "--delete-config", "log.retention.ms")
        assert "log.retention.ms=7200000" not in run(tool, "--describe", *one)
    with kafka_tools.call("kafka-configs --alter, --describe (cluster default)"):
        run(tool, "--alter", *every, "--add-config", "log.retention.ms=7300000")
        assert "log.retention.ms=7300000" in run(tool, "--describe", *every)
        run(tool, "--alter", *every, "--delete-config", "log.retention.ms")


# --- offsets and records -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "offsets"),
    [
        ("-1", {0: 10, 1: 0}),
        ("latest", {0: 10, 1: 0}),
        ("-2", {0: 0, 1: 0}),
        ("earliest", {0: 0, 1: 0}),
        ("-3", {0: 9}),
        ("max-timestamp", {0: 9}),
        ("-4", {0: 0, 1: 0}),
        ("earliest-local", {0: 0, 1: 0}),
        ("3500", {0: 3}),
    ],
)
def test_get_offsets(
    run: Java, kafka_tools: Tool, filled: str, time: str, offsets: dict[int, int]
) -> None:
    with kafka_tools.call(f"kafka-get-offsets --time {time}"):
        said = run(TOOLS + "GetOffsetShell", "--topic", filled, "--time", time)
        found = {
            int(line.split(":")[1]): int(line.split(":")[2])
            for line in said.split()
            if line.split(":")[2] not in ("", "-1")
        }
        assert found == offsets


def test_delete_records(run: Java, kafka_tools: Tool, filled: str, tmp_path: Path) -> None:
    plan = tmp_path / "offsets.json"
    wanted = {"partitions": [{"topic": filled, "partition": 0, "offset": 4}], "version": 1}
    plan.write_text(json.dumps(wanted))
    with kafka_tools.call("kafka-delete-records"):
        said = run(TOOLS + "DeleteRecordsCommand", "--offset-json-file", str(plan))
        assert f"{filled}-0\tlow_watermark: 4" in said
        offsets = run(TOOLS + "GetOffsetShell", "--topic", filled, "--time", "earliest")
        assert f"{filled}:0:4" in offsets


def test_log_dirs(run: Java, kafka_tools: Tool, filled: str, data_dir: Path) -> None:
    with kafka_tools.call("kafka-log-dirs --describe"):
        said = run(TOOLS + "LogDirsCommand", "--describe", "--topic-list", filled)
        (broker,) = json.loads(said.splitlines()[-1])["brokers"]
        (directory,) = broker["logDirs"]
        assert directory["error"] is None
        assert Path(directory["logDir"]).is_relative_to(data_dir)
        sizes = {one["partition"]: one["size"] for one in directory["partitions"]}
        assert sizes[f"{filled}-0"] > 0
        assert sizes[f"{filled}-1"] == 0


def test_dump_log(java: Java, kafka_tools: Tool, filled: str, data_dir: Path) -> None:
    (log,) = data_dir.rglob(f"{filled}-0/*.log")
    with kafka_tools.call("kafka-dump-log --print-data-log --deep-iteration"):
        ran = java("kafka.tools.DumpLogSegments", "--files", str(log), "--print-data-log")
        assert ran.code == 0
        assert "payload: value 10" in ran.out
        assert "isvalid: true" in ran.out
        assert ran.out.count("| offset:") == 10


# --- producing and consuming ---------------------------------------------------------------------


def test_console_producer_and_consumer(run: Java, kafka_tools: Tool, topic: str) -> None:
    with kafka_tools.call("kafka-console-producer"):
        run(
            TOOLS + "ConsoleProducer", "--topic", topic,
            "--property", "parse.key=true", "--property", "key.separator=:",
            stdin=b"a:one\nb:two\nc:three\n",
        )  # fmt: skip
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        with kafka_tools.call(f"kafka-console-producer --compression-codec {codec}"):
            run(
                TOOLS + "ConsoleProducer", "--topic", topic, "--compression-codec", codec,
                stdin=f"zipped by {codec}\n".encode() * 3,
            )  # fmt: skip
    consumer = TOOLS + "consumer.ConsoleConsumer"
    with kafka_tools.call("kafka-console-consumer --from-beginning"):
        said = run(
            consumer, "--topic", topic, "--from-beginning", "--max-messages", "15",
            "--timeout-ms", "15000", "--property", "print.key=true",
            "--property", "print.timestamp=true",
        )  # fmt: skip
        assert {"one", "two", "three"} <= {line.split("\t")[-1] for line in said.splitlines()}
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            assert said.count(f"zipped by {codec}") == 3
        assert "CreateTime:" in said
    with kafka_tools.call("kafka-console-consumer --partition --offset"):
        said = run(
            consumer, "--topic", topic, "--partition", "0", "--offset", "earliest",
            "--timeout-ms", "3000", "--max-messages", "1",
        )  # fmt: skip
        assert len(said.splitlines()) == 1


def test_performance_tests(
    run: Java, java: Java, servers: str, kafka_tools: Tool, topic: str
) -> None:
    with kafka_tools.call("kafka-producer-perf-test"):
        ran = java(
            TOOLS + "ProducerPerformance", "--topic", topic, "--num-records", "20000",
            "--record-size", "100", "--throughput", "-1",
            "--producer-props", f"bootstrap.servers={servers}",
        )  # fmt: skip
        assert "20000 records sent" in ran.out, ran
    with kafka_tools.call("kafka-consumer-perf-test"):
        said = run(
            TOOLS + "ConsumerPerformance", "--topic", topic, "--messages", "20000",
            "--timeout", "20000",
        )  # fmt: skip
        assert ", 20000, " in said.splitlines()[-1]
    with kafka_tools.call("kafka-e2e-latency"):
        ran = java(TOOLS + "EndToEndLatency", servers, topic, "50", "1", "20")
        assert ran.code == 0, ran
        assert "Percentiles: 50th" in ran.out


def test_verifiable_producer_and_consumer(
    java_process: object, servers: str, kafka_tools: Tool, topic: str
) -> None:
    def events(tool: str, *arguments: str) -> list[dict]:
        # In a Java machine of its own: these two do their last work when it ends.
        said = run_java(TOOLS + tool, "--bootstrap-server", servers, "--topic", topic, *arguments)
        return [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]

    with kafka_tools.call("kafka-verifiable-producer"):
        found = events("VerifiableProducer", "--max-messages", "50", "--acks", "-1")
        assert sum(one["name"] == "producer_send_success" for one in found) == 50
    with kafka_tools.call("kafka-verifiable-consumer"):
        found = events(
            "VerifiableConsumer", "--group-id", f"{topic}-verify",
            "--max-messages", "50", "--reset-policy", "earliest",
        )  # fmt: skip
        assert sum(one["count"] for one in found if one["name"] == "records_consumed") == 50
        assert any(one["name"] == "offsets_committed" and one["success"] for one in found)


# --- the cluster ---------------------------------------------------------------------------------


def test_broker_api_versions_and_cluster_id(
    run: Java, java: Java, servers: str, kafka_tools: Tool
) -> None:
    with kafka_tools.call("kafka-broker-api-versions"):
        said = run(TOOLS + "BrokerApiVersionsCommand")
        assert "Produce(0): 0 to 13 [usable: 13]" in said
        assert "UNKNOWN" not in said
        assert re.search(r"Fetch\(1\): \d+ to 18 \[usable: 18\]", said)
    with kafka_tools.call("kafka-cluster cluster-id"):
        ran = java(TOOLS + "ClusterTool", "cluster-id", "--bootstrap-server", servers)
        assert "Cluster ID: " in ran.out


def test_leader_election(java: Java, servers: str, kafka_tools: Tool, topic: str) -> None:
    with kafka_tools.call("kafka-leader-election --election-type preferred"):
        ran = java(
            TOOLS + "LeaderElectionCommand", "--bootstrap-server", servers,
            "--election-type", "preferred", "--topic", topic, "--partition", "0",
        )  # fmt: skip
        assert ran.code == 0, ran
        assert "Valid replica already elected" in ran.out


def test_reassignments_of_single_replicas(
    java: Java, servers: str, kafka_tools: Tool, topic: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    moves = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}
    plan.write_text(json.dumps(moves))
    tool = TOOLS + "reassign.ReassignPartitionsCommand"
    with kafka_tools.call("kafka-reassign-partitions --list"):
        ran = java(tool, "--bootstrap-server", servers, "--list")
        assert ran.code == 0, ran
        assert "No partition reassignments found" in ran.out
    with kafka_tools.call("kafka-reassign-partitions --verify"):
        ran = java(
            tool, "--bootstrap-server", servers, "--verify",
            "--reassignment-json-file", str(plan), "--preserve-throttles",
        )  # fmt: skip
        assert ran.code == 0, ran
        assert "completed" in ran.out


def test_the_metadata_quorum(java: Java, servers: str, kafka_tools: Tool) -> None:
    tool = TOOLS + "MetadataQuorumCommand"
    with kafka_tools.call("kafka-metadata-quorum describe --status"):
        ran = java(tool, "--bootstrap-server", servers, "describe", "--status")
        assert ran.code == 0, ran
        assert "LeaderId:" in ran.out
        assert "MaxFollowerLag:         0" in ran.out
    with kafka_tools.call("kafka-metadata-quorum describe --replication"):
        ran = java(tool, "--bootstrap-server", servers, "describe", "--replication")
        assert ran.code == 0, ran
        assert "Leader" in ran.out


def test_a_feature_is_refused_by_its_name(java: Java, servers: str, kafka_tools: Tool) -> None:
    ran = java(
        TOOLS + "FeatureCommand",
        *("--bootstrap-server", servers, "upgrade", "--feature", "group.version=1"),
    )
    assert ran.code != 0
    [line] = [line for line in (ran.out + ran.err).splitlines() if "no feature" in line]
    kafka_tools.refused("kafka-features upgrade", line)


def test_features_are_described(run: Java, kafka_tools: Tool) -> None:
    with kafka_tools.call("kafka-features describe"):
        described = run(TOOLS + "FeatureCommand", "describe")
        levels = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", described))
        assert levels["metadata.version"] == "4.1-IV1"
        assert levels["kraft.version"] == "1"


def test_without_an_authorizer_the_tool_says_so(
    java: Java, servers: str, kafka_tools: Tool
) -> None:
    with kafka_tools.call("kafka-acls --list"):
        ran = java(TOOLS + "AclCommand", "--bootstrap-server", servers, "--list")
        assert "SecurityDisabledException: No Authorizer is configured" in ran.out + ran.err


def test_settings_of_groups_subscriptions_and_loggers(
    run: Java, kafka_tools: Tool, new_name: str
) -> None:
    configs = "kafka.admin.ConfigCommand"
    for what, kind, name, setting in (
        ("group", "groups", new_name, "consumer.session.timeout.ms=50000"),
        ("client-metrics", "client-metrics", new_name, "interval.ms=60000"),
        ("broker-logger", "broker-loggers", "1", "bradbury.actors.metrics=ERROR"),
    ):
        entity = ("--entity-type", kind, "--entity-name", name)
        with kafka_tools.call(f"kafka-configs --alter, --describe ({what})"):
            run(configs, *entity, "--alter", "--add-config", setting)
            assert setting in run(configs, *entity, "--describe")
            run(configs, *entity, "--alter", "--delete-config", setting.partition("=")[0])
            assert setting not in run(configs, *entity, "--describe")


def test_replicas_are_verified(
    java_alone: subprocess.Popen[str], kafka_tools: Tool, filled: str
) -> None:
    """The tool sends the newest Fetch without asking, and goes on until it is ended."""
    assert java_alone.stdout is not None
    with kafka_tools.call("kafka-replica-verification"):
        for line in java_alone.stdout:
            if "max lag is" in line:
                break
        assert "max lag is 0 for partition" in line, line


@pytest.fixture
def java_alone(servers: str, filled: str) -> Iterator[subprocess.Popen[str]]:
    arguments = (
        "--broker-list",
        servers,
        "--topics-include",
        filled,
        "--report-interval-ms",
        "100",
    )
    process = subprocess.Popen(
        java_command(TOOLS + "ReplicaVerificationTool", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_a_broker_in_service_is_not_unregistered(
    java: Java, servers: str, kafka_tools: Tool
) -> None:
    with kafka_tools.call("kafka-cluster unregister"):
        ran = java(TOOLS + "ClusterTool", "unregister", "--bootstrap-server", servers, "--id", "1")
        assert "node 1 is in service; stop it first" in ran.out + ran.err


def test_the_log_dump_of_a_copy_finds_nothing_wrong_with_its_indexes(
    java: Java, kafka_tools: Tool, tmp_path: Path
) -> None:
    with bradbury.local(data_dir=str(tmp_path / "data")) as stopped:
        with stopped.admin() as admin:
            admin.create_topic("t", configs={"index.interval.bytes": "100"})
        with bradbury.Producer(stopped.bootstrap_servers) as producer:
            for number in range(20):
                producer.send_batch("t", [f"value {number}" * 10]).result()
    (log,) = (tmp_path / "data").rglob("t-0/*.log")
    shutil.copytree(log.parent, tmp_path / "t-0", dirs_exist_ok=True)
    files = [str(tmp_path / "t-0" / f"{log.stem}{end}") for end in (".log", ".index", ".timeindex")]
    with kafka_tools.call("kafka-dump-log --index-sanity-check"):
        ran = java(
            "kafka.tools.DumpLogSegments", "--index-sanity-check", "--files", ",".join(files)
        )
        assert ran.code == 0, ran
        assert ran.out.count("passed sanity check") == 2
        assert "Mismatch" not in ran.out + ran.err
