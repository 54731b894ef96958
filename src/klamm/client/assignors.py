"""Which member of a consumer group reads which partitions.

Source: RangeAssignor.java, RoundRobinAssignor.java, CooperativeStickyAssignor.java (3.9).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Final, TypeAlias

from klamm.model.ids import TopicPartition

Assignment: TypeAlias = dict[str, list[TopicPartition]]
Assignor = Callable[[Mapping[str, Sequence[str]], Mapping[str, int], Mapping[TopicPartition, str]], Assignment]
"""(member id -> topics that it subscribes to, topic -> number of partitions, partition -> who reads it until now)
-> member id -> its partitions.

Members are given in the order that decides who comes first.
"""


def assign_ranges(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> Assignment:
    """Give each member of a topic consecutive partitions; the first members get one more where they do not divide."""
    assignment: Assignment = {member: [] for member in subscriptions}
    for topic, count in sorted(partitions.items()):
        members = [member for member, topics in subscriptions.items() if topic in topics]
        for i, member in enumerate(members):
            begin, end = _share(i, count, len(members)), _share(i + 1, count, len(members))
            assignment[member] += [TopicPartition(topic, number) for number in range(begin, end)]
    return assignment


def _share(members_before: int, count: int, members: int) -> int:
    """How many of `count` partitions go to the first `members_before` members."""
    return members_before * (count // members) + min(members_before, count % members)


def assign_in_turns(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> Assignment:
    """Give the partitions of all topics to the members one by one; who does not subscribe to a topic is passed over."""
    assignment: Assignment = {member: [] for member in subscriptions}
    turns = cycle(subscriptions)
    for topic, count in sorted(partitions.items()):
        if not any(topic in topics for topics in subscriptions.values()):
            continue
        for number in range(count):
            member = next(m for m in turns if topic in subscriptions[m])
            assignment[member].append(TopicPartition(topic, number))
    return assignment


def assign_cooperatively(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> Assignment:
    """Move as few partitions as a balance needs; one that moves has no owner until its former owner has revoked it.

    The owner joins again once it has, and the next assignment gives the partition to its new reader.
    """
    reader_of = _balanced_readers(subscriptions, partitions, owners)
    assignment: Assignment = {member: [] for member in subscriptions}
    for partition, reader in sorted(reader_of.items()):
        owner = owners.get(partition)
        if owner == reader or owner not in subscriptions:
            assignment[reader].append(partition)
    return assignment


def _balanced_readers(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> dict[TopicPartition, str]:
    """Leave partitions with their owners, give the others to those with the fewest, and even out what is left."""
    candidates = {topic: [m for m, topics in subscriptions.items() if topic in topics] for topic in partitions}
    everything = [
        TopicPartition(t, n) for t, count in sorted(partitions.items()) if candidates[t] for n in range(count)
    ]
    reader_of = {p: owners[p] for p in everything if owners.get(p) in candidates[p.topic]}
    load = Counter(reader_of.values())
    moved = True
    while moved:
        moved = False
        for partition in everything:
            reader = reader_of.get(partition)
            least = min(candidates[partition.topic], key=lambda member: load[member])
            if reader is not None and load[reader] <= load[least] + 1:
                continue
            reader_of[partition] = least
            load.update({least: 1} if reader is None else {least: 1, reader: -1})
            moved = True
    return reader_of


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "range": assign_ranges,
    "roundrobin": assign_in_turns,
    "cooperative-sticky": assign_cooperatively,
}
"""By the protocol names of Kafka's clients, the preferred first."""
