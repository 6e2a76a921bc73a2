"""Damage that is healed while something else happens, told step by step."""

from random import Random
from typing import Any

import pytest

from bradbury.replication.effects import SendRepairFetch
from bradbury.replication.logs import segment_healer
from bradbury.replication.logs.segment_healer import SegmentHealer
from bradbury.tests.simulation.world.simulated_bench import Bench

LONG_MS = 4_000


def three_replicas() -> Bench:
    bench = Bench(segment_bytes=300)
    bench.decide(1, 1, (1, 2, 3))
    bench.append(1, 12)
    bench.run()
    assert len(bench.log(3).segments) > 2
    assert len(bench.records(3)) == 12
    return bench


@pytest.mark.parametrize("segment", [0, 1, -1], ids=["first", "second", "active"])
def test_what_rots_is_fetched_from_another_replica(segment: int) -> None:
    bench = three_replicas()
    written = bench.records(3)
    bench.rot(3, segment)
    if segment == -1:  # nobody looks at it before it is closed
        bench.append(1, 4)
        written = None
    bench.run(LONG_MS)
    assert not bench.damage(3)
    assert bench.records(3) == bench.records(1)
    assert written in (None, bench.records(3))


def test_where_the_likeliest_does_not_answer_the_next_one_is_asked() -> None:
    bench = three_replicas()
    bench.separate({1}, {3})
    bench.rot(3)
    bench.run(LONG_MS)
    assert not bench.damage(3)
    assert bench.records(3) == bench.records(1)


def test_and_would_not_be_healed_if_only_the_likeliest_were_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = segment_healer.segment_sources
    monkeypatch.setattr(
        segment_healer, "segment_sources", lambda *arguments: original(*arguments)[:1]
    )
    bench = three_replicas()
    bench.separate({1}, {3})
    bench.rot(3)
    bench.run(LONG_MS)
    assert bench.damage(3)


def test_where_nobody_answers_it_is_healed_when_somebody_does() -> None:
    bench = three_replicas()
    bench.separate({1, 2}, {3})
    bench.rot(3)
    bench.run(LONG_MS)
    assert bench.damage(3)
    bench.join()
    bench.run(60_000)
    assert not bench.damage(3)
    assert bench.records(3) == bench.records(1)


def test_readers_are_told_that_records_are_lost_when_those_that_may_have_them_are_gone() -> None:
    """Attempts have failed; new damage gives hope again, as the others are there, and they end."""
    bench = three_replicas()
    bench.separate({1, 2}, {3})
    bench.rot(3)
    bench.run(30_000)
    damage = bench.log(3).damage
    assert not damage.may_heal
    bench.rot(3, 1)
    bench.run(2 * LONG_MS)
    assert len(damage.ranges) == 2
    assert damage.may_heal
    bench.fence(1, 2, to=(3,))
    bench.run(2 * segment_healer.LAST_RETRY_MS)
    assert not damage.may_heal


def test_what_is_truncated_while_it_is_fetched_is_not_put_in_its_place() -> None:
    bench = three_replicas()
    bench.rot(3, 1)
    log, node = bench.log(3), bench.nodes[3]
    scrubber = node.logs.scrubber
    cut_at = log.segments[1].base_offset + 2
    healed: list[int] = []

    def cut_and_send(effect: SendRepairFetch) -> None:
        if not healed:
            log.truncate_to(cut_at)
        healed.append(scrubber.healer.healed)
        scrubber._send_fetch(effect)

    node.driver.on(SendRepairFetch, cut_and_send)
    bench.run(LONG_MS)
    assert len(healed) > 1, "what was left of it is asked for again"
    assert healed[1] == 0, "what was cut is not put in its place"
    assert scrubber.healer.healed == 1
    assert not bench.damage(3)
    assert bench.records(3) == bench.records(1)[:cut_at]


class OfTheLast(Random):
    """Takes the last of everything."""

    def choice(self, found: Any) -> Any:
        return found[-1]


def test_what_was_not_committed_is_not_mended_with_what_was() -> None:
    """A former leader has two records that nobody else has, and the second rots. What is committed
    there instead follows another first record.
    """
    bench = Bench(segment_bytes=300)
    bench.decide(3, 1, (1, 2, 3))
    bench.separate({3}, {1, 2})
    bench.append(3, 2)
    bench.decide(1, 2, (1, 2))
    bench.append(1, 2)
    bench.run()
    log = bench.log(3)
    log.flushing.flush()
    assert bench.nodes[3].disk.rot(OfTheLast(), log.segments.active.files.path)
    bench.join()
    bench.separate({1}, {3})  # it cannot follow, but ask the other follower
    bench.run(LONG_MS)
    assert bench.epochs(3) == [1, 1]
    bench.join()
    bench.run(LONG_MS)
    assert bench.epochs(3) == [2, 2]
    assert bench.records(3) == bench.records(1)


def test_a_follower_does_not_copy_damage_and_its_leader_is_healed() -> None:
    """A new replica needs what the leader cannot read any more."""
    bench = three_replicas()
    bench.rot(1)
    bench.nodes[3].replace_disk()
    bench.nodes[3].start()
    bench.tell(3)
    bench.run(LONG_MS)
    assert not bench.damage(1)
    assert bench.records(3) == bench.records(1) == bench.records(2)


def test_damage_that_is_not_committed_is_no_reason_to_keep_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = three_replicas()
    bench.separate({1}, {2, 3})
    bench.append(1, 6)
    bench.run()
    given_up: list[int] = []
    for node in bench.nodes.values():
        healer = node.logs.scrubber.healer
        monkeypatch.setattr(
            healer, "_give_up_leadership", lambda key, node=node: given_up.append(node.node_id)
        )
    bench.rot(1, -2)
    bench.join()
    bench.run(10 * LONG_MS)
    assert set(given_up) == {1}
    assert bench.damage(1)
    bench.decide(2, 2, (2, 3))
    bench.run(LONG_MS)
    assert not bench.damage(1), "the next leader has cut it off"
    assert bench.records(1) == bench.records(2)


def test_what_is_committed_is_no_reason_to_let_another_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up: list[object] = []
    monkeypatch.setattr(SegmentHealer, "_give_up_leadership", given_up.append, raising=False)
    bench = three_replicas()
    for node in bench.nodes.values():
        monkeypatch.setattr(node.logs.scrubber.healer, "_give_up_leadership", given_up.append)
    bench.separate({1}, {2, 3})
    bench.rot(1)
    bench.run(10 * LONG_MS)
    assert bench.damage(1)
    assert not given_up
