"""Is every item of a queue in one place, and never consumed before somebody says so?"""

import json

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bradbury.clients.queue.frames.item_codec import (
    count_items,
    decode_items,
    encode_items,
    is_pickled,
)
from bradbury.clients.queue.frames.queue_frames import (
    FrameError,
    ItemPiece,
    pack_items,
    pack_pieces,
    unpack_items,
    unpack_pieces,
)
from bradbury.clients.queue.queue_position import (
    QueuePosition,
    decode_position,
    encode_position,
)
from bradbury.clients.queue.queue_state import QueueEntry, QueueState

LEASE_S = 10.0
MAX_DELIVERIES = 3
OWNERS = [b"one", b"two"]
VALUE = b"." * 10
ItemId = tuple[int, int]


def new_state(position: QueuePosition | None = None, ready_bytes: int = 10_000) -> QueueState:
    return QueueState(
        position or QueuePosition(),
        lease_s=LEASE_S,
        max_deliveries=MAX_DELIVERIES,
        max_ready_bytes=ready_bytes,
    )


def ids(entries: list[QueueEntry]) -> list[ItemId]:
    return [(each.offset, index) for each in entries for index in range(each.first, each.last)]


def test_items_are_taken_in_the_order_of_the_log() -> None:
    state = new_state()
    for offset, total in enumerate((1, 3, 2)):
        state.add(offset, total, True, VALUE)
    assert state.size == state.ready == 6
    assert ids(state.take(b"one", 1, 2, 0.0, exact=True)) == [(0, 0), (1, 0)]
    assert ids(state.take(b"two", 1, 1, 0.0)) == [(1, 1), (1, 2)], "a record is not split"
    assert state.take(b"one", 3, 3, 0.0) == [], "there are not so many"
    state.release(b"one", [(1, 0, 1)], 0.0)
    assert ids(state.take(b"two", 1, 9, 0.0)) == [(1, 0), (2, 0), (2, 1)], "it goes first"


def test_what_is_not_acknowledged_comes_again_and_is_dead_in_the_end() -> None:
    state = new_state()
    state.add(0, 1, True, VALUE)
    for delivery in range(1, MAX_DELIVERIES + 1):
        (entry,) = state.take(b"one", 1, 1, 100.0 * delivery)
        assert entry.delivery_count == delivery
        assert not state.expire(100.0 * delivery + LEASE_S - 1)
        assert state.expire(100.0 * delivery + LEASE_S)
    assert state.size == 0
    assert state.position(1).offset == 0, "it is not consumed yet"
    assert ids(state.take_dead()) == [(0, 0)]
    assert state.position(1).offset == 1


def test_a_lease_that_is_extended_begins_again_for_that_item_alone() -> None:
    state = new_state()
    state.add(0, 3, True, VALUE)
    state.take(b"one", 1, 3, 0.0)
    state.extend(b"one", [(0, 1, 2)], LEASE_S - 1)
    state.extend(b"two", [(0, 0, 1)], LEASE_S - 1)
    assert state.expire(LEASE_S)
    assert ids(state.take(b"two", 1, 9, LEASE_S)) == [(0, 0), (0, 2)], "only its owner extends"
    assert not state.expire(2 * LEASE_S - 1.5)
    assert state.expire(2 * LEASE_S - 1)
    assert ids(state.take(b"two", 1, 9, 2 * LEASE_S)) == [(0, 1)]


def test_what_was_not_used_does_not_count_as_delivered() -> None:
    state = new_state()
    state.add(0, 1, True, VALUE)
    for _ in range(2 * MAX_DELIVERIES):
        (entry,) = state.take(b"one", 1, 1, 0.0)
        assert entry.delivery_count == 1
        state.release(b"one", [(0, 0, 1)], 0.0, unused=True)


def test_an_item_that_was_given_back_with_a_delay_comes_then() -> None:
    state = new_state()
    state.add(0, 2, True, VALUE)
    state.take(b"one", 1, 2, 0.0)
    state.release(b"one", [(0, 0, 2)], 0.0, delay_s=5.0)
    assert (state.ready, state.size) == (0, 2)
    assert not state.expire(4.9)
    assert state.expire(5.0)
    assert state.ready == 2


