"""Is a cluster in another one after a cut-over: records, configs, groups; and what is refused?"""

import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import pytest

import bradbury
from bradbury.pipelines.migrations.verification import PartitionCheck
from bradbury.pipelines.mirrors.mirror_settings import MirrorFailed, MirrorProgress

START_MS = time.time_ns() // 1_000_000 - 3_600_000
QUIET: dict[str, float] = {"quiet_s": 0.0, "timeout_s": 10.0}


@pytest.fixture
def old() -> Iterator[str]:
    with bradbury.local(config={"log.retention.check.interval.ms": 50}) as running:
        yield running.bootstrap_servers


@pytest.fixture
def new() -> Iterator[str]:
    with bradbury.local() as running:
        yield running.bootstrap_servers


@pytest.fixture
def there(old: str, new: str) -> bradbury.Migration:
    return bradbury.Migration(old, bootstrap_servers=new)


@pytest.fixture
def back(old: str, new: str) -> bradbury.Migration:
    return bradbury.Migration(new, bootstrap_servers=old)


def make(servers: str, topic: str, partitions: int = 1, **configs: str) -> None:
    with bradbury.Admin(servers) as admin:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        admin.create_topic(topic, partitions, configs=named)


def send(servers: str, topic: str, numbers: range, partition: int = 0) -> None:
    with bradbury.Producer(servers) as producer:
        for number in numbers:
            producer.send(
                topic,
                b"%d" % number,
                key=b"k%d" % (number % 5),
                partition=partition,
                headers=[("n", b"%d" % number)],
            )


def send_in_transactions(servers: str, topic: str, numbers: range) -> None:
    """Three records each; every third one is aborted."""
    with bradbury.Producer(servers, transactional_id=topic) as producer:
        for number in numbers:
            producer.begin()
            for _ in range(3):
                producer.send(topic, b"%d" % number, partition=0)
            if number % 3:
                producer.commit()
            else:
                producer.flush()
                producer.abort()


