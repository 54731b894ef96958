"""Observe the cluster of the demo from outside: the controller, the leaders, what is in sync."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from klamm.cli.metadata import ClusterFacts, read_metadata
from klamm.client.errors import ConnectionLost
from klamm.embedded.cluster import LocalCluster
from klamm.embedded.nodes import HOST
from klamm.model.errors import KlammError
from klamm.model.ids import NO_BROKER, BrokerId
from klamm.runtime.world import World

POLL_S: Final = 0.1
HEAL_TIMEOUT_S: Final = 60.0


class NotReached(KlammError):
    pass


async def wait_until(what: str, holds: Callable[[], Awaitable[bool]], timeout_s: float = HEAL_TIMEOUT_S) -> None:
    """Poll `holds` until it returns True. Raises NotReached with `what` at the timeout."""
    now = asyncio.get_running_loop().time
    deadline = now() + timeout_s
    while not await holds():
        if now() > deadline:
            raise NotReached(f"Gave up after {timeout_s:g} s of waiting until {what}. See the logs of the nodes.")
        await asyncio.sleep(POLL_S)


class ClusterObserver:
    """Asks every running node; an answer counts only if all agree."""

    def __init__(self, world: World, cluster: LocalCluster, topic: str) -> None:
        self._world = world
        self._cluster = cluster
        self._topic = topic

    async def controller_id(self) -> BrokerId:
        """The controller that all running nodes report; NO_BROKER if they do not answer or disagree."""
        seen = {facts.controller if facts else NO_BROKER for facts in await self._read_metadata_of_all()}
        return seen.pop() if len(seen) == 1 else NO_BROKER

    async def is_complete(self) -> bool:
        """Whether all nodes run, answer, and have each other in their metadata."""
        ids = {node.broker_id for node in self._cluster.nodes}
        seen = await self._read_metadata_of_all()
        return len(seen) == len(ids) and all(facts is not None and facts.brokers == ids for facts in seen)

    async def all_in_sync(self) -> bool:
        """Whether all nodes run and report all replicas of the topic in sync."""
        if not await self.is_complete():
            return False
        return all(facts is not None and self._is_topic_in_sync(facts) for facts in await self._read_metadata_of_all())

    async def leaders(self) -> Counter[int]:
        """The number of the topic's partitions that each node leads, as the first node that answers reports it."""
        for facts in await self._read_metadata_of_all():
            if facts is not None:
                return Counter(p.leader for tp, p in facts.partitions.items() if tp.topic == self._topic)
        return Counter()

    async def has_topic(self) -> bool:
        """Whether a node knows the topic."""
        return any(facts is not None and self._topic_partitions(facts) for facts in await self._read_metadata_of_all())

    def _topic_partitions(self, facts: ClusterFacts) -> list[int]:
        """Return the partition numbers of the demo's topic."""
        return [tp.partition for tp in facts.partitions if tp.topic == self._topic]

    def _is_topic_in_sync(self, facts: ClusterFacts) -> bool:
        """Whether the demo's topic exists and every replica of it is in the ISR."""
        own = [p for tp, p in facts.partitions.items() if tp.topic == self._topic]
        return bool(own) and all(p.is_in_sync for p in own)

    async def _read_metadata_of_all(self) -> list[ClusterFacts | None]:
        """Return the metadata that each running node has; None for a node that does not answer."""
        return [await self._read_metadata_of(node.port) for node in self._cluster.nodes if node.is_running]

    async def _read_metadata_of(self, port: int) -> ClusterFacts | None:
        """The metadata of the node at this port; None if it does not answer."""
        try:
            return await read_metadata(self._world, HOST, port)
        except ConnectionLost:
            return None
