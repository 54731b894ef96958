"""What replicas take themselves for: leader or follower, of whom, in which leader epoch."""

from dataclasses import dataclass, field
from uuid import UUID

from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import NO_EPOCH
from klamm.model.topic_ids import ZERO_ID
from klamm.sim.history.topics import TopicHistory
from klamm.sim.history.trace import (
    LeaderAndIsrApplied,
    LogsDestroyed,
    ReplicaRole,
    ReplicaRolesChanged,
    StateWritten,
    TopicWritten,
)


@dataclass(slots=True)
class ReplicaHistory:
    topics: TopicHistory
    roles: dict[tuple[TopicPartition, BrokerId], tuple[int, ReplicaRole]] = field(default_factory=dict)
    """(partition, broker) -> (incarnation, what its replica takes itself for), of topics that are there."""
    followed: set[tuple[TopicPartition, BrokerId, BrokerId, int]] = field(default_factory=set)
    """(partition, broker, leader, leader epoch): whom replicas have followed when, of topics that are there."""
    leaders: dict[tuple[TopicPartition, UUID | int | None, int], BrokerId] = field(default_factory=dict)
    """(partition, incarnation of the topic, leader epoch) -> the leader of that epoch."""

    def on_state_written(self, event: StateWritten) -> None:
        """Record the leader of this leader epoch."""
        if event.after.has_leader:
            p = event.partition
            self.leaders[p, self.topics.incarnation_of(p.topic), event.after.leader_epoch] = event.after.leader

    def on_topic_written(self, event: TopicWritten) -> None:
        """Forget the replicas' roles in a topic that was deleted."""
        if event.after is None:
            self.followed = {each for each in self.followed if each[0].topic != event.topic}
            self.roles = {key: role for key, role in self.roles.items() if key[0].topic != event.topic}

    def told_epoch(self, p: TopicPartition, broker: BrokerId) -> int:
        """The newest leader epoch that the broker was sent for this replica, in any process of it; NO_EPOCH if none."""
        _, role = self.roles.get((p, broker), (0, None))
        if role is None or role.topic_id not in (ZERO_ID, self.topics.id_of(p.topic)):
            return NO_EPOCH
        return role.leader_epoch

    def on_destroyed(self, event: LogsDestroyed) -> None:
        """Forget the roles of replicas whose logs the broker deleted."""
        for p in event.logs:
            self.roles.pop((p, event.broker), None)

    def on_roles(self, event: LeaderAndIsrApplied | ReplicaRolesChanged) -> None:
        """Record which replicas lead or follow, in which leader epoch."""
        for p, role in event.roles.items():
            self.roles[p, event.broker] = event.incarnation, role
            if role.leader not in (event.broker, NO_BROKER):
                self.followed.add((p, event.broker, role.leader, role.leader_epoch))
