"""What is wrong with the history of a run. Pure: a history in, faults out.

    lost                 acknowledged, and not there in the end though later records are
    unseen               acknowledged, and nothing so late was there in the end
    inconsistent-offset  two records at one offset, or one that is not where it was acknowledged
    duplicate            a record at two offsets
    phantom              a record that nobody has sent
    failed-read          a record whose producer was told that it is surely not in the log
    nonmonotonic-send    a producer's later record of a partition at a lower offset than an earlier one
    nonmonotonic-poll    a reader went back without being assigned again
    poll-skip            a reader went past a record that is there
    real-time            sent after another one's acknowledgement had come, and at a lower offset
    offset-regression    a committed offset was read below one that had been acknowledged before
    visible-regression   a record of unknown fate was read, and is not there in the end
    end-state            the cluster or a group did not come to rest: ISR, lag, state
    nothing-happened     nothing was acknowledged, or nobody read in the end: nothing was tested

An acknowledged record that was read and is gone is `lost`, and nothing else; what was lost is not
skipped. The history of a transaction is not looked at: there are none yet. Values are unique, so
each rule is a comparison. Source of the rules: Jepsen's tests of Kafka and Redpanda (kafka.clj).

Cost: about 10 us for each send and each time a record was read.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .history import History, Poll, Send

MOST_EXAMPLES = 5


@dataclass(frozen=True)
class Fault:
    """partition and offset: around them the history is worth a look; -1 where there is none."""

    kind: str
    where: str
    partition: int = -1
    offset: int = -1


@dataclass
class _Partition:
    """What is known of a partition's log."""

    sends: dict[int, Send] = field(default_factory=dict)
    acked: list[Send] = field(default_factory=list)
    read_at: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Value -> the offsets where it was read."""
    values: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Offset -> what was read or acknowledged there."""
    final: dict[int, int] = field(default_factory=dict)
    """Value -> offset, in the final read."""
    polls: list[Poll] = field(default_factory=list)


def check(history: History) -> list[Fault]:
    """All faults, in the order of the rules."""
    partitions = _index(history)
    faults: list[Fault] = []
    for number, partition in sorted(partitions.items()):
        faults += _check_records(number, partition, idempotent=history.idempotent)
        faults += _check_end(number, partition)
        faults += _check_send_order(number, partition, idempotent=history.idempotent)
        faults += _check_real_time(number, partition)
        faults += _check_polls(number, partition)
    faults += _check_committed(history)
    faults += _check_end_state(history)
    if not any(one.outcome == "ok" for one in history.sends):
        faults.append(Fault("nothing-happened", "nothing was acknowledged"))
    if not any(one.final and one.records for one in history.polls):
        faults.append(Fault("nothing-happened", "nobody has read in the end"))
    return faults


def _index(history: History) -> dict[int, _Partition]:
    partitions: dict[int, _Partition] = defaultdict(_Partition)
    for send in history.sends:
        partition = partitions[send.partition]
        partition.sends[send.value] = send
        if send.outcome == "ok":
            partition.acked.append(send)
            if send.offset is not None:
                partition.values[send.offset].add(send.value)
    for poll in history.polls:
        partition = partitions[poll.partition]
        partition.polls.append(poll)
        for offset, value in poll.records:
            partition.read_at[value].add(offset)
            partition.values[offset].add(value)
            if poll.final:
                partition.final[value] = offset
    return partitions


def _check_records(number: int, partition: _Partition, *, idempotent: bool) -> Iterator[Fault]:
    for value, offsets in partition.read_at.items():
        send = partition.sends.get(value)
        first = min(offsets)
        if send is None:
            yield Fault("phantom", f"{number}/{first}: nobody sent {value}", number, first)
            continue
        if send.outcome == "fail":
            yield Fault("failed-read", f"{number}/{first}: {_show(send)}", number, first)
        if len(offsets) > 1 and idempotent:
            where = f"{number}: {value} at {sorted(offsets)}"
            yield Fault("duplicate", where, number, first)
        if send.offset is not None and send.offset not in offsets:
            where = f"{number}: acknowledged at {send.offset}, read at {first}: {_show(send)}"
            yield Fault("inconsistent-offset", where, number, send.offset)
    for offset, values in partition.values.items():
        # One that is not where it was acknowledged has been told already.
        there = [value for value in values if offset in partition.read_at.get(value, {offset})]
        known = [value for value in there if value in partition.sends]
        if len(known) > 1:
            where = f"{number}/{offset}: {sorted(known)}"
            yield Fault("inconsistent-offset", where, number, offset)


def _check_end(number: int, partition: _Partition) -> Iterator[Fault]:
    last = max(partition.final.values(), default=-1)
    for send in partition.acked:
        if send.value in partition.final:
            continue
        offset = -1 if send.offset is None else send.offset
        kind = "lost" if offset <= last else "unseen"
        yield Fault(kind, f"{number}/{offset}: {_show(send)}; the last is {last}", number, offset)
    for value, offsets in partition.read_at.items():
        send = partition.sends.get(value)
        if value not in partition.final and send is not None and send.outcome != "ok":
            where = f"{number}: {value} was read at {sorted(offsets)}; the last is {last}"
            yield Fault("visible-regression", where, number, min(offsets))


