"""Epochs of fetch sessions (KIP-227), for clients and brokers.

(id, epoch)   0, -1    no session            0, 0     begin one          x, 0   end x, begin one
x, -1    end x, none again     x, n>0   the next of x: n is one more each time
(after 2**31 - 1 comes 1)
"""

from __future__ import annotations

from typing import Final

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
INT_MAX: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == INT_MAX else epoch + 1
