"""Does Spark itself get in where a password is asked for, and is it seen nowhere?

The session knows how by a reference, and its workers have no BRADBURY_CLIENT_CONFIG.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import bradbury
from bradbury.pipelines.spark.session import local_session
from bradbury.tests.support.certificates import CertificateAuthority
from bradbury.tests.support.committed_records import committed_records
from bradbury.tests.support.secured_cluster import PASSWORD, USER, secured_cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
]  # long: a Spark session of its own

COUNT = 100
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(authority: CertificateAuthority) -> Iterator[tuple[str, dict[str, Any]]]:
    with secured_cluster(authority) as (cluster, alice):
        with bradbury.Admin(cluster.bootstrap_servers, **alice) as admin:
            for topic in ("numbers", "copies", "streamed"):
                admin.create_topic(topic, 2)
        with bradbury.Producer(cluster.bootstrap_servers, **alice) as producer:
            producer.send_batch("numbers", [b"%d" % n for n in range(COUNT)]).result(60)
        yield cluster.bootstrap_servers, alice


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def spark(
    secured: tuple[str, dict[str, Any]], events: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    servers, alice = secured
    secrets = tmp_path_factory.mktemp("secrets") / "kafka"
    secrets.write_text(f"password={PASSWORD}\n")
    session = local_session(
        master="local[2]",
        short_lived=True,
        bootstrap=servers,
        configs={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        },
        **{**alice, "sasl_password": f"${{file:{secrets}:password}}"},
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def options(secured: Any, authority: CertificateAuthority) -> dict[str, str]:
    """With all that may be secret, in clear."""
    _, alice = secured
    own = Path(authority.sign(USER)).read_text()
    start = own.index("-----BEGIN CERTIFICATE-----")
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.SSL.Truststore.Location": alice["ssl_truststore_location"],
        "kafka.ssl.keystore.key": own[:start],
        "kafka.ssl.keystore.certificate.chain": own[start:],
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{JAAS} required username="{USER}" password="{PASSWORD}";',
    }


def found(secured: tuple[str, dict[str, Any]], topic: str) -> int:
    servers, alice = secured
    return len(committed_records(servers, topic, **alice))


def test_a_session_knows_for_all_its_queries(spark: SparkSession, secured: Any) -> None:
    numbers = spark.read.format("bradbury").option("subscribe", "numbers").load()
    assert numbers.count() == COUNT
    numbers.selectExpr("value").write.format("bradbury").option("topic", "copies").mode(
        "append"
    ).save()
    assert found(secured, "copies") == COUNT


@pytest.mark.long  # the session knows it in each run
def test_options_say_it_for_one_query_and_plans_do_not_show_them(
    spark: SparkSession, secured: Any, options: dict[str, str], events: Path, tmp_path: Path
) -> None:
    numbers = (
        spark.readStream.format("bradbury")
        .options(subscribe="numbers", startingOffsets="earliest", **options)
        .load()
    )
    stream = (
        numbers.selectExpr("value")
        .writeStream.format("bradbury")
        .options(topic="streamed", **options)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    assert found(secured, "streamed") == COUNT
    batch: Any = spark.read.format("bradbury").options(subscribe="numbers", **options).load()
    shown = [str(stream.lastProgress), *(path.read_text() for path in events.iterdir())]
    for execution in (numbers._jdf.queryExecution(), batch._jdf.queryExecution()):  # type: ignore[operator]
        shown += [execution.logical().toString(), execution.analyzed().toString()]
        shown.append(execution.analyzed().toJSON())
    shown += [batch._jdf.queryExecution().toString(), stream._jsq.explainInternal(True)]
    assert any("BatchScan" in text for text in shown)
    key = options["kafka.ssl.keystore.key"].splitlines()[1]
    for text in shown:
        assert PASSWORD not in text
        assert key not in text


def test_a_wrong_password_is_one_clear_line_at_the_end(
    spark: SparkSession, options: dict[str, str]
) -> None:
    wrong = options | {
        "kafka.sasl.jaas.config": options["kafka.sasl.jaas.config"].replace(PASSWORD, "x")
    }
    with pytest.raises(PySparkException) as caught:
        spark.read.format("bradbury").options(subscribe="numbers", **wrong).load().count()
    said = str(caught.value).rpartition("SQLSTATE")[0]  # Spark's own, behind what the worker said
    assert "Traceback" not in said
    [line] = [each for each in said.splitlines() if "AuthenticationFailed" in each]
    assert "not authenticated: " in line
    assert "invalid credentials" in line
    with pytest.raises(PySparkException, match="AuthenticationFailed"):
        spark.createDataFrame([(b"x",)], "value binary").write.format("bradbury").options(
            topic="copies", **wrong
        ).mode("append").save()
