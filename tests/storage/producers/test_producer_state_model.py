"""Does a partition judge its idempotent producers as Kafka's rules say, also after a restart?

The model keeps every batch that was ever accepted, as a list, and looks at the last five.
"""

import tempfile
from typing import NamedTuple

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bradbury.protocol.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber
from bradbury.tests.support.storage.batches import make_batch
from bradbury.tests.support.storage.logs import open_log

MODULUS = 2**31


class Sent(NamedTuple):
    epoch: int
    first_sequence: int
    count: int
    base_offset: int


class Producers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.log = open_log(self.folder.name)
        self.accepted: dict[int, list[Sent]] = {}
        self.end = 0

    def teardown(self) -> None:
        self.log.close(clean=False)
        self.folder.cleanup()

    def expect(self, producer_id: int, epoch: int, sequence: int, count: int) -> int | type:
        """The base offset of the answer, or the error."""
        history = self.accepted.get(producer_id)
        if not history:
            return self.end
        current = history[-1].epoch
        if epoch < current:
            return InvalidProducerEpoch
        if epoch > current:
            return self.end if sequence == 0 else OutOfOrderSequenceNumber
        last = history[-1]
        if sequence == (last.first_sequence + last.count) % MODULUS:
            return self.end
        for sent in [each for each in history if each.epoch == epoch][-5:]:
            if (sent.first_sequence, sent.count) == (sequence, count):
                return sent.base_offset
        return OutOfOrderSequenceNumber

    def send(self, producer_id: int, epoch: int, sequence: int, count: int) -> None:
        expected = self.expect(producer_id, epoch, sequence, count)
        batch = make_batch(
            count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        try:
            result = self.log.append_as_leader(batch, leader_epoch=0, now_ms=1000)
        except (InvalidProducerEpoch, OutOfOrderSequenceNumber) as error:
            assert type(error) is expected
            return
        assert result.base_offset == expected
        assert result.duplicate == (expected != self.end)
        if not result.duplicate:
            sent = Sent(epoch, sequence, count, self.end)
            self.accepted.setdefault(producer_id, []).append(sent)
            self.end += count

    @rule(
        producer_id=st.integers(0, 2),
        epoch=st.integers(0, 2),
        sequence=st.sampled_from([0, 1, 2, MODULUS - 3, MODULUS - 2, MODULUS - 1]),
        count=st.integers(1, 4),
    )
    def send_anything(self, producer_id: int, epoch: int, sequence: int, count: int) -> None:
        self.send(producer_id, epoch, sequence, count)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data(), count=st.integers(1, 4))
    def send_the_next(self, data: st.DataObject, count: int) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.accepted)))
        last = self.accepted[producer_id][-1]
        following = (last.first_sequence + last.count) % MODULUS
        self.send(producer_id, last.epoch, following, count)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.accepted)))
        sent = data.draw(st.sampled_from(self.accepted[producer_id][-7:]))
        self.send(producer_id, sent.epoch, sent.first_sequence, sent.count)

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.log.close(clean=clean)
        self.log = open_log(self.folder.name, clean=clean)

    @rule()
    def roll(self) -> None:
        self.log.local.roll(now_ms=1000)

    @invariant()
    def the_log_holds_what_was_accepted(self) -> None:
        assert self.log.log_end_offset == self.end


TestProducers = Producers.TestCase
TestProducers.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
