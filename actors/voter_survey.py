"""What a starting controller asks of the brokers, and whom it may go on with.

Whoever answers may hold a copy of the metadata; the newest copy says who votes. All of them have to
answer only if none knows of a cluster: the one that is missing might.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..controller.voter_requests import DescribeVoter, VoterState
from .carry_through import within
from .metadata_log import ANSWER_SECONDS
from .voter_host import Voter

LATE_SECONDS = 0.1
MOST_VOTERS = 3
"""Of a new cluster: one of them may be lost."""


class Answered(NamedTuple):
    voter: Voter
    state: VoterState


class Survey(NamedTuple):
    """How many brokers there are, and those that have answered, by name."""

    brokers: int
    answered: list[Answered]


class Formation(NamedTuple):
    """Who votes, and who of them, and of former ones, is there."""

    cluster_id: str | None
    voters: tuple[str, ...]
    holders: dict[str, Answered]


async def ask(found: Sequence[Voter]) -> Survey:
    """Once a majority of the voters has answered the others get LATE_SECONDS.

    One whose node has just died takes long to fail.
    """
    asked = {
        asyncio.ensure_future(within(ANSWER_SECONDS, each.ask(DescribeVoter()))): each
        for each in found
    }
    answered: list[Answered] = []
    pending = set(asked)
    while pending:
        is_enough = _is_majority([state for _, state in answered])
        done, pending = await asyncio.wait(
            pending,
            timeout=LATE_SECONDS if is_enough else None,
            return_when=asyncio.FIRST_COMPLETED,
        )
        answered += [
            Answered(asked[each], each.result()) for each in done if each.exception() is None
        ]
        if not done:
            break
    for late in pending:
        late.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return Survey(len(found), sorted(answered, key=lambda each: each.state.name))


async def find(find_voters: Callable[[], Sequence[Voter]], directory_id: str) -> Voter | None:
    """The voter with this directory, if it is there now."""
    for voter, state in (await ask(find_voters())).answered:
        if state.directory_id == directory_id:
            return voter
    return None


def form(survey: Survey) -> Formation | str:
    """Whom to ask for promises; or in words, what is waited for."""
    states = [state for _, state in survey.answered]
    clusters = sorted({state.cluster_id for state in states if state.cluster_id})
    if len(clusters) > 1:
        return (
            f"data directories of one cluster: these belong to {' and '.join(clusters)}; "
            "start with the right data directories, or with empty ones"
        )
    knowing = [state for state in states if state.voters]
    if knowing:
        voters = newest_of(knowing).voters
    else:
        # Whoever does not answer may be a voter; only when all have spoken is that known.
        if not survey.brokers or len(states) < survey.brokers:
            return f"{survey.brokers - len(states) or 'its'} brokers to start"
        if clusters:
            return f"the node that holds the metadata of cluster {clusters[0]}"
        # Two can lose none: then one is better.
        most = MOST_VOTERS if len(states) >= MOST_VOTERS else 1
        voters = tuple(state.directory_id for state in states[:most])
    there = sum(state.directory_id in voters for state in states)
    missing = len(voters) // 2 + 1 - there
    if missing > 0:
        return (
            f"{missing} more of the {len(voters)} nodes that hold the metadata of cluster "
            f"{clusters[0] if clusters else '(new)'}"
        )
    holders = {
        each.state.directory_id: each
        for each in survey.answered
        if each.state.directory_id in voters or each.state.is_voter
    }
    return Formation(clusters[0] if clusters else None, voters, holders)


def newest_of(states: Sequence[VoterState]) -> VoterState:
    return max(states, key=lambda state: (state.last_epoch, state.log_end_offset))


def _is_majority(states: Sequence[VoterState]) -> bool:
    """Of the voters that the newest of these logs names."""
    if not states:
        return False
    voters = newest_of(states).voters
    return bool(voters) and len(voters) // 2 < sum(
        state.directory_id in voters and state.is_voter for state in states
    )
