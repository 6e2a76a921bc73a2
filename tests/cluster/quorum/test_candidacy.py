"""When does a node stand for controller itself?"""

from bradbury.cluster.quorum.candidacy import INACTIVE_MS, STAGGER_MS, UNREACHABLE_MS, Candidacy


def test_never_while_the_controller_answers() -> None:
    answering = Candidacy()
    assert not answering.is_due(now_ms=10**9, voters_before=0)
    answering.on_poll_failed(now_ms=0, is_reachable=False)
    answering.on_poll_answered()
    assert not answering.is_due(now_ms=10**9, voters_before=0)


def test_soon_when_its_process_is_gone() -> None:
    silent = Candidacy()
    silent.on_poll_failed(now_ms=1_000, is_reachable=False)
    assert not silent.is_due(now_ms=1_000 + UNREACHABLE_MS - 1, voters_before=0)
    silent.on_poll_failed(now_ms=1_000 + UNREACHABLE_MS, is_reachable=False)
    assert silent.is_due(now_ms=1_000 + UNREACHABLE_MS, voters_before=0)


def test_each_gives_those_before_it_time() -> None:
    silent = Candidacy()
    silent.on_poll_failed(now_ms=0, is_reachable=False)
    assert not silent.is_due(now_ms=UNREACHABLE_MS + STAGGER_MS, voters_before=2)
    assert silent.is_due(now_ms=UNREACHABLE_MS + 2 * STAGGER_MS, voters_before=2)


def test_one_that_answers_gets_longer_to_become_active() -> None:
    waiting = Candidacy()
    for now_ms in range(0, INACTIVE_MS, 100):
        waiting.on_poll_failed(now_ms=now_ms, is_reachable=True)
        assert not waiting.is_due(now_ms=now_ms, voters_before=0)
    assert waiting.is_due(now_ms=INACTIVE_MS, voters_before=0)


def test_one_that_has_answered_and_is_gone_again_is_not_waited_for_so_long() -> None:
    gone = Candidacy()
    gone.on_poll_failed(now_ms=0, is_reachable=True)
    gone.on_poll_failed(now_ms=100, is_reachable=False)
    assert not gone.is_due(now_ms=UNREACHABLE_MS, voters_before=0)
    assert gone.is_due(now_ms=INACTIVE_MS // 2, voters_before=0)


def test_a_newly_elected_controller_gets_time_to_answer() -> None:
    silent = Candidacy()
    silent.on_poll_failed(now_ms=0, is_reachable=False)
    silent.on_vote_granted(now_ms=UNREACHABLE_MS)
    silent.on_poll_failed(now_ms=UNREACHABLE_MS + 1, is_reachable=False)
    assert not silent.is_due(now_ms=2 * UNREACHABLE_MS, voters_before=0)
    assert silent.is_due(now_ms=UNREACHABLE_MS + INACTIVE_MS // 2, voters_before=0)


def test_a_promise_alone_is_no_reason() -> None:
    answering = Candidacy()
    answering.on_vote_granted(now_ms=0)
    assert not answering.is_due(now_ms=10**9, voters_before=0)
