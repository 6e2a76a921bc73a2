"""Every API at every version is asked oddly, here and at Apache Kafka; what differs is explained.

An explanation is a row of docs/deviations.md (tests/compatibility/raw/raw_differences). The scenes alone are
compared in every run of the tests, with what Kafka was found to answer (kafka_answers.json).
"""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bradbury
from bradbury.benchmarks.support.kafka_broker import KafkaBroker
from bradbury.handlers.server.table import APIS
from bradbury.tests.compatibility.raw.raw_comparison import (
    Difference,
    Server,
    api_name,
    differences,
)
from bradbury.tests.compatibility.raw.raw_differences import KNOWN, rows
from bradbury.tests.compatibility.raw.raw_requests import oddities
from bradbury.tests.compatibility.raw.raw_scenes import scenes
from bradbury.tests.compatibility.support.kafka_jars import CACHE, require_kafka
from bradbury.tests.support.wire.sample_requests import sample_request

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).with_name("kafka_answers.json")
CONFIG = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
Answers = dict[str, Any]


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """A scene sets the level of the root logger, and the cluster is in this process."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)


def of_scenes(server: Server) -> Answers:
    sample = server.sample("t-99-0")
    answers = {}
    for what, request, version in scenes(sample, server.node_id):
        answers[f"{api_name(request)} {version}: {what}"] = server.ask(request, version)
        server.wait_until_applied()
    return answers


def of_everything(address: str) -> tuple[Answers, Answers]:
    """What is answered to odd requests of every API and version, and in the scenes."""
    server = Server(address)
    server.open()
    try:
        answers = {}
        for api in APIS.values():
            for version in range(api.lowest, api.highest + 1):
                sample = server.sample(f"t-{api.key}-{version}")
                for oddity in oddities(sample_request(api.key, version, sample), version):
                    # Anew for each: some name a topic or a group that is not there yet.
                    request = oddity.of(sample_request(api.key, version, sample))
                    label = f"{api.name} {version}: {oddity.name}"
                    answers[label] = server.ask(request, version)
        return answers, of_scenes(server)
    finally:
        server.close()


def plain(answers: Answers) -> Answers:
    """As they are after having been written down."""
    written: Answers = json.loads(json.dumps(answers, default=repr))
    return written


def compared(kafka: Answers, ours: Answers) -> Iterator[Difference]:
    assert kafka.keys() == ours.keys()
    for label in kafka:
        yield from differences(label, kafka[label], ours[label])


def unexplained(found: list[Difference]) -> list[str]:
    return [str(each) for each in found if not any(known.explains(each) for known in KNOWN)]


def test_every_explanation_has_a_row_in_the_document() -> None:
    assert {known.row for known in KNOWN} <= rows()


def test_scenes_end_as_in_kafka() -> None:
    with bradbury.local(config=CONFIG) as cluster:
        server = Server(cluster.bootstrap_servers)
        server.open()
        try:
            ours = of_scenes(server)
        finally:
            server.close()
    found = list(compared(json.loads(RECORDED.read_text()), plain(ours)))
    assert unexplained(found) == []


@pytest.mark.deep
@pytest.mark.java
def test_odd_requests_are_answered_as_kafka_answers_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    with KafkaBroker(tmp_path, heap="512m") as broker:
        kafka, kafka_scenes = of_everything(broker.bootstrap_servers)
    with bradbury.local(config=CONFIG) as cluster:
        ours, our_scenes = of_everything(cluster.bootstrap_servers)
    found = list(compared(kafka | kafka_scenes, ours | our_scenes))
    counts: Counter[str] = Counter()
    idle = set(KNOWN)
    for each in found:
        explaining = [known for known in KNOWN if known.explains(each)]
        idle.difference_update(explaining)
        counts.update({known.row for known in explaining[:1]})
    with capsys.disabled():
        print(f"\n{len(ours | our_scenes)} odd requests; of {len(found)} differences:")
        for row, count in counts.most_common():
            print(f"  {count:5}  {row}")
    wrong = unexplained(found)
    assert not wrong, "\n".join(wrong)
    assert not idle, "explanations of what is not there any more"
    if plain(kafka_scenes) != json.loads(RECORDED.read_text()):
        new = CACHE / RECORDED.name
        new.write_text(written(kafka_scenes))
        pytest.fail(f"Kafka answers otherwise than {RECORDED} says; see {new}")


def written(answers: Answers) -> str:
    return json.dumps(answers, default=repr, indent=1) + "\n"