def test_a_backlog_is_counted_and_read_again() -> None:
    state = new_state(ready_bytes=25)
    for offset in range(0, 20, 2):
        state.add(offset, 1, True, VALUE)
    assert state.size == 10
    assert state.ready == 3
    assert state.backlog_start is None, "there is no room"
    assert len(state.take(b"one", 1, 9, 0.0)) == 3
    start = state.backlog_start
    assert start == 6
    for offset in range(start, 14):  # the odd ones are markers
        if offset % 2 == 0:
            state.refill(offset, 1, True, VALUE)
    assert (state.ready, state.size, state.backlog_start) == (4, 7, None)
    state.take(b"one", 1, 9, 0.0)
    for offset in range(14, 20, 2):
        state.refill(offset, 1, True, VALUE)
    assert state.size == state.ready == 3
    state.add(20, 1, True, VALUE)
    assert state.size == 4


def test_a_batch_is_loaded_that_is_larger_than_the_memory_for_all() -> None:
    state = new_state(ready_bytes=25)
    for offset in range(9):
        state.add(offset, 1, True, VALUE)
    assert (state.ready, state.backlog_start) == (3, None)
    state.wanted = 7
    for offset in range(3, 7):
        assert state.backlog_start == offset
        state.refill(offset, 1, True, VALUE)
    assert state.backlog_start is None
    assert len(state.take(b"one", 7, 7, 0.0)) == 7
    assert state.size == 2


def test_a_process_that_comes_back_to_another_actor_goes_on() -> None:
    state = new_state()
    for offset in range(3):
        state.add(offset, 4, True, VALUE)
    state.resume(b"one", [(0, 0, 3)], [(1, 1, 2)], 0.0)
    assert state.size == 12 - 3 - 1
    assert ids(state.take(b"two", 1, 4, 0.0, exact=True)) == [(0, 3), (1, 0), (1, 2), (1, 3)]
    state.settle(b"one", [(1, 1, 2)])
    assert state.position(1).parts == {0: [(0, 3)], 1: [(1, 2)]}


def test_what_is_kept_does_not_grow_with_what_was_consumed() -> None:
    """While one process works on the first item, others consume thousands."""
    state = new_state(ready_bytes=10_000_000)
    for offset in range(5_000):
        state.add(offset, 2, True, VALUE)
    state.take(b"one", 1, 1, 0.0, exact=True)
    for entry in state.take(b"two", 1, 10_000, 0.0):
        state.settle(b"two", [(entry.offset, entry.first, entry.last)])
    position = state.position(1)
    assert (position.offset, position.records, position.parts) == (0, [(1, 5_000)], {0: [(1, 2)]})


class Queues(RuleBasedStateMachine):
    """A queue whose actor may be replaced at any time, and a plain record of what it owes."""

    @initialize(ready_bytes=st.sampled_from([15, 10_000]))
    def begin(self, ready_bytes: int) -> None:
        self.ready_bytes = ready_bytes
        self.log: list[int] = []
        self.state = new_state(ready_bytes=ready_bytes)
        self.consumed: set[ItemId] = set()
        self.held: dict[bytes, set[ItemId]] = {owner: set() for owner in OWNERS}
        self.now = 0.0

    @rule(total=st.integers(1, 4))
    def put(self, total: int) -> None:
        self.log.append(total)
        self.state.add(len(self.log) - 1, total, True, VALUE)

    @rule(owner=st.sampled_from(OWNERS), most=st.integers(1, 6), exact=st.booleans())
    def take(self, owner: bytes, most: int, exact: bool) -> None:
        start = self.state.backlog_start
        if start is not None:
            for offset in range(start, len(self.log)):
                self.state.refill(offset, self.log[offset], True, VALUE)
        taken = ids(self.state.take(owner, 1, most, self.now, exact=exact, hand_out=exact))
        assert len(taken) <= most or not exact
        for item in taken:
            assert item not in self.consumed
            assert all(item not in held for held in self.held.values())
        self.held[owner].update(taken)

    @rule(owner=st.sampled_from(OWNERS), data=st.data(), unused=st.booleans())
    def end(self, owner: bytes, data: st.DataObject, unused: bool) -> None:
        if not self.held[owner]:
            return
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.held[owner]))))
        pieces = [(offset, index, index + 1) for offset, index in chosen]
        if data.draw(st.booleans()):
            self.state.settle(owner, pieces)
            self.consumed |= chosen
        else:
            self.state.release(owner, pieces, self.now, unused=unused)
        self.held[owner] -= chosen

    @rule(seconds=st.floats(0.0, 2 * LEASE_S))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.state.expire(self.now)
        self.held = {owner: self._leased(owner) for owner in OWNERS}

    @rule(owner=st.sampled_from(OWNERS))
    def go(self, owner: bytes) -> None:
        self.state.resume(owner, (), (), self.now)
        self.held[owner] = set()

    @rule()
    def bury(self) -> None:
        self.consumed |= set(ids(self.state.take_dead()))

    @rule()
    def another_actor(self) -> None:
        position = self.state.position(1)
        metadata = encode_position(position)
        again = decode_position(position.offset, metadata)
        assert again == QueuePosition(
            epoch=1,
            offset=position.offset,
            records=list(position.records),
            parts=dict(position.parts),
            deliveries=list(position.deliveries),
        )
        self.state = new_state(again, self.ready_bytes)
        for offset, total in enumerate(self.log):
            if offset >= position.offset:
                self.state.add(offset, total, True, VALUE)
        self.held = {owner: set() for owner in OWNERS}

    def _leased(self, owner: bytes) -> set[ItemId]:
        return {
            (offset, index)
            for offset, entries in self.state._leased.get(owner, {}).items()
            for entry in entries
            for index in range(entry.first, entry.last)
        }

    @invariant()
    def every_item_is_in_one_place(self) -> None:
        if not hasattr(self, "state"):
            return
        held = {item for items in self.held.values() for item in items}
        dead = set(ids(list(self.state._dead)))
        owed = sum(self.log) - len(self.consumed) - len(held) - len(dead)
        assert self.state.size == owed


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# --- codecs ------------------------------------------------------------------------------------


