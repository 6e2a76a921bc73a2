"""The share of each member of a group of consumer actors, in a topic of four partitions."""

import bradbury

PARTITIONS = 4


def assigned(group: bradbury.ConsumerGroup) -> list[int]:
    """How many partitions each member has, once they have all."""
    while True:
        counts = [len(member.partitions) for member in group.status().members]
        if sum(counts) == PARTITIONS:
            return counts


def wait_until_shared(group: bradbury.ConsumerGroup) -> None:
    """Until every member has partitions: one may have joined long before the other."""
    while 0 in assigned(group):
        pass  # every status is a round trip to the members
