"""Does Spark read and write where tokens (OAUTHBEARER) are asked for, in its driver and its workers?"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bradbury.tests.support.committed_records import committed_records
from tests.live.security.token_issuer import CLIENT, SECRET, Issuer, TokenScene, token_scene

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COUNT = 100
JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
OAUTH = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "OAUTHBEARER"}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenScene]:
    targets = ("from-file", "from-endpoint", "from-names")
    with token_scene(tmp_path_factory.mktemp("keys"), COUNT, *targets) as running:
        yield running


@pytest.mark.parametrize("way", ["file", "endpoint", "names"])
def test_a_stream_from_topic_to_topic_by_a_token(
    way: str, spark: SparkSession, scene: TokenScene, tmp_path: Path
) -> None:
    """Of a file; of an endpoint, with a secret as Kafka 4.0 says it and as 4.1 does."""
    token = tmp_path / "token"
    token.write_text(scene.issuer.token("etl-job"))
    name = "kafka.sasl.oauthbearer.client.credentials.client"
    options = {
        "kafka.bootstrap.servers": scene.servers,
        "kafka.sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        **OAUTH,
    }
    if way != "file":
        options["kafka.sasl.oauthbearer.token.endpoint.url"] = scene.endpoint.url
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
    assert len(committed_records(scene.inside, f"from-{way}")) == COUNT
    batch = spark.read.format("bradbury").options(subscribe="numbers", **options).load()
    assert batch.count() == COUNT


def test_a_token_of_another_issuer_is_refused_in_one_line(
    spark: SparkSession, scene: TokenScene, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(Issuer(tmp_path, "theirs").token("etl-job"))
    options = {
        "kafka.bootstrap.servers": scene.servers,
        "kafka.sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        **OAUTH,
    }
    with pytest.raises(PySparkException) as caught:
        spark.read.format("bradbury").options(subscribe="numbers", **options).load().count()
    said = str(caught.value)
    assert "AuthenticationFailed" in said
    assert token.read_text() not in said
