"""A generated script while it is generated: the steps so far, and the cluster's state to act on."""

import asyncio
from typing import Any

from tests.differential.arena import Arena, newest_differences
from tests.differential.calls import BROKERS, Call
from tests.differential.draws import one_of, several, some_of
from tests.differential.transcript import Difference, Steps

from klamm.model.assignment import ReplicaAssignment
from klamm.zk.znodes import decode_topic

TOPICS = "abcd"
MAX_STEPS = 80
brokers = one_of(BROKERS)
replicas = some_of(BROKERS, 3)
assignments = several(replicas, 3)


class Scenario:
    """The state of a generated script; its random actions are in `actions`."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.calls: list[Call] = []
        self.differences: list[Difference] = []
        self.live = set(BROKERS)
        self.broken: int | None = None
        """Its disks fail."""
        self.leaving: set[int] = set()
        """They may have asked to shut down."""
        self.has_racks = False
        self.contexts = arena.runner.run(arena.open())

    @property
    def steps(self) -> Steps:
        """The steps of the first controller so far."""
        return [step.as_data() for step in self.contexts[0].steps]

    def do(self, verb: str, *args: Any, **options: Any) -> None:
        """Carry a verb out with all controllers, unless there is a difference or the script is long enough."""
        if self.differences or len(self.steps) >= MAX_STEPS:
            return
        call = Call(verb, args, options)
        self.calls.append(call)

        async def each() -> None:
            await asyncio.gather(*(call.on(context) for context in self.contexts))

        self.arena.runner.run(each())
        self.differences = newest_differences(self.contexts)

    def end(self) -> None:
        """Close all controllers."""

        async def close() -> None:
            await asyncio.gather(*(context.close() for context in self.contexts))

        self.arena.runner.run(close())

    # ---- what there is, as the first one's ZooKeeper has it

    def _assignment(self, topic: str) -> dict[int, ReplicaAssignment]:
        """The assignment of a topic, as in ZooKeeper."""

        async def read() -> dict[int, ReplicaAssignment]:
            [node] = await self.contexts[0].client.get_many([f"/brokers/topics/{topic}"])
            return dict(decode_topic(topic, node.data).partitions) if node.stat is not None else {}

        return self.arena.runner.run(read())

    def _isr(self, topic: str, number: int) -> tuple[int, ...] | None:
        """The ISR of a partition in ZooKeeper; None without a state."""
        state = self.arena.runner.run(self.contexts[0].state(topic, number))
        return None if state is None else state.isr

    def _isr_leader(self, topic: str, number: int) -> int | None:
        """The leader of a partition in ZooKeeper; None without a state."""
        state = self.arena.runner.run(self.contexts[0].state(topic, number))
        return None if state is None else state.leader

    def _partition(self, draw: Any) -> tuple[str, int, ReplicaAssignment, tuple[int, ...]] | None:
        """Draw a partition that once had a leader, of a topic that is not being deleted."""
        there = [t for t in TOPICS if self._assignment(t) and not self._is_queued(t)]
        if not there:
            return None
        topic = draw(one_of(there))
        assignment = self._assignment(topic)
        number = draw(one_of(sorted(assignment)))
        isr = self._isr(topic, number)
        now = assignment[number]
        if isr is None or (now.is_being_reassigned and self._may_lead.isdisjoint(now.target)):
            return None  # at the end of a move that nobody can lead ours stops
        return topic, number, now, isr

    @property
    def _may_lead(self) -> set[int]:
        """The brokers that may lead a partition."""
        return self.live - self.leaving - {self.broken}

    def _is_queued(self, topic: str) -> bool:
        """Whether the topic is queued for deletion."""
        return f"/admin/delete_topics/{topic}" in self.contexts[0]._tree

    def _something_is_queued(self) -> bool:
        """Whether any topic is queued for deletion: at a failover klamm continues with dead replicas, Kafka waits."""
        return any(map(self._is_queued, TOPICS))

    def _is_moving(self, topic: str) -> bool:
        """Whether the topic is being reassigned."""
        return any(each.is_being_reassigned for each in self._assignment(topic).values())

    def _draw_live_broker(self, draw: Any) -> int:
        """Draw a live broker."""
        broker: int = draw(one_of(sorted(self.live)))
        return broker
