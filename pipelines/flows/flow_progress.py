"""How far a flow is: what is shown while it runs, and what is left when it ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """Of one target, in this call. records: read for it. behind: not yet; None if it is not known.
    per_second: of the last batch.
    """

    target: str
    records: int
    batches: int
    behind: int | None
    per_second: float
