"""Translation of source offsets to target offsets, as far as offset syncs are kept. Pure.

    source  [0 ........ 500)[500 ... 900)[900 .. 1000)
    target  [40 ....... 540)[541 ... 941)[942 . 1042)

Each piece is the range of a partition that one transaction copied. Newer pieces are kept in more
detail: when there are more than PIECES, every two of the older half are joined.

Invariants: a group that continues at the translated offset misses no record that it had not
read in the source. It gets some again if a piece was joined, or has gaps.

The idea is MirrorMaker 2's OffsetSyncStore, which keeps single points instead of pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

PIECES: Final = 32


class OffsetSync(NamedTuple):
    """Records [source_start, source_end) are the target's [target_start, target_end).

    is_exact: neither side has gaps or records of others in between, so that each record is at the
        same distance from the start on both sides.
    """

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class OffsetSyncs:
    """Offset syncs of one partition, ascending."""

    pieces: tuple[OffsetSync, ...] = ()

    def after(self, piece: OffsetSync) -> OffsetSyncs:
        """Syncs with the next piece added; the older half is joined in pairs above PIECES."""
        pieces = [*self.pieces, piece]
        if len(pieces) > PIECES:
            half = len(pieces) // 2
            pieces = [*_joined(pieces[:half]), *pieces[half:]]
        return OffsetSyncs(tuple(pieces))

    def translate(self, offset: int) -> int | None:
        """Offset in the target for `offset` in the source; None: it is before the first piece."""
        found = None
        for piece in self.pieces:
            if piece.source_start > offset:
                break
            found = piece
        if found is None:
            return None
        if offset >= found.source_end:
            return found.target_end
        if found.is_exact:
            return found.target_start + offset - found.source_start
        return found.target_start


def _joined(pieces: list[OffsetSync]) -> Iterable[OffsetSync]:
    """Pieces joined in pairs."""
    for first, second in zip(pieces[::2], [*pieces[1::2], None], strict=False):
        if second is None:
            yield first
        else:
            yield OffsetSync(
                first.source_start, second.source_end, first.target_start, second.target_end, False
            )
