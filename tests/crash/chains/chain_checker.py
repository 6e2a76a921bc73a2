"""What is wrong with the history of a run of transactions. Pure: a history in, faults out.

    aborted-read    a record of an aborted transaction was handed to a read_committed reader
    lost            its transaction was committed, and the record is not there in the end
    torn            a part of a transaction is there, and another one is not
    duplicate       a record of a source twice in a topic
    phantom         a record that nobody has sent
    order           a source's records in another order than it has sent them
    chain           a topic does not have what the one before it has, in its order
    offsets         a group's committed offset does not fit what it has written
    sum             the amounts in a topic do not sum up to zero
    fenced-wrote    a transaction was begun by a process when another one had its id, and it is there
    unstable-read   a reader was handed what is not there in the end, or is elsewhere
    poll-skip       a reader went past a record that is there
    nonmonotonic    a reader went back
    stable-back     a last stable offset went back
    stable-above    a last stable offset above the high watermark
    stable-hangs    a last stable offset did not pass what was there `most_open` seconds before
    unfinished      the chain did not come to its end in time
    nothing-happened

Values are unique, so each rule is a comparison.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator

from bradbury.tests.crash.checker import Fault

from .chain_history import (
    ABORTED_COPY,
    ChainHistory,
    Place,
    Reading,
    Source,
    Transaction,
    read_part,
)

SECOND = 10**9
MOST_OPEN_SECONDS = 90.0


def check_chain(history: ChainHistory, most_open: float = MOST_OPEN_SECONDS) -> list[Fault]:
    """All faults, in the order of the rules. most_open: seconds."""
    faults: list[Fault] = []
    for reading in (*history.readings, history.final):
        faults += _check_aborted(history, reading)
    faults += _check_transactions(history)
    for topic in history.topics:
        faults += _check_topic(history, topic)
    faults += _check_chain(history)
    faults += _check_fenced(history)
    for reading in history.readings:
        faults += _check_reading(history.final, reading)
    faults += _check_stable(history, most_open)
    if not any(
        transaction.outcome == "committed"
        for source in history.sources
        for transaction in source.transactions.values()
    ):
        faults.append(Fault("nothing-happened", "nothing was committed"))
    if not all(reading.records for reading in (*history.readings, history.final)):
        faults.append(Fault("nothing-happened", "somebody has read nothing"))
    return faults


def _find(history: ChainHistory) -> dict[tuple[str, int], tuple[Source, Transaction]]:
    return {
        (source.name, number): (source, transaction)
        for source in history.sources
        for number, transaction in source.transactions.items()
    }


def _check_aborted(history: ChainHistory, reading: Reading) -> Iterator[Fault]:
    known = _find(history)
    for (topic, partition), records in reading.records.items():
        for offset, value in records:
            where = f"{reading.name} read {topic}/{partition}/{offset}: {value}"
            if value.endswith(ABORTED_COPY):
                yield Fault("aborted-read", f"{where}, of a copier", partition, offset)
                continue
            part = read_part(value)
            found = known.get((part.process, part.number))
            if found is None:
                yield Fault("phantom", where, partition, offset)
            elif part.verdict == "a" or found[1].outcome == "aborted":
                yield Fault("aborted-read", where, partition, offset)


def _check_transactions(history: ChainHistory) -> Iterator[Fault]:
    """All or nothing, in the topic that the sources write to."""
    there: dict[tuple[str, int], set[int]] = defaultdict(set)
    sizes: dict[tuple[str, int], int] = {}
    for (topic, _), records in history.final.records.items():
        if topic != history.topics[0]:
            continue
        for _, value in records:
            part = read_part(value)
            there[part.process, part.number].add(part.index)
            sizes[part.process, part.number] = part.size
    for key, indexes in there.items():
        if len(indexes) < sizes[key]:
            where = f"{key[0]}:{key[1]}: {sorted(indexes)} of {sizes[key]}"
            yield Fault("torn", where)
    for key, (_, transaction) in _find(history).items():
        if transaction.outcome == "committed" and key not in there:
            yield Fault("lost", f"{key[0]}:{key[1]}, committed at {transaction.end}")


def _check_topic(history: ChainHistory, topic: str) -> Iterator[Fault]:
    seen: Counter[str] = Counter()
    total = 0
    for partition in range(history.partitions):
        last: dict[str, tuple[int, int]] = {}
        for offset, value in history.final.records.get((topic, partition), []):
            if value.endswith(ABORTED_COPY):
                continue
            seen[value] += 1
            part = read_part(value)
            total += part.amount
            before, now = last.get(part.process, (-1, -1)), (part.number, part.index)
            if seen[value] == 1 and now <= before:
                where = f"{topic}/{partition}/{offset}: {value} after {before}"
                yield Fault("order", where, partition, offset)
            last[part.process] = max(before, now)
    for value, count in seen.items():
        if count > 1:
            yield Fault("duplicate", f"{topic}: {value} is there {count} times")
    if total:
        yield Fault("sum", f"{topic}: {total}")


def _check_chain(history: ChainHistory) -> Iterator[Fault]:
    for before, after in zip(history.topics, history.topics[1:], strict=False):
        for partition in range(history.partitions):
            taken = history.final.records.get((before, partition), [])
            given = history.final.records.get((after, partition), [])
            inputs, outputs = [value for _, value in taken], [value for _, value in given]
            for position, value in enumerate(outputs):
                if position >= len(inputs) or inputs[position] != value:
                    expected = inputs[position] if position < len(inputs) else "nothing"
                    where = f"{after}/{partition}, record {position}: {value}, not {expected}"
                    yield Fault("chain", where, partition, given[position][0])
                    break
            else:
                yield from _check_offsets(history, (before, partition), taken, len(outputs))


def _check_offsets(
    history: ChainHistory, place: Place, taken: list[tuple[int, str]], written: int
) -> Iterator[Fault]:
    """What is written is what lies below the committed offset; in the end that is everything."""
    committed = history.committed.get(place, 0)
    below = bisect_left([offset for offset, _ in taken], committed)
    if below != written:
        where = f"{place[0]}/{place[1]}: {below} below offset {committed}, {written} were written"
        yield Fault("offsets", where, place[1], committed)
    if written < len(taken):
        where = f"{place[0]}/{place[1]}: {written} of {len(taken)} went on"
        yield Fault("unfinished", where, place[1])


def _check_fenced(history: ChainHistory) -> Iterator[Fault]:
    """What a process begins after another one is ready with its id is never committed."""
    visible = {
        (part.process, part.number)
        for (topic, _), records in history.final.records.items()
        if topic == history.topics[0]
        for part in (read_part(value) for _, value in records)
    }
    by_id: dict[str, list[Source]] = defaultdict(list)
    for source in history.sources:
        if source.ready is not None:
            by_id[source.transactional_id].append(source)
    for sources in by_id.values():
        sources.sort(key=lambda source: source.ready or 0)
        for source, successor in zip(sources, sources[1:], strict=False):
            assert successor.ready is not None
            for number, transaction in source.transactions.items():
                is_there = (source.name, number) in visible or transaction.outcome == "committed"
                if transaction.begin > successor.ready and is_there:
                    where = f"{source.name}:{number} after {successor.name} was ready"
                    yield Fault("fenced-wrote", where)


def _check_reading(final: Reading, reading: Reading) -> Iterator[Fault]:
    for place, records in reading.records.items():
        there = dict(final.records.get(place, []))
        offsets = sorted(there)
        before = -1
        for offset, value in records:
            where = f"{reading.name}, {place[0]}/{place[1]}/{offset}: {value}"
            if there.get(offset) != value and not value.endswith(ABORTED_COPY):
                text = f"{where}; in the end there is {there.get(offset)}"
                yield Fault("unstable-read", text, place[1], offset)
            if offset <= before:
                yield Fault("nonmonotonic", f"{where} after {before}", place[1], offset)
            skipped = offsets[bisect_right(offsets, before) : bisect_left(offsets, offset)]
            if skipped:
                text = f"{where} after {before}; {len(skipped)} between, from {skipped[0]} on"
                yield Fault("poll-skip", text, place[1], skipped[0])
            before = max(before, offset)


def _check_stable(history: ChainHistory, most_open: float) -> Iterator[Fault]:
    asked = sorted(history.asked, key=lambda one: one.begin)
    for place in sorted({place for one in asked for place in one.stable}):
        topic, partition = place
        known = [one for one in asked if place in one.stable]
        answered = sorted(known, key=lambda one: one.end)
        position, highest = 0, -1
        open_since: dict[int, int] = {}
        for one in known:
            while position < len(answered) and answered[position].end < one.begin:
                highest = max(highest, answered[position].stable[place])
                position += 1
            stable = one.stable[place]
            if stable < highest:
                where = f"{topic}/{partition}: {stable} after {highest}"
                yield Fault("stable-back", where, partition, stable)
            if stable > one.ends.get(place, stable):
                where = f"{topic}/{partition}: {stable}, the end was {one.ends[place]} after it"
                yield Fault("stable-above", where, partition, stable)
            open_since = {end: since for end, since in open_since.items() if end > stable}
            late = [since for since in open_since.values() if one.end - since > most_open * SECOND]
            if late:
                where = f"{topic}/{partition}: {stable} for {(one.end - min(late)) / SECOND:.0f} s"
                yield Fault("stable-hangs", where, partition, stable)
                break
            if (end := one.ends.get(place, stable)) > stable:
                open_since.setdefault(end, one.end)


def longest_open(history: ChainHistory) -> float:
    """Seconds for which a last stable offset stayed below what had been there."""
    longest = 0
    for place in {place for one in history.asked for place in one.stable}:
        waiting: dict[int, int] = {}
        for one in history.asked:
            if place not in one.stable:
                continue
            for end in [end for end in waiting if end <= one.stable[place]]:
                longest = max(longest, one.end - waiting.pop(end))
            if (end := one.ends.get(place, 0)) > one.stable[place]:
                waiting.setdefault(end, one.end)
    return longest / SECOND
