"""Topics: their znodes, their configs, and requests to delete them."""

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.history.states import StateHistory
from klamm.sim.history.trace import Position, TopicWritten, TopicZnode, TransactionCommitted
from klamm.sim.zookeeper.tree import Change, CreateChange, DeleteChange, SetChange
from klamm.zk import znodes
from klamm.zk.admin_znodes import decode_config
from klamm.zk.pending_deletions import PendingDeletion, decode_pending_deletion
from klamm.zk.znodes import MalformedZnode

_DELETION_PREFIX: Final = znodes.DELETE_TOPICS + "/"
_CONFIG_PREFIX: Final = znodes.topic_config_path("")
_RECORD_DEPTH: Final = znodes.PENDING_DELETIONS.count("/") + 2
_UNCLEAN: Final = "unclean.leader.election.enable"


@dataclass(slots=True)
class TopicHistory:
    at: Position
    states: StateHistory
    znodes: dict[str, TopicZnode] = field(default_factory=dict)
    ids: dict[UUID, str] = field(default_factory=dict)
    """Every id there ever was."""
    deletion_requests: dict[str, int] = field(default_factory=dict)
    """Topics whose deletion is asked for, and since which zxid."""
    partitions_to_delete: dict[str, frozenset[int]] = field(default_factory=dict)
    """Topics that had come up when their deletion was asked for, and the partitions that they had at that time."""
    unclean: dict[str, bool] = field(default_factory=dict)
    """What topics' configs say of unclean elections."""
    unclean_before: dict[str, list[tuple[int, bool | None]]] = field(default_factory=lambda: defaultdict(list))
    """The zxid of each change of a topic's config, and what it said of them before, if anything."""
    pending_deletions: dict[BrokerId, dict[str, PendingDeletion]] = field(default_factory=lambda: defaultdict(dict))
    """By broker and path: the records of what gone brokers hold of deleted topics."""

    def replicas(self, p: TopicPartition) -> tuple[BrokerId, ...]:
        """The replicas of the partition in the topic's znode; empty for a partition that does not exist."""
        topic = self.znodes.get(p.topic)
        assignment = topic.partitions.get(p.partition) if topic else None
        return assignment.replicas if assignment else ()

    def id_of(self, topic: str) -> UUID | None:
        """The id of the topic; None where there is no such topic, or it has no id."""
        znode = self.znodes.get(topic)
        return znode.id if znode else None

    def incarnation_of(self, topic: str) -> UUID | int | None:
        """What tells the topic from earlier ones of its name: its id, or the zxid of its creation where it has none.

        None where there is no such topic. Below inter-broker protocol 2.8 topics have no ids.
        """
        znode = self.znodes.get(topic)
        return None if znode is None else znode.id or znode.czxid

    def may_have_earlier_log(self, p: TopicPartition, broker: BrokerId) -> bool:
        """Whether a pending deletion says that the broker may have a log of an earlier topic in the place of this."""
        topic_id, records = self.id_of(p.topic), self.pending_deletions.get(broker, {}).values()
        return any(r.topic == p.topic and r.topic_id != topic_id and p.partition in r.partitions for r in records)

    def unclean_since(self, topic: str, zxid: int) -> list[bool | None]:
        """The topic's config for unclean elections at this zxid and later; None where it was not set."""
        changed = self.unclean_before.get(topic, ())
        return [self.unclean.get(topic), *(before for at, before in changed if at > zxid)]

    def on_transaction(self, event: TransactionCommitted) -> None:
        """Record changes of deletion requests, topic configs and pending deletions."""
        for change in event.changes:
            path = change.path
            if path.startswith(_DELETION_PREFIX):
                self._on_deletion_request(path[len(_DELETION_PREFIX) :], isinstance(change, DeleteChange))
            elif path.startswith(_CONFIG_PREFIX):
                self._on_config(path, change)
            elif path.startswith(f"{znodes.PENDING_DELETIONS}/") and path.count("/") == _RECORD_DEPTH:
                self._on_pending_deletion(path, change)

    def _on_deletion_request(self, topic: str, is_removed: bool) -> None:
        """Record that the deletion of the topic was requested, or that the request was removed."""
        if is_removed:
            self.deletion_requests.pop(topic, None)
            self.partitions_to_delete.pop(topic, None)
            return
        self.deletion_requests[topic] = self.at.zxid
        seen = self.znodes.get(topic)
        partitions = frozenset(seen.partitions if seen else ())
        if any(TopicPartition(topic, n) in self.states.versions for n in partitions):
            self.partitions_to_delete[topic] = partitions

    def _on_pending_deletion(self, path: str, change: Change) -> None:
        """Record the change of a pending deletion of a broker."""
        broker = BrokerId(int(path.split("/")[3]))
        self.pending_deletions[broker].pop(path, None)
        if isinstance(change, CreateChange | SetChange):
            with contextlib.suppress(MalformedZnode):  # written by hand
                self.pending_deletions[broker][path] = decode_pending_deletion(path, change.data)

    def _on_config(self, path: str, change: Change) -> None:
        """Record whether the topic's config allows unclean elections."""
        topic = path[len(_CONFIG_PREFIX) :]
        self.unclean_before[topic].append((self.at.zxid, self.unclean.pop(topic, None)))
        if isinstance(change, CreateChange | SetChange):
            try:
                config = decode_config("topics", topic, change.data)
            except MalformedZnode:
                return
            if _UNCLEAN in config:
                self.unclean[topic] = config[_UNCLEAN].strip().lower() == "true"

    def on_topic_written(self, event: TopicWritten) -> None:
        """Record the topic's znode and its id, or that the topic was deleted."""
        if event.after is None:
            self.znodes.pop(event.topic, None)
            return
        self.znodes[event.topic] = event.after
        if event.after.id is not None:
            self.ids.setdefault(event.after.id, event.topic)