def _check_send_order(number: int, partition: _Partition, *, idempotent: bool) -> Iterator[Fault]:
    """Values grow in the order of a process's sends. Without idempotence retries may reorder."""
    if not idempotent:
        return
    highest: dict[str, Send] = {}
    for send in sorted(partition.acked, key=lambda one: one.value):
        if send.offset is None:
            continue
        before = highest.get(send.process)
        if before is not None and before.offset is not None and send.offset <= before.offset:
            where = f"{number}/{send.offset}: {_show(send)}, after {_show(before)}"
            yield Fault("nonmonotonic-send", where, number, send.offset)
        else:
            highest[send.process] = send


def _check_real_time(number: int, partition: _Partition) -> Iterator[Fault]:
    """Check the order between processes; within one process it is the order of its sends."""
    known = [send for send in partition.acked if send.end is not None and send.offset is not None]
    by_end = sorted(known, key=lambda one: one.end or 0)
    position = 0
    highest: dict[str, Send] = {}  # there are few processes
    for send in sorted(known, key=lambda one: one.begin):
        while position < len(by_end) and (by_end[position].end or 0) < send.begin:
            ended = by_end[position]
            best = highest.get(ended.process)
            if best is None or (ended.offset or 0) > (best.offset or 0):
                highest[ended.process] = ended
            position += 1
        for process, before in highest.items():
            if process != send.process and (before.offset or 0) > (send.offset or 0):
                where = f"{number}/{send.offset}: {_show(send)}, after {_show(before)}"
                yield Fault("real-time", where, number, send.offset or 0)
                break


def _check_polls(number: int, partition: _Partition) -> Iterator[Fault]:
    there = sorted(set(partition.final.values()))
    last: dict[tuple[str, int], int] = {}
    for poll in sorted(partition.polls, key=lambda one: one.time):
        key = (poll.process, poll.span)
        # A group's member may be moved between two polls, and be told later.
        before = -1 if poll.in_group else last.get(key, -1)
        for offset, _ in poll.records:
            where = f"{poll.process} read {number}/{offset} after {number}/{before}"
            if before >= 0 and offset <= before:
                yield Fault("nonmonotonic-poll", where, number, offset)
            elif before >= 0 and offset > before + 1:
                skipped = there[bisect_right(there, before) : bisect_left(there, offset)]
                if skipped:
                    text = f"{where}; {len(skipped)} between are there, from {skipped[0]} on"
                    yield Fault("poll-skip", text, number, skipped[0])
            before = offset
        last[key] = before


def _check_committed(history: History) -> Iterator[Fault]:
    acknowledged: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for one in history.committed:
        acknowledged[one.group, one.partition].append((one.end, one.offset))
    for commits in acknowledged.values():
        commits.sort()
        greatest = -1
        for index, (end, offset) in enumerate(commits):
            greatest = max(greatest, offset)
            commits[index] = (end, greatest)
    for asked in history.fetched:
        commits = acknowledged.get((asked.group, asked.partition), [])
        index = bisect_left(commits, (asked.begin, -1))
        if index and commits[index - 1][1] > asked.offset:
            where = (
                f"group {asked.group!r}, partition {asked.partition}: {asked.offset} was read "
                f"after {commits[index - 1][1]} had been acknowledged"
            )
            yield Fault("offset-regression", where, asked.partition)


def _check_end_state(history: History) -> Iterator[Fault]:
    end = history.end
    for number, count in sorted(end.in_sync.items()):
        if count < end.replication_factor:
            where = f"partition {number}: {count} of {end.replication_factor} are in sync"
            yield Fault("end-state", where, number)
    for group, lag in sorted(end.lags.items()):
        if lag:
            yield Fault("end-state", f"group {group!r}: a lag of {lag}")
    for group, state in sorted(end.states.items()):
        if state != "Stable":
            yield Fault("end-state", f"group {group!r}: {state}")


# --- for people ----------------------------------------------------------------------------------


def report(faults: Iterable[Fault]) -> list[str]:
    """Lines: each kind with its first examples."""
    faults = list(faults)
    lines = []
    for kind, count in Counter(one.kind for one in faults).items():
        lines.append(f"{kind}: {count}")
        examples = [one.where for one in faults if one.kind == kind]
        lines += [f"    {where}" for where in examples[:MOST_EXAMPLES]]
    return lines


def excerpt(history: History, fault: Fault, around: int = 3) -> list[str]:
    """What is known of the offsets next to a fault's: sends, and who read what."""
    near = range(fault.offset - around, fault.offset + around + 1)
    lines = [
        f"{_show(send)}"
        for send in history.sends
        if send.partition == fault.partition and send.offset in near
    ]
    for poll in history.polls:
        if poll.partition == fault.partition:
            found = [(offset, value) for offset, value in poll.records if offset in near]
            if found:
                lines.append(f"{poll.time / 1e9:.3f} {poll.process} read {found}")
    return lines


def _show(send: Send) -> str:
    end = "" if send.end is None else f"-{send.end / 1e9:.3f}"
    return (
        f"{send.value} of {send.process}, {send.begin / 1e9:.3f}{end} s, "
        f"{send.outcome} at {send.offset}"
    )
