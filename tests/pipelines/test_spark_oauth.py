"""Does Spark read and write where tokens (OAUTHBEARER) are asked for, in its driver and its workers?"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import bradbury
from tests.live.security.token_issuer import (
    CLIENT,
    SECRET,
    Issuer,
    TokenEndpoint,
    config,
    token_endpoint,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COUNT = 100
JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
OAUTH = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "OAUTHBEARER"}


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("keys"), "ours")


@pytest.fixture(scope="module")
def endpoint(issuer: Issuer) -> Iterator[TokenEndpoint]:
    with token_endpoint(issuer) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(issuer: Issuer) -> Iterator[bradbury.LocalCluster]:
    with bradbury.local(config=config(issuer)) as running:
        with bradbury.Admin(running.bootstrap_servers) as admin:
            for topic in ("numbers", "from-file", "from-endpoint", "from-names"):
                admin.create_topic(topic, 2)
        with bradbury.Producer(running.bootstrap_servers) as producer:
            producer.send_batch("numbers", [b"%d" % number for number in range(COUNT)]).result(60)
        yield running


def counted(guarded: bradbury.LocalCluster, topic: str) -> int:
    """Records that are committed."""
    with bradbury.Consumer(
        topic,
        bootstrap=guarded.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        found = 0
        while found < COUNT:
            table = consumer.poll(60_000)
            assert len(table), f"only {found} have come"
            found += len(table)
    return found


@pytest.mark.parametrize("way", ["file", "endpoint", "names"])
def test_a_stream_from_topic_to_topic_by_a_token(
    way: str,
    spark: SparkSession,
    guarded: bradbury.LocalCluster,
    issuer: Issuer,
    endpoint: TokenEndpoint,
    tmp_path: Path,
) -> None:
    """Of a file; of an endpoint, with a secret as Kafka 4.0 says it and as 4.1 does."""
    token = tmp_path / "token"
    token.write_text(issuer.token("etl-job"))
    name = "kafka.sasl.oauthbearer.client.credentials.client"
    options = {
        "kafka.bootstrap.servers": guarded.bootstrap_servers_of("CLIENT"),
        "kafka.sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        **OAUTH,
    }
    if way != "file":
        options["kafka.sasl.oauthbearer.token.endpoint.url"] = endpoint.url
    if way == "endpoint":
        options["kafka.sasl.jaas.config"] = f'{JAAS} clientId="{CLIENT}" clientSecret="{SECRET}";'
    elif way == "names":
        options |= {f"{name}.id": CLIENT, f"{name}.secret": SECRET}
    stream = (
        spark.readStream.format("bradbury")
        .options(subscribe="numbers", startingOffsets="earliest", **options)
        .load()
        .selectExpr("value")
        .writeStream.format("bradbury")
        .options(topic=f"from-{way}", **options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    assert counted(guarded, f"from-{way}") == COUNT
    batch = spark.read.format("bradbury").options(subscribe="numbers", **options).load()
    assert batch.count() == COUNT


def test_a_token_of_another_issuer_is_refused_in_one_line(
    spark: SparkSession, guarded: bradbury.LocalCluster, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(Issuer(tmp_path, "theirs").token("etl-job"))
    options = {
        "kafka.bootstrap.servers": guarded.bootstrap_servers_of("CLIENT"),
        "kafka.sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        **OAUTH,
    }
    with pytest.raises(PySparkException) as caught:
        spark.read.format("bradbury").options(subscribe="numbers", **options).load().count()
    said = str(caught.value)
    assert "AuthenticationFailed" in said
    assert token.read_text() not in said
