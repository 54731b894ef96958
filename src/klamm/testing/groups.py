"""A consumer group of a test cluster: its members, offsets and lag, and changes of its offsets."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeVar

from klamm.cli.admin.client import Admin
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.admin.groups import (
    INACTIVE,
    Group,
    Lag,
    commit_offsets,
    delete_group,
    describe_group,
    read_ends,
    read_lag,
    read_offsets,
)
from klamm.cli.admin.offset_resets import Reset, ResetKind, plan_reset
from klamm.client.offsets import LATEST
from klamm.model.ids import TopicPartition
from klamm.testing.errors import raise_refusals

T = TypeVar("T")
STABLE: Final = "Stable"
GROUP_TIMEOUT_S: Final = 60.0


class ClusterAccess(Protocol):
    """What a group needs of its cluster."""

    def ask(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run a coroutine with a client of the cluster, and return its result."""
        ...

    def wait_until(self, what: str, holds: Callable[[], bool], timeout_s: float = ...) -> None:
        """Wait until the condition holds. Raises AssertionError."""
        ...


class ConsumerGroup:
    """A group by its name, whether or not it exists. Offsets and lag are by (topic, partition)."""

    def __init__(self, cluster: ClusterAccess, name: str) -> None:
        self.name = name
        self._cluster = cluster

    def describe(self) -> Group:
        """The state, the assignor and the members with their partitions; the state of an unknown group is `Dead`."""
        return self._cluster.ask(lambda admin: describe_group(admin, self.name))

    def offsets(self) -> dict[TopicPartition, int]:
        """The committed offsets of the group by partition."""
        return self._cluster.ask(lambda admin: read_offsets(admin, self.name))

    def lag(self) -> dict[TopicPartition, int]:
        """Records after the committed offset, by partition; a partition without a committed offset is omitted."""
        return {found.partition: found.lag for found in self._lags() if found.lag is not None}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets. Raises RequestFailed where the group has members."""
        raise_refusals(self._cluster.ask(lambda admin: commit_offsets(admin, self.name, offsets)))

    def reset(self, topic: str, kind: ResetKind = ResetKind.EARLIEST, number: int = 0) -> dict[TopicPartition, int]:
        """Reset the offsets of all partitions of the topic, as `klamm groups reset-offsets` does.

        Returns the new offsets. `number` is the offset, the shift or the time in ms of those kinds that have one.
        Raises RequestFailed where the group has members.
        """

        async def planned(admin: Admin) -> dict[TopicPartition, int]:
            """Plan the new offset of each partition."""
            numbers = (await read_cluster(admin, [topic])).topics[topic].partitions
            partitions = [TopicPartition(topic, n) for n in numbers]
            plan = await plan_reset(admin, self.name, partitions, Reset(kind, number))
            return {p.partition: p.planned for p in plan}

        offsets = self._cluster.ask(planned)
        self.commit(offsets)
        return offsets

    def delete(self) -> None:
        """Delete the group and its offsets. Raises RequestFailed where it does not exist or has members."""
        refusal = self._cluster.ask(lambda admin: delete_group(admin, self.name))
        raise_refusals([refusal] if refusal else [])

    def wait_until_stable(self, members: int, timeout_s: float = GROUP_TIMEOUT_S) -> Group:
        """Wait until the group is stable with this many members, each with its assignment; returns the group."""
        found: list[Group] = []

        def is_stable() -> bool:
            """Whether the rebalance is complete and the group has the expected members."""
            found.append(self.describe())
            return found[-1].state == STABLE and len(found[-1].members) == members

        self._cluster.wait_until(f"group {self.name} is stable with {members} members", is_stable, timeout_s)
        return found[-1]

    def wait_until_empty(self, timeout_s: float = GROUP_TIMEOUT_S) -> None:
        """Wait until the group has no members, or does not exist."""
        self._cluster.wait_until(
            f"group {self.name} has no members", lambda: self.describe().state in INACTIVE, timeout_s
        )

    def wait_until_caught_up(self, topic: str, timeout_s: float = GROUP_TIMEOUT_S) -> None:
        """Wait until the committed offset of each partition of the topic that has records is its log end."""

        def has_caught_up() -> bool:
            """Whether no partition has lag."""
            lags = [found for found in self._lags(topic) if found.end]
            return bool(lags) and all(found.lag == 0 for found in lags)

        self._cluster.wait_until(f"group {self.name} has read all of {topic}", has_caught_up, timeout_s)

    def _lags(self, topic: str | None = None) -> list[Lag]:
        """The lag of each partition that the group has read or is assigned, and of the others of `topic`."""

        async def read(admin: Admin) -> list[Lag]:
            """Read the group and its lag."""
            lags = await read_lag(admin, await describe_group(admin, self.name))
            if topic is None:
                return lags
            known = {found.partition: found for found in lags}
            numbers = (await read_cluster(admin, [topic])).topics[topic].partitions
            others = [TopicPartition(topic, n) for n in numbers if TopicPartition(topic, n) not in known]
            return [found for p, found in known.items() if p.topic == topic] + await _unread(admin, others)

        return self._cluster.ask(read)


async def _unread(admin: Admin, partitions: list[TopicPartition]) -> list[Lag]:
    """The log ends of partitions without a committed offset."""
    ends = await read_ends(admin, partitions, LATEST)
    return [Lag(p, None, ends.get(p), None) for p in partitions]