@given(
    offset=st.integers(0, 2**50),
    gaps=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=3_000),
    counts=st.integers(0, 500),
)
@settings(deadline=None, max_examples=50)
def test_a_position_always_fits_and_never_says_too_much(
    offset: int, gaps: list[tuple[int, int]], counts: int
) -> None:
    at, records = offset, []
    for gap, length in gaps:
        records.append((at + gap, at + gap + length))
        at += gap + length
    position = QueuePosition(
        epoch=3,
        offset=offset,
        records=records,
        parts={at + 5: [(0, 2)]},
        deliveries=[(offset + number, 0, 1, 2) for number in range(counts)],
    )
    metadata = encode_position(position)
    assert len(metadata) <= 4_096
    found = decode_position(offset, metadata)
    assert found.epoch == 3
    assert list(found.records) == records[: len(found.records)]
    assert set(found.parts) <= set(position.parts)


@pytest.mark.parametrize(
    "metadata", ["", "what a tool has written", "{}", "[]", "z:!", '{"e":"x"}']
)
def test_metadata_of_others_says_nothing(metadata: str) -> None:
    assert decode_position(7, metadata) == QueuePosition(offset=7)


@given(st.lists(st.one_of(st.none(), st.integers(), st.binary(), st.text()), min_size=1))
def test_items_come_out_as_they_went_in(items: list[object]) -> None:
    key, value = encode_items(items)
    assert count_items(key) == len(items)
    assert decode_items(is_pickled(key), value) == items


@pytest.mark.parametrize("key", [None, b"", b"user-1", b"bq1"])
def test_a_record_of_another_client_is_one_item(key: bytes | None) -> None:
    assert count_items(key) == 1
    assert decode_items(is_pickled(key), b"abc") == [b"abc"]


NUMBERS = st.integers(0, 2**62)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS)))
def test_pieces_are_packed(pieces: list[tuple[int, int, int]]) -> None:
    packed = pack_pieces(pieces)
    assert unpack_pieces(packed) == pieces
    if packed:
        with pytest.raises(FrameError):
            unpack_pieces(packed[:-1])


@given(st.lists(st.builds(
    ItemPiece, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 100), st.booleans(), st.binary()
)))  # fmt: skip
def test_items_are_packed(pieces: list[ItemPiece]) -> None:
    body = b"".join(pack_items(pieces))
    found = unpack_items(memoryview(body))
    for one, other in zip(found, pieces, strict=True):
        assert (one.offset, one.first, one.last) == (other.offset, other.first, other.last)
        assert (one.delivery_count, one.is_pickled) == (other.delivery_count, other.is_pickled)
        assert bytes(one.value) == other.value
    with pytest.raises(FrameError):
        unpack_items(memoryview(body[:-1] if body != b"\0\0\0\0" else body + b"x"))


def test_a_position_is_text_that_people_can_read() -> None:
    position = QueuePosition(epoch=2, offset=100, records=[(103, 105)], parts={100: [(0, 1)]})
    assert json.loads(encode_position(position)) == {"e": 2, "r": [[3, 5]], "p": {"0": [[0, 1]]}}
