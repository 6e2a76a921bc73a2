"""Are several clusters' topics kept in one while the program does other things?"""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

import bradbury
from bradbury.pipelines.mirrors.mirror_settings import MirrorFailed
from bradbury.protocol.errors import ProducerFenced
from bradbury.tests.support.committed_records import committed_records

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sources() -> Iterator[dict[str, str]]:
    with bradbury.local() as north, bradbury.local() as south:
        for each in (north, south):
            with each.admin() as admin:
                admin.create_topic("departures", 2)
        yield {"north": north.bootstrap_servers, "south": south.bootstrap_servers}


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def values(bootstrap: str, topic: str) -> list[str]:
    return [each.value.decode() for each in committed_records(bootstrap, topic)]


def test_two_clusters_come_together_and_a_mirror_that_ends_says_why(
    sources: dict[str, str], bootstrap: str
) -> None:
    def produce(numbers: range) -> None:
        for alias, servers in sources.items():
            with bradbury.Producer(servers) as producer:
                for number in numbers:
                    producer.send("departures", f"{alias}-{number}")

    produce(range(10))
    with bradbury.Mirror("departures", sources, bootstrap_servers=bootstrap) as mirror:
        until(lambda: all(each.records == 10 for each in mirror.progress().values()))
        produce(range(10, 20))
        until(lambda: all(each.records == 20 for each in mirror.progress().values()))
        mirror.wait(0.01)
        assert mirror.failures() == {}
    for alias in sources:
        wanted = sorted(f"{alias}-{number}" for number in range(20))
        assert sorted(values(bootstrap, f"{alias}.departures")) == wanted

    first = bradbury.Mirror("departures", sources, bootstrap_servers=bootstrap)
    try:
        produce(range(20, 21))
        until(lambda: all(each.records for each in first.progress().values()))
        north = {"north": sources["north"]}
        with bradbury.Mirror("departures", north, bootstrap_servers=bootstrap):
            # The second one's start ends the first one, which sees it when it has more to copy.
            until(lambda: produce(range(21, 22)) or bool(first.failures()))
            with pytest.raises(MirrorFailed, match="the mirror of north failed") as failed:
                first.wait(60)
            assert isinstance(failed.value.__cause__, ProducerFenced)
            before = first.progress()["south"].records
            produce(range(22, 23))
            until(lambda: first.progress()["south"].records > before)  # it goes on
        with pytest.raises(MirrorFailed):
            first.close()
    finally:
        with contextlib.suppress(MirrorFailed):
            first.close()


def test_what_cannot_be_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="sources is empty"):
        bradbury.Mirror("departures", {})
    with pytest.raises(ValueError, match="alias is 'a b'"):
        bradbury.Mirror("departures", {"a b": "127.0.0.1:1"})
    with pytest.raises(TypeError, match="alias cannot be given to Mirror"):
        bradbury.Mirror("departures", {"a": "127.0.0.1:1"}, alias="b")
    with pytest.raises(MirrorFailed, match="policy is 'none'"):
        bradbury.Mirror("departures", {"a": "127.0.0.1:1"}, policy="none").wait(60)
