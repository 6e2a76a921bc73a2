"""What is wrong with the history of a run of groups. Pure: a history in, faults out.

Every value is unique and every acknowledged record has one offset, so each promise is a comparison:

    lost                  an acknowledged record that a group never saw
    skipped               the same, and the group committed past it: it never will
    phantom               a member saw at an offset what is not the record acknowledged there
    commit-regressed      a commit below an earlier one of the same partition, in the log's order
    commit-past-end       a commit of a record that does not exist
    two-owners            a partition with two owners in one generation: in one record of the log, in
                          two records of one generation, or by what two members were told
    unknown-partition     an assignment of a partition that the topic does not have
    generation-regressed  a generation below an earlier one, in the log's order
    assignment-differs    a member was told it owns what the log does not give it in that generation
    unlogged-generation   a member was told of a generation that the log does not have
    nothing-happened      a group without a record, a commit or a generation: nothing was tested

Not here: whether groups got on fast enough; the harness waits for that with a deadline.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from .history import Assigned, Commit, Generation, History

MOST_EXAMPLES = 5


@dataclass(frozen=True)
class Fault:
    """where: enough to find it in the files of the run."""

    kind: str
    group: str
    where: str


def check(history: History) -> list[Fault]:
    """All faults, in the order of the checks."""
    return [
        *_check_records(history),
        *_check_commits(history),
        *_check_generations(history),
        *_check_members(history),
        *_check_there_was_something(history),
    ]


def _check_records(history: History) -> Iterable[Fault]:
    acknowledged = {(one.partition, one.offset): one.value for one in history.acknowledged}
    seen: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for one in history.seen:
        seen[one.group].add((one.partition, one.offset))
        known = acknowledged.get((one.partition, one.offset))
        # A record whose acknowledgement was lost may be there; its value tells them apart.
        if known is not None and known != one.value:
            yield Fault(
                "phantom",
                one.group,
                f"{one.process} saw value {one.value} at {one.partition}/{one.offset}, "
                f"where {known} was acknowledged",
            )
    committed: dict[tuple[str, int], int] = {}
    for record in history.log:
        if isinstance(record, Commit):
            key = (record.group, record.partition)
            committed[key] = max(committed.get(key, 0), record.offset)
    for group in history.groups:
        for (partition, offset), value in sorted(acknowledged.items()):
            if (partition, offset) in seen[group]:
                continue
            past = committed.get((group, partition), 0)
            where = f"value {value} at {partition}/{offset}"
            if past > offset:
                yield Fault("skipped", group, f"{where}, below the committed {past}")
            else:
                yield Fault("lost", group, where)


def _check_commits(history: History) -> Iterable[Fault]:
    ends: Counter[int] = Counter()
    for record in (*history.acknowledged, *history.seen):
        ends[record.partition] = max(ends[record.partition], record.offset + 1)
    last: dict[tuple[str, int], int] = {}
    generations: dict[str, Generation] = {}
    owners: dict[tuple[str, int], str] = {}
    for number, one in enumerate(history.log):
        if isinstance(one, Generation):
            generations[one.group] = one
            continue
        key = (one.group, one.partition)
        where = f"partition {one.partition}, line {number} of the log: {one.offset}"
        owner = _owner(generations.get(one.group), one.partition)
        if one.offset < last.get(key, 0):
            text = f"{where} ({owner}) after {last[key]} ({owners[key]})"
            yield Fault("commit-regressed", one.group, text)
        owners[key] = owner
        if one.offset > ends[one.partition]:
            yield Fault("commit-past-end", one.group, f"{where}, the end is {ends[one.partition]}")
        last[key] = one.offset


def _check_generations(history: History) -> Iterable[Fault]:
    last: dict[str, int] = {}
    owners: dict[tuple[str, int], dict[int, str]] = {}
    for number, one in enumerate(history.log):
        if not isinstance(one, Generation):
            continue
        where = f"generation {one.generation}, line {number} of the log"
        if one.generation < last.get(one.group, 0):
            text = f"{where}, after generation {last[one.group]}"
            yield Fault("generation-regressed", one.group, text)
        last[one.group] = max(one.generation, last.get(one.group, 0))
        known = owners.setdefault((one.group, one.generation), {})
        for member, owned in sorted(one.owners.items()):
            for partition in sorted(owned):
                if not 0 <= partition < history.partitions:
                    yield Fault("unknown-partition", one.group, f"{where}: {partition}")
                before = known.setdefault(partition, member)
                if before != member:
                    text = f"{where}: partition {partition} of {before} and {member}"
                    yield Fault("two-owners", one.group, text)


def _check_members(history: History) -> Iterable[Fault]:
    logged: dict[tuple[str, int], list[Generation]] = defaultdict(list)
    for record in history.log:
        if isinstance(record, Generation):
            logged[record.group, record.generation].append(record)
    reported: dict[tuple[str, int, int], Assigned] = {}
    for one in history.assigned:
        if one.generation is None:
            continue
        where = f"{one.process}, member {one.member_id}, generation {one.generation}"
        records = logged.get((one.group, one.generation), [])
        if not records:
            yield Fault("unlogged-generation", one.group, where)
            continue
        if not any(one.partitions <= _owned(record, one.member_id) for record in records):
            given = sorted(_owned(records[-1], one.member_id))
            text = f"{where}: told {sorted(one.partitions)}, the log has {given}"
            yield Fault("assignment-differs", one.group, text)
        for partition in sorted(one.partitions):
            other = reported.setdefault((one.group, one.generation, partition), one)
            if _name(other, records) != _name(one, records):
                text = f"{where}: partition {partition}, told to {other.member_id}, too"
                yield Fault("two-owners", one.group, text)


def _owned(record: Generation, member_id: str) -> frozenset[int]:
    name = record.instances.get(member_id, member_id)
    return record.owners.get(name, frozenset())


def _name(one: Assigned, records: list[Generation]) -> str:
    for record in records:
        if one.member_id in record.instances:
            return record.instances[one.member_id]
    return one.member_id


def _check_there_was_something(history: History) -> Iterable[Fault]:
    saw = {one.group for one in history.seen}
    commits = {one.group for one in history.log if isinstance(one, Commit)}
    generations = {one.group for one in history.log if isinstance(one, Generation)}
    for group in history.groups or ("",):
        for name, groups in (("saw", saw), ("committed", commits), ("reached", generations)):
            if group not in groups:
                yield Fault("nothing-happened", group, f"it {name} nothing")
    if not history.acknowledged:
        yield Fault("nothing-happened", "", "nothing was produced")


def _owner(record: Generation | None, partition: int) -> str:
    if record is None:
        return "no generation"
    names = [member for member, owned in sorted(record.owners.items()) if partition in owned]
    return f"generation {record.generation}, of {', '.join(names) or 'nobody'}"


def report(faults: list[Fault]) -> list[str]:
    """Lines for people: each kind with its first examples."""
    lines = []
    for (kind, group), count in Counter((one.kind, one.group) for one in faults).items():
        lines.append(f"{kind}, group {group!r}: {count}")
        examples = [one.where for one in faults if (one.kind, one.group) == (kind, group)]
        lines += [f"    {where}" for where in examples[:MOST_EXAMPLES]]
    return lines