def commit(servers: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    with bradbury.Admin(servers) as admin:
        admin.alter_group_offsets(group, offsets)


def committed(servers: str, group: str) -> dict[tuple[str, int], int]:
    with bradbury.Admin(servers) as admin:
        return {tuple(key): one.offset for key, one in admin.group_offsets(group).items()}


def records(
    servers: str, topic: str, start: int = 0, partition: int = 0
) -> list[tuple[int, bytes]]:
    """Offsets and values of what is committed."""
    found: list[tuple[int, bytes]] = []
    with (
        bradbury.Admin(servers) as admin,
        bradbury.Consumer(
            bootstrap=servers, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer,
    ):
        key = (topic, partition)
        ends = admin.list_offsets([key])
        consumer.assign([key])
        consumer.seek(key, max(start, admin.list_offsets([key], "earliest")[key].offset))
        while consumer.position(key) < ends[key].offset:
            table = consumer.poll(timeout_ms=500)
            found += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    return found


def values(servers: str, topic: str, start: int = 0) -> list[bytes]:
    return [value for _, value in records(servers, topic, start)]


def test_there_step_by_step(old: str, new: str, there: bradbury.Migration) -> None:
    make(old, "orders", 2, retention_ms="86400000")
    send(old, "orders", range(100))
    commit(old, "billing", {("orders", 0): 60, ("orders", 1): 0})
    assert there.status().state == "not begun"
    assert there.follow(continuous=False).records == 100
    send(old, "orders", range(100, 130))
    status = there.status()
    assert (status.state, status.behind) == ("copying", 30)
    assert there.follow(continuous=False).records == 30
    assert "stop the producers" in there.status().next_step
    done = there.cut_over(**QUIET)
    assert done.is_done
    assert [(one.group, one.again) for one in done.groups] == [("billing", ())]
    assert sum(one.source_sum.records for one in done.checks) == 130
    assert values(new, "orders") == values(old, "orders")
    there_at = committed(new, "billing")
    assert values(new, "orders", there_at["orders", 0]) == [b"%d" % n for n in range(60, 130)]
    assert there_at["orders", 1] == 0
    assert there.status().state == "cut over"
    assert f"bootstrap.servers={new}" in there.status().next_step
    with bradbury.Admin(new) as admin:
        assert admin.describe_configs("orders")["retention.ms"].value == "86400000"
    with pytest.raises(MirrorFailed, match="is cut over"):
        there.follow(continuous=False)


@pytest.mark.long  # one more way; there and back are tried in each run
def test_every_offset_of_a_group_is_exact_where_the_source_has_gaps(
    old: str, new: str, there: bradbury.Migration
) -> None:
    make(old, "paid")
    for part in range(4):  # so that there are several pieces of the map
        send_in_transactions(old, "paid", range(part * 6, part * 6 + 6))
        there.follow(continuous=False)
    everything = records(old, "paid")
    offsets = range(everything[-1][0] + 3)
    for offset in offsets:
        commit(old, f"at-{offset}", {("paid", 0): offset})
    done = there.cut_over(**QUIET)
    assert all(one.again == () for one in done.groups)
    for offset in offsets:
        unread = [value for at, value in everything if at >= offset]
        start = committed(new, f"at-{offset}")["paid", 0]
        assert values(new, "paid", start) == unread, offset


def test_back_again_only_with_what_is_new(
    old: str, new: str, there: bradbury.Migration, back: bradbury.Migration
) -> None:
    make(old, "orders")
    send(old, "orders", range(50))
    commit(old, "billing", {("orders", 0): 20})
    there.follow(continuous=False)
    with pytest.raises(MirrorFailed, match="in progress; cut it over first"):
        back.follow(continuous=False)
    there.cut_over(**QUIET)
    send(new, "orders", range(50, 80))
    make(new, "younger")
    send(new, "younger", range(5))
    before = committed(new, "billing")
    assert back.follow(continuous=False).records == 35
    assert there.status().state == "going back"
    commit(new, "later", {("orders", 0): records(new, "orders")[60][0]})
    assert back.cut_over(**QUIET).is_done
    assert values(old, "orders") == [b"%d" % n for n in range(80)] == values(new, "orders")
    assert values(old, "younger") == [b"%d" % n for n in range(5)]
    for group, at in (("billing", before["orders", 0]), ("later", None)):
        at = committed(new, group)["orders", 0] if at is None else at
        assert values(old, "orders", committed(old, group)["orders", 0]) == values(
            new, "orders", at
        )
    # And there once more.
    send(old, "orders", range(80, 90))
    assert there.follow(continuous=False).records == 10
    assert there.cut_over(**QUIET).is_done
    assert values(new, "orders") == [b"%d" % n for n in range(90)]


def test_what_comes_late_is_found_and_brought_and_does_not_go_back(
    old: str, new: str, there: bradbury.Migration, back: bradbury.Migration
) -> None:
    make(old, "orders")
    send(old, "orders", range(10))
    there.follow(continuous=False)
    there.cut_over(**QUIET)
    send(new, "orders", range(100, 105))
    commit(new, "behind", {("orders", 0): records(new, "orders")[12][0]})
    send(old, "orders", range(10, 13))
    assert there.status().late == 3
    with pytest.raises(MirrorFailed, match="got records after the cut-over"):
        back.follow(continuous=False)
    late = there.cut_over(**QUIET)
    assert (late.is_late, late.records, len(late.checks)) == (True, 3, 1)
    assert there.status().late == 0
    send(new, "orders", range(105, 110))
    assert back.follow(continuous=False).records == 10
    done = back.cut_over(**QUIET)
    assert done.is_done
    assert sorted(values(old, "orders")) == sorted(values(new, "orders"))
    assert len(values(old, "orders")) == 23
    # It has not read what came late; that lies earlier in the other cluster.
    assert [one.again for one in done.groups] == [(bradbury.TopicPartition("orders", 0),)]
    unread = values(old, "orders", committed(old, "behind")["orders", 0])
    assert set(unread) >= {b"10", b"11", b"12", b"102", b"109"}


class Follower:
    """A migration that is followed in a thread, from when all is copied on, until it ends."""

    def __init__(self, move: bradbury.Migration) -> None:
        self.failures: list[Exception] = []
        self._copied, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._follow, args=[move])

    def _follow(self, move: bradbury.Migration) -> None:
        try:
            move.follow(stop=self._stop, on_progress=self._on_progress)
        except Exception as error:
            self.failures.append(error)

    def _on_progress(self, progress: MirrorProgress) -> None:
        if progress.behind == 0:
            self._copied.set()

    def ends(self) -> bool:
        """Whether it ends by itself."""
        self._thread.join(60)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._copied.wait(60), self.failures
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)


def test_one_that_follows_ends_with_the_cut_over(
    old: str, new: str, there: bradbury.Migration
) -> None:
    make(old, "orders")
    send(old, "orders", range(10))
    with Follower(there) as follower:
        assert there.cut_over(**QUIET).is_done
        assert follower.ends()
    assert follower.failures == []
    assert values(new, "orders") == values(old, "orders")


