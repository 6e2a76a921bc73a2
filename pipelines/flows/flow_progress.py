"""Progress of a flow, reported while it runs and returned when it ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """Progress of one target in one call of `run_flow`.

    records: read for the target, whether or not the steps let them through; None: the target is
        written whole, as its rows come from no stream, and Spark does not count what it reads. In a
        round of Ray Data that has not ended: rows that came out of the steps, instead.
    behind: records not read yet; None if not known. per_second: records per second of the last
        batch.
    """

    target: str
    records: int | None
    batches: int
    behind: int | None
    per_second: float
