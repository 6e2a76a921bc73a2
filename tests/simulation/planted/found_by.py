"""The seeds that found planted faults the last time anybody looked: tried before all others.

Only where it is not seed 0. A seed that finds its fault no more costs time and nothing else: the
tests go on with the others. `make simulate ARGS="--faults 300"` says which they are.
"""

from typing import Final

FOUND_BY: Final = {
    "a new directory passes for the old one": 1,
    "the loss is reported by one process only": 1,
    "the last in sync stays": 3,
    "the eligible are kept forever": 15,
    "an unclean election": 16,
    "a former life may join": 188,
    "the fenced may join": 10,
    "an old partition epoch may alter": 3,
    "half of the voters are a majority": 4,
    "the longest log is adopted": 3,
    "a vote does not survive": 4,
    "a voter answers before its fsync": 16,
    "a contradicting suffix is kept": 5,
    "a replaced disk votes": 70,
    "a new voter counts before it has the log": 18,
    "two voters are changed at once": 112,
    "damage is told by one life only": 14,
    "the token goes before the clean mark is there": 4,
    "a missing directorys partitions are made anew": 5,
    "a truncation is not noticed by a move": 49,
    "consumers are sent to any node of their rack": 1,
    "an assignment is handed out before it is replicated": 9,
    "a deletion is answered before it is replicated": 60,
    "a deleted group keeps its offsets": 4,
    "a coordinator shows what is not committed": 5,
    "a former coordinator goes on": 1,
    "the generation of a commit is not checked": 61,
    "anybody may commit": 1,
    "silent members stay": 5,
    "sessions end with the coordinator": 16,
    "high watermark below min insync": 1,
    "joins without the epochs start": 39,
    "joins from anywhere": 2,
    "a proposed member is not waited for": 17,
    "shrinks before the controller agrees": 1,
    "a lost answer counts as no": 39,
    "an older isr is believed": 280,
    "leads on while the next epoch is written": 1,
    "too few stay where it is given up": 54,
    "producers survive a truncation": 4,
    "the leader counts what is not synced": 5,
    "a follower claims what its former life has left": 15,
}