def test_one_that_is_fenced_while_the_cut_over_still_compares_ends_without_an_error(
    old: str, new: str, there: bradbury.Migration
) -> None:
    make(old, "orders")
    send(old, "orders", range(10))
    with bradbury.Consumer("orders", group="ships", bootstrap=old) as consumer:
        consumer.poll(10_000)
        consumer.commit()
    quick = bradbury.Migration(old, bootstrap_servers=new, sync_groups_interval_s=0.05)
    steps = []
    with Follower(quick) as follower:

        def on_step(step: str) -> None:
            steps.append(step)
            if step == "comparing both sides":
                assert there.status().state == "cutting over"
                assert follower.ends(), "before the cut-over does"

        assert there.cut_over(on_step=on_step, **QUIET).is_done
    assert follower.failures == []
    assert "comparing both sides" in steps
    assert there.status().state == "cut over"


def test_a_cut_over_that_is_fenced_by_one_that_follows_changes_nothing(
    old: str, new: str, there: bradbury.Migration
) -> None:
    make(old, "orders")
    send(old, "orders", range(10))
    there.follow(continuous=False)
    with bradbury.Admin(old) as admin:
        admin.alter_configs("orders", {"retention.ms": "777000000"})

    def on_step(step: str) -> None:
        if step == "comparing both sides":
            there.follow(continuous=False)

    with pytest.raises(MirrorFailed, match="another `bradbury migrate` .* has taken over"):
        there.cut_over(on_step=on_step, **QUIET)
    assert there.status().state == "in step"
    with bradbury.Admin(new) as admin:
        assert admin.describe_configs("orders")["retention.ms"].value != "777000000"
    assert there.cut_over(**QUIET).is_done
    with bradbury.Admin(new) as admin:
        assert admin.describe_configs("orders")["retention.ms"].value == "777000000"


@pytest.mark.long  # one more way; there and back are tried in each run
def test_times_of_brokers_stay_and_come_back_as_a_config(
    old: str, new: str, there: bradbury.Migration
) -> None:
    make(old, "logged", message_timestamp_type="LogAppendTime", min_insync_replicas="2")
    send(old, "logged", range(10))
    there.follow(continuous=False)
    with bradbury.Admin(new) as admin:
        assert admin.describe_configs("logged")["message.timestamp.type"].value == "CreateTime"
        done = there.cut_over(**QUIET)
        assert all(one.is_same for one in done.checks)
        assert admin.describe_configs("logged")["message.timestamp.type"].value == "LogAppendTime"
        assert "min.insync.replicas=2 was not set" in done.remarks[0]
        send(old, "logged", range(10, 13))
        late = there.cut_over(**QUIET)
        assert (late.records, [one.is_same for one in late.checks]) == (3, [True])
        assert admin.describe_configs("logged")["message.timestamp.type"].value == "LogAppendTime"


def test_records_older_than_the_source_would_take_now_go_and_the_bound_follows_at_the_cut_over(
    old: str, new: str, there: bradbury.Migration, back: bradbury.Migration
) -> None:
    before, after = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"

    def send_old(servers: str) -> None:
        with bradbury.Admin(servers) as admin, bradbury.Producer(servers) as producer:
            admin.alter_configs("orders", {before: "86400000"})
            producer.send("orders", b"x", timestamp_ms=START_MS).result()
            admin.alter_configs("orders", {before: "1000"})

    def bounds(servers: str) -> tuple[str | None, str | None]:
        with bradbury.Admin(servers) as admin:
            configs = admin.describe_configs("orders")
            return configs[before].value, configs[after].value

    make(old, "orders", message_timestamp_after_max_ms="7000")
    send_old(old)
    assert there.follow(continuous=False).records == 1
    assert there.cut_over(**QUIET).is_done
    assert bounds(new) == ("1000", "7000")
    send_old(old)
    assert there.cut_over(**QUIET).records == 1, "late"
    assert bounds(new) == ("1000", "7000")
    send_old(new)
    with bradbury.Admin(new) as admin:
        admin.alter_configs("orders", unset=[after])
        default = admin.describe_configs("orders")[after].value
    assert back.follow(continuous=False).records == 1
    assert back.cut_over(**QUIET).is_done
    assert bounds(old) == ("1000", default)


def checks_of(move: bradbury.Migration) -> list[PartitionCheck]:
    return move.verify(again=True)


