"""Cost of authorization decisions. Run by hand: python -m bradbury.benchmarks.access

With 10,000 ACLs, half of them prefixed: a cached decision, a new decision, and applying a changed
set of ACLs. CPU time of this process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from bradbury.cluster.security import authorizer
from bradbury.cluster.security.authorizer import StandardAuthorizer
from bradbury.protocol.principal import Principal
from bradbury.protocol.security.acl_binding import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

HOST = "127.0.0.1"
ALICE = Principal("User", "alice")
OPERATIONS = [AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER]


def rules(count: int, lengths: int) -> dict[str, AclBinding]:
    """`count` ACLs, half of them prefixed, with prefixes of `lengths` different lengths."""
    found = {}
    for number in range(count):
        is_prefix = number % 2 == 1
        name = f"team-{number:05}-" + "x" * (number // 2 % lengths)
        found[str(number)] = AclBinding(
            ResourceType.TOPIC,
            name,
            PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
            "User:alice" if number % 4 < 2 else f"User:u-{number % 100}",
            "*",
            OPERATIONS[number % len(OPERATIONS)],
            AclPermission.DENY if number % 20 == 0 else AclPermission.ALLOW,
        )
    return found


def timed(name: str, count: int, work: Callable[[], None], rounds: int) -> None:
    best = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        work()
        best = min(best, time.process_time() - before)
    print(f"{name:<44} {best / count * 1e6:9.2f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=10_000, help="number of ACLs")
    parser.add_argument(
        "--lengths", type=int, default=10, help="number of different lengths of prefixes"
    )
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each measurement")
    options = parser.parse_args()
    acls = rules(options.rules, options.lengths)
    made = StandardAuthorizer(frozenset({"User:root"}), allows_if_no_acl=False)
    made.use(acls)
    read, topic = AclOperation.READ, ResourceType.TOPIC
    names = [f"team-{number % options.rules:05}-xxxxxxxx-orders" for number in range(10_000)]

    def kept() -> None:
        for _ in range(10_000):
            made.authorize(ALICE, HOST, read, topic, "team-00007-xxx-orders")

    def decided() -> None:
        made._kept.clear()
        for name in names:
            made.authorize(ALICE, HOST, read, topic, name)

    changed = dict(acls)
    del changed["0"]
    versions = [changed, acls]

    def taken_over() -> None:
        for version in versions:
            made.use(version)

    timed("a decision that is kept", 10_000, kept, options.rounds)
    if len(names) < authorizer.MOST_KEPT:
        timed("a decision that is made", 10_000, decided, options.rounds)
    timed("one rule more or less, taken over", 2, taken_over, options.rounds)


if __name__ == "__main__":
    main()
