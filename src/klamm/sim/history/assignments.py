"""Which brokers held replicas of a partition, and when they came and went."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.history.states import StateHistory
from klamm.sim.history.trace import Position, TopicWritten, TransactionCommitted
from klamm.sim.zookeeper.tree import CreateChange, SetChange
from klamm.zk.znodes import REASSIGN_PARTITIONS


@dataclass(slots=True)
class AssignmentHistory:
    at: Position
    states: StateHistory
    written: dict[TopicPartition, set[ReplicaAssignment]] = field(default_factory=dict)
    """Every assignment that was ever written, and the targets that these lead to."""
    removed_at: dict[tuple[TopicPartition, BrokerId], int] = field(default_factory=dict)
    """When a broker ceased to be a replica of a partition: the zxid."""
    added_at: dict[tuple[TopicPartition, BrokerId], int] = field(default_factory=dict)
    """When it became one, also where it is none by now: the zxid."""
    in_force: dict[TopicPartition, list[tuple[int, ReplicaAssignment]]] = field(default_factory=dict)
    """Each assignment of a partition of a topic that is there, and the zxid from which it held."""
    dropped_in: dict[tuple[TopicPartition, BrokerId], int] = field(default_factory=dict)
    """The leader epoch in which a broker last ceased to be a replica of a partition, of topics that are there."""
    requested: bytes | None = None
    """Content of the old tools' znode, as last seen."""

    def on_transaction(self, event: TransactionCommitted) -> None:
        """Record the newest content of `/admin/reassign_partitions`."""
        for change in event.changes:
            if change.path == REASSIGN_PARTITIONS and isinstance(change, CreateChange | SetChange):
                self.requested = change.data

    def on_topic_written(self, event: TopicWritten) -> None:
        """Record the assignments that the topic's znode has now, and which replicas were added or removed."""
        before = event.before.partitions if event.before else {}
        after = event.after.partitions if event.after else {}
        if event.after is None:
            self._forget_topic(event.topic, before)
        for number in {**before, **after}:
            p, was, now = TopicPartition(event.topic, number), before.get(number), after.get(number)
            if now is not None and now != was:
                self.written.setdefault(p, set()).update((now, ReplicaAssignment(now.target)))
                self.in_force.setdefault(p, []).append((self.at.zxid, now))
            self._on_assignment(p, was.replicas if was else (), now.replicas if now else ())

    def since(self, p: TopicPartition, zxid: int) -> list[ReplicaAssignment]:
        """The partition's assignments that were in force at this zxid or later."""
        held = self.in_force.get(p, [])
        then = max((at for at, _ in held if at <= zxid), default=0)
        return [assignment for at, assignment in held if at >= then]

    def _forget_topic(self, topic: str, partitions: Iterable[int]) -> None:
        """Forget the assignments of a deleted topic and the replicas that reassignments removed from it."""
        for number in partitions:
            self.in_force.pop(TopicPartition(topic, number), None)
        self.dropped_in = {key: epoch for key, epoch in self.dropped_in.items() if key[0].topic != topic}

    def _on_assignment(self, p: TopicPartition, was: tuple[BrokerId, ...], now: tuple[BrokerId, ...]) -> None:
        """Record when each replica of the partition was added or removed, and in which leader epoch it was removed."""
        for broker in was:
            if broker not in now:
                self.removed_at[p, broker] = self.at.zxid
                state = self.states.newest(p)
                if state is not None:
                    self.dropped_in[p, broker] = state.leader_epoch
        for broker in now:
            if broker not in was:
                self.removed_at.pop((p, broker), None)
                self.added_at[p, broker] = self.at.zxid