@pytest.mark.long  # one more way; there and back are tried in each run
def test_compaction_and_retention_do_not_hide_what_is_the_same(
    old: str, new: str, there: bradbury.Migration
) -> None:
    make(old, "state", cleanup_policy="compact", segment_bytes="1048576")
    make(old, "orders")
    send(old, "state", range(100))
    send(old, "orders", range(100))
    there.follow(continuous=False)
    with bradbury.Admin(old) as admin:
        admin.delete_records({("orders", 0): 30})
    with bradbury.Admin(new) as admin:
        admin.delete_records({("orders", 0): 50})
    orders, state = checks_of(there)
    assert (orders.is_same, orders.source_sum.records) == (True, 50)
    assert "retention deleted the target's records below 50" in orders.remark
    assert (state.is_same, state.kind, state.source_sum.records) == (True, "latest per key", 5)


def test_a_difference_is_found_and_nothing_is_cut_over(
    old: str, new: str, there: bradbury.Migration
) -> None:
    make(old, "orders")
    send(old, "orders", range(10))
    there.follow(continuous=False)
    send(new, "orders", range(99, 100))
    send(old, "orders", range(10, 20))
    done = there.cut_over(**QUIET)
    assert not done.is_done
    assert [one.source_sum.records - one.target_sum.records for one in done.checks] == [-1]
    assert there.status().state == "in step"


@pytest.mark.long  # one more way; there and back are tried in each run
def test_a_topic_that_was_deleted_in_the_target_is_copied_and_compared_again(
    old: str, new: str, there: bradbury.Migration
) -> None:
    make(old, "orders")
    send(old, "orders", range(10))
    there.follow(continuous=False)
    send(old, "orders", range(10, 20))
    there.follow(continuous=False)
    assert all(one.is_same for one in there.verify())
    with bradbury.Admin(new) as admin:
        admin.delete_topic("orders")
    again = bradbury.Migration(old, bootstrap_servers=new, fail_on_data_loss=False)
    assert again.follow(continuous=False).records == 20
    assert there.cut_over(**QUIET).is_done
    assert values(new, "orders") == values(old, "orders")


def test_a_topic_of_the_target_is_taken_if_it_is_empty(
    old: str, new: str, there: bradbury.Migration
) -> None:
    make(old, "orders", 2)
    make(new, "orders", 2)
    send(old, "orders", range(10))
    assert there.follow(continuous=False).records == 10


def test_a_topic_of_the_target_that_has_records_is_left_alone(
    old: str, new: str, there: bradbury.Migration
) -> None:
    make(old, "orders", 2)
    make(new, "orders", 2)
    send(new, "orders", range(1))
    with pytest.raises(MirrorFailed, match="records that this migration did not copy"):
        there.follow(continuous=False)


def test_what_is_refused(old: str, new: str, there: bradbury.Migration) -> None:
    make(old, "orders")
    make(new, "orders", 4)
    with pytest.raises(MirrorFailed, match="with 4 partitions and not 1"):
        there.follow(continuous=False)
    with pytest.raises(MirrorFailed, match="one cluster"):
        bradbury.Migration(old, bootstrap_servers=old).status()
    other = bradbury.Migration(old, bootstrap_servers=new, topics="absent")
    with pytest.raises(MirrorFailed, match="no migration from .* is in progress"):
        bradbury.Migration(new, bootstrap_servers=old).cut_over(**QUIET)
    with pytest.raises(MirrorFailed, match="no topic of .* matches"):
        other.follow(continuous=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "("}, "not a valid regular expression"),
        ({"groups": ["a", "("]}, "not a valid regular expression"),
        ({"topics": []}, "topics is empty"),
        ({"sync_groups_interval_s": 0}, "sync_groups_interval_s=0"),
    ],
)
def test_arguments_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bradbury.Migration("127.0.0.1:1", bootstrap_servers="127.0.0.1:2", **options)


@pytest.mark.long  # one more way; there and back are tried in each run
def test_the_source_has_to_come_to_rest(old: str, there: bradbury.Migration) -> None:
    make(old, "orders")
    send(old, "orders", range(10))
    there.follow(continuous=False)
    with bradbury.Producer(old, transactional_id="open") as producer:
        producer.begin()
        producer.send("orders", b"open", partition=0).result(60)
        with pytest.raises(MirrorFailed, match=r"a transaction is open in .*orders"):
            there.cut_over(quiet_s=0, timeout_s=0)
        producer.commit()
    with bradbury.Consumer("orders", group="live", bootstrap=old) as consumer:
        consumer.poll(timeout_ms=10_000)
        with pytest.raises(MirrorFailed, match="members in the source: live"):
            there.cut_over(quiet_s=0, timeout_s=0)
        assert there.cut_over(allow_live_groups=True, **QUIET).is_done
