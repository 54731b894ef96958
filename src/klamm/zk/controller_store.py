"""Reads and writes of the elected controller; every write is fenced by its controller epoch.

Source: KafkaZkClient.scala (3.9): updateLeaderAndIsr, createTopicPartitionStatesRaw, deleteController and others.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic

from klamm.model.assignment import ReplicaAssignment
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk import znodes
from klamm.zk.admin_znodes import FinalizedFeatures, decode_features, encode_features
from klamm.zk.delegation_tokens import TokenStore
from klamm.zk.election import ControllerEpoch
from klamm.zk.errors import BadVersion, NodeExists, NoNode, WriteRefused, ZkCode
from klamm.zk.fenced import FencedWriter
from klamm.zk.operations import Check, Create, Delete, Op, Result, Set
from klamm.zk.partition_states import P, StatesRead, read_states
from klamm.zk.pending_deletions import PendingDeletionStore
from klamm.zk.port import ZooKeeperClient
from klamm.zk.store import Store
from klamm.zk.tool_requests import ToolRequestStore
from klamm.zk.topic_assignments import AssignmentStore
from klamm.zk.topic_deletion import TopicDeletionStore

_new = tuple.__new__  # a NamedTuple without its keyword handling: they come by the hundred thousand


@dataclass(slots=True)
class StatesWritten(Generic[P]):
    """The outcome of writing partition states."""

    written: dict[P, LeaderAndIsr] = field(default_factory=dict)
    """The written states, with the new partition epochs."""
    conflicted: list[P] = field(default_factory=list)
    """Partitions whose znode changed since it was read or, at a creation, exists already."""
    failed: dict[P, str] = field(default_factory=dict)
    """Partitions that were refused for another reason."""


class ControllerStore(Store):
    """A `Store` for one term; not to be used after ControllerMoved."""

    def __init__(self, client: ZooKeeperClient, won: ControllerEpoch) -> None:
        super().__init__(client)
        self.epoch = won.epoch
        self.writer = FencedWriter(client, won.version)
        self.assignments = AssignmentStore(client, self.writer)
        self.topic_deletion = TopicDeletionStore(client, self.writer)
        self.pending_deletions = PendingDeletionStore(client, self.writer)
        self.tool_requests = ToolRequestStore(client, self.writer)
        self.tokens = TokenStore(client, self.writer)

    # ---- partition states

    async def read_states(self, partitions: Iterable[P], watch: bool = False) -> StatesRead[P]:
        """Read the state znodes of these partitions."""
        return await read_states(self.client, partitions, watch)

    async def write_states(self, writes: Mapping[P, LeaderAndIsr]) -> StatesWritten[P]:
        """Write each state if its znode still has the version it was read with."""
        path, content = znodes.state_path, znodes.encode_state
        ops: list[Op] = [_new(Set, (path(p), content(s), s.partition_epoch)) for p, s in writes.items()]
        return _outcome(writes, await self.write(ops), ZkCode.BAD_VERSION)

    async def create_states(self, states: Mapping[P, LeaderAndIsr], new_topics: Iterable[str]) -> StatesWritten[P]:
        """Create the state znodes of new partitions, and their parents; `new_topics` have no `partitions` znode yet."""
        parents: list[Op] = [Create(znodes.partitions_path(topic)) for topic in new_topics]
        parents += (Create(znodes.partition_path(p)) for p in states)
        made = await self.write(parents)
        # where one existed, the others were sent in smaller multis, perhaps a child before its parent
        await self.write([op for op, r in zip(parents, made, strict=True) if r.code is ZkCode.NO_NODE])
        results = await self.write([Create(znodes.state_path(p), znodes.encode_state(s)) for p, s in states.items()])
        return _outcome(states, results, ZkCode.NODE_EXISTS)

    # ---- topics

    async def write_topic(
        self, topic: str, topic_id: uuid.UUID | None, partitions: Mapping[int, ReplicaAssignment]
    ) -> None:
        """Write a topic's whole assignment and id. Raises WriteRefused, NoNode if the topic was deleted."""
        [result] = await self.write([Set(znodes.topic_path(topic), znodes.encode_topic(topic_id, partitions))])
        if result.code is ZkCode.NO_NODE:
            raise NoNode(znodes.topic_path(topic))
        if result.code is not ZkCode.OK:
            raise WriteRefused(f"{znodes.topic_path(topic)} cannot be changed: {result.code.name}")

    # ---- notifications

    async def list_notifications(self, parent: str) -> list[str]:
        """The names of the notifications below `parent`, oldest first; the list is watched from now on."""
        return sorted((await self.client.children(parent, watch=True))[0])

    async def read_notifications(
        self, parent: str, children: Sequence[str]
    ) -> tuple[dict[str, bytes | None], dict[str, str]]:
        """Read these notifications: the contents by name, and by name the error codes of those that cannot be read.

        Deleted notifications are in neither.
        """
        results = await self.client.get_many([f"{parent}/{child}" for child in children])
        read = dict(zip(children, results, strict=True))
        found = {child: r.data for child, r in read.items() if r.code is ZkCode.OK}
        return found, {c: r.code.name for c, r in read.items() if r.code not in (ZkCode.OK, ZkCode.NO_NODE)}

    async def delete_notifications(self, parent: str, children: Sequence[str]) -> None:
        """Delete these notifications; those already deleted are skipped."""
        await self.write([Delete(f"{parent}/{child}") for child in children])

    # ---- the controller

    async def set_up_features(self, version: int, enabled: bool) -> tuple[dict[str, int], int]:
        """Write `/feature` as inter.broker.protocol.version requires.

        Returns the finalized levels and the znode's version. The write is guarded by the znode's version, unlike in
        Kafka. Raises MalformedZnode.
        """
        try:
            now, epoch = await self.read_features()
        except NoNode:
            try:
                _, stat = await self.client.create(
                    znodes.FEATURE, encode_features(FinalizedFeatures(version, enabled, {}))
                )
            except NodeExists:
                return await self.set_up_features(version, enabled)
            return {}, stat.version
        levels = now.levels if enabled and now.enabled else {}
        wanted = FinalizedFeatures(version, enabled, levels)
        if wanted != now:
            try:
                epoch = await self.write_features(wanted, epoch)
            except BadVersion:
                return await self.set_up_features(version, enabled)
        return levels, epoch

    async def read_features(self) -> tuple[FinalizedFeatures, int]:
        """The finalized features and the znode's version. Raises NoNode, MalformedZnode."""
        data, stat = await self.client.get(znodes.FEATURE)
        return decode_features(data), stat.version

    async def write_features(self, features: FinalizedFeatures, version: int) -> int:
        """Write `/feature` if it still has this version; returns the next version. Raises BadVersion."""
        return (await self.client.set(znodes.FEATURE, encode_features(features), version)).version

    async def delete_controller(self) -> None:
        """Delete `/controller`, so that a new controller is elected. Raises WriteRefused."""
        [result] = await self.write([Delete(znodes.CONTROLLER)])
        if result.code not in (ZkCode.OK, ZkCode.NO_NODE):
            raise WriteRefused(f"{znodes.CONTROLLER} cannot be deleted: {result.code.name}")

    async def confirm_controllership(self) -> None:
        """Check in ZooKeeper that this node is still controller, before an irreversible step.

        Raises ControllerMoved.
        """
        await self.write([Check(znodes.CONTROLLER_EPOCH, -1)])

    async def write(self, ops: Sequence[Op]) -> list[Result]:
        """Write the operations if the controller epoch is still ours; one result per operation.

        Raises ControllerMoved.
        """
        return await self.writer.write(ops)


def _outcome(states: Mapping[P, LeaderAndIsr], results: Sequence[Result], conflict: ZkCode) -> StatesWritten[P]:
    """The results by partition; the error code `conflict` means that another client wrote first."""
    outcome: StatesWritten[P] = StatesWritten()
    for (partition, state), result in zip(states.items(), results, strict=True):
        if result.code is ZkCode.OK and result.stat is not None:
            leader, leader_epoch, isr, controller_epoch, _, recovery = state  # written out: _replace is slow
            now = leader, leader_epoch, isr, controller_epoch, result.stat.version, recovery
            outcome.written[partition] = _new(LeaderAndIsr, now)
        elif result.code is conflict:
            outcome.conflicted.append(partition)
        else:
            outcome.failed[partition] = f"ZooKeeper answered {result.code.name}"
    return outcome
