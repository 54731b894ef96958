"""Which member of a consumer group reads which partitions. Source: RangeAssignor.java, RoundRobinAssignor.java."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Final, TypeAlias

from klamm.model.ids import TopicPartition

Assignment: TypeAlias = dict[str, list[TopicPartition]]
Assignor = Callable[[Mapping[str, Sequence[str]], Mapping[str, int]], Assignment]
"""(member id -> topics that it subscribes to, topic -> number of partitions) -> member id -> its partitions.

Members are given in the order that decides who comes first.
"""


def assign_ranges(subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]) -> Assignment:
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


def assign_in_turns(subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]) -> Assignment:
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


ASSIGNORS: Final[Mapping[str, Assignor]] = {"range": assign_ranges, "roundrobin": assign_in_turns}
"""By the protocol names of Kafka's clients, the preferred first."""
