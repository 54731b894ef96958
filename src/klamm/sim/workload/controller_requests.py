"""Verbs that send requests to the controller, other than reassignments, elections and topics."""

import asyncio
from typing import Final, NamedTuple
from uuid import UUID

from klamm.controller.context import ControllerContext
from klamm.controller.control_requests import ControlItem
from klamm.controller.decisions.features import FeatureUpdate, UpgradeType
from klamm.controller.request_batch import Outbox, RequestBatch
from klamm.controller.states import ControllerState
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.actions import ClusterUnderTest, Draw
from klamm.sim.history.trace import TermBegan
from klamm.sim.nodes.broker import Node, StubBroker
from klamm.sim.nodes.settings import FEATURE
from klamm.sim.workload.reassignments import acting_controller, await_on_node
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from klamm.zk import znodes

_WITH_BROKER_EPOCHS: Final = 3
_RETRY_INTERVAL_S: Final = 0.05
_NON_REPLICA_IN_ISR: Final = "a non-replica in the ISR"
_OTHER_LEADER: Final = "another leader"
_ALTER_PARTITION_DEFECTS: Final = (
    _NON_REPLICA_IN_ISR,
    "a future partition epoch",
    "a future leader epoch",
    "an old leader epoch",
    "an old partition epoch",
    "an empty ISR",
    "an unknown recovery state",
    "a leader that sets itself to recovering",
    "a recovering leader with a larger ISR",
    _OTHER_LEADER,
    "an unknown partition",
    "an unknown topic",
)
_NO_RECOVERY: Final = 7
_UNKNOWN_BROKER: Final = 77
_LARGE: Final = 10_000
_NO_MEMORY_S: Final = 2.0


async def query_controller(cluster: ClusterUnderTest, draw: Draw) -> None:
    """List reassignments, allocate producer ids, send controlled shutdowns and update a feature, all at once."""
    node = acting_controller(cluster)
    number = draw("node", lambda rng: node.broker.number if node else None)
    level = draw("level", lambda rng: rng.randint(0, 2))
    if node is None or number is None:
        return
    cluster.log(f"node {number} is asked for moves, producer ids, and feature {FEATURE} {level}")
    update = [FeatureUpdate(FEATURE, level)]
    controller, broker = node.broker.controller, node.broker
    known = [p for p, states in cluster.history.states.versions.items() if states]
    await asyncio.gather(
        await_on_node(cluster, node, controller.list_reassignments, None),
        await_on_node(cluster, node, controller.list_reassignments, [*known, TopicPartition("nope", 0)]),
        await_on_node(cluster, node, controller.allocate_producer_ids, broker.number, broker.broker_epoch),
        await_on_node(cluster, node, controller.allocate_producer_ids, broker.number, broker.broker_epoch - 1),
        await_on_node(cluster, node, controller.allocate_producer_ids, BrokerId(_UNKNOWN_BROKER), 0),
        await_on_node(cluster, node, controller.controlled_shutdown, BrokerId(_UNKNOWN_BROKER), 0),
        await_on_node(cluster, node, controller.controlled_shutdown, broker.number, broker.broker_epoch - 1),
        await_on_node(cluster, node, controller.update_features, update, 1.0, validate_only=False),
        await_on_node(cluster, node, _read_controller_state, cluster, node),
    )


async def _read_controller_state(cluster: ClusterUnderTest, node: Node) -> None:
    """Read what monitoring and the node's other request handlers read from the controller."""
    controller = node.broker.controller
    readings = sum(1 for _ in controller.readings(await controller.count_deletion()))
    topics = cluster.history.topics.znodes.items()
    deleting = [name for name, _ in topics if controller.is_queued_for_deletion(name)]
    named = sum(controller.topic_name(t.id) is not None for _, t in topics if t.id is not None)
    cluster.log(
        f"node {node.broker.number} reports {readings} metrics, {named} topics by id, {deleting} topics to be deleted"
    )


async def update_feature(cluster: ClusterUnderTest, draw: Draw) -> None:
    """An operator finalizes a feature, changes its level, or deletes it; some requests are invalid."""
    level = draw("level", lambda rng: rng.randint(0, 5))
    how = draw("how", lambda rng: rng.choice((UpgradeType.UPGRADE, UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE)))
    if (node := acting_controller(cluster)) is None:
        return
    updates = [FeatureUpdate(FEATURE, level, how)]
    answer = await await_on_node(
        cluster, node, node.broker.controller.update_features, updates, 1.0, validate_only=False
    )
    cluster.log(f"node {node.broker.number} is asked for {FEATURE} {level}, {UpgradeType(how).name}: {answer}")


async def hand_over(cluster: ClusterUnderTest, draw: Draw) -> None:
    """Make a node controller, as `klamm controller reelect --broker N` does, unless the term has changed meanwhile."""
    number = draw("node", lambda rng: rng.choice(list(cluster.nodes)))
    after_s = draw("after_s", lambda rng: rng.choice((0.0, 0.0, 0.2)))
    epoch = cluster.history.controllers.epoch
    await asyncio.sleep(after_s)
    node = cluster.nodes[number]
    if not node.host.is_alive or not node.broker.is_ready:
        return
    cluster.log(f"node {number} is asked to become controller in place of the controller of epoch {epoch}")
    taken = await await_on_node(cluster, node, node.broker.controller.become_controller, epoch)
    cluster.log(f"node {number} {'is' if taken else 'is not'} controller now")


class _FailingOutbox(NamedTuple):
    """An outbox whose first send raises MemoryError."""

    batch: RequestBatch
    before: Outbox

    def send(self, broker: BrokerId, item: ControlItem) -> None:
        """Raise MemoryError once in place of queueing the request, and restore the former outbox."""
        self.batch.outbox = self.before
        raise MemoryError(f"simulated: no memory for the requests to broker {broker}")


async def run_out_of_memory(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A control request raises MemoryError when it is sent, during normal work or during failover."""
    new = draw("new", lambda rng: rng.random() < 0.5)
    if (node := acting_controller(cluster)) is None:
        return
    term = node.broker.controller.term
    if new:
        await cluster.store.client.delete(znodes.CONTROLLER)
        while (node := acting_controller(cluster)) is None or node.broker.controller.term is term:
            await cluster.next_event(TermBegan)
        term = node.broker.controller.term
    assert term is not None, "who acts has a term"
    cluster.log(f"node {node.broker.number} runs out of memory at its next control request")
    before = term.batch.outbox
    term.batch.outbox = _FailingOutbox(term.batch, before)
    try:
        await asyncio.sleep(_NO_MEMORY_S)
    finally:
        term.batch.outbox = before


async def allow_unclean_by_default(cluster: ClusterUnderTest, draw: Draw) -> None:
    """The brokers' default for unclean leader election changes at run time on every node."""
    allowed = draw("allowed", lambda rng: rng.random() < 0.5)
    cluster.log(f"unclean.leader.election.enable={str(allowed).lower()} by default")
    for node in cluster.nodes.values():
        if node.host.is_alive:
            change = node.broker.allow_unclean_election
            cluster.loop.call_on(node.host, cluster.loop.time(), change, allowed)


async def send_invalid_alter_partition(cluster: ClusterUnderTest, draw: Draw) -> None:
    """The controller gets an AlterPartition with one defect, such as a non-replica in the ISR or a future epoch."""
    defect = draw("defect", lambda rng: rng.choice(_ALTER_PARTITION_DEFECTS))
    led = sorted(
        f"{p.topic}-{p.partition}" for p, states in cluster.history.states.versions.items() if states[-1].has_leader
    )
    chosen = draw("partition", lambda rng: rng.choice(led) if led else "")
    node = acting_controller(cluster)
    if not chosen or node is None:
        return
    topic, _, number = chosen.rpartition("-")
    broker = node.broker

    async def ask() -> None:
        """Send the request while the controller is idle, so that the defect still exists when it is handled."""
        while broker.controller.queue_size or broker.controller.state is not ControllerState.IDLE:  # noqa: ASYNC110  # looks on from outside
            await asyncio.sleep(_RETRY_INTERVAL_S)
        request = _invalid_alter_partition(broker, TopicPartition(topic, int(number)), defect)
        if request is not None:
            cluster.log(f"node {broker.number} is asked for {chosen} with {defect}")
            answer = await broker.controller.alter_partition(request, _WITH_BROKER_EPOCHS)
            cluster.log(f"the answer to this invalid ISR change: {answer}")

    await await_on_node(cluster, node, ask)


def _invalid_alter_partition(broker: StubBroker, p: TopicPartition, defect: str) -> AlterPartitionRequest | None:
    """An AlterPartition with this defect; None if it cannot be made for this controller."""
    term = broker.controller.term
    partition = term.context.partition(p.topic, p.partition) if term is not None else None
    if term is None or partition is None or partition.leadership is None or not term.owns_partition_state:
        return None
    now, topic_id = partition.leadership, term.context.topics[p.topic].id
    others = sorted(b for b in term.context.registered if b != now.leader)
    if defect == _OTHER_LEADER and not others:
        return None
    sender = others[0] if defect == _OTHER_LEADER else now.leader
    registration, non_replicas = (
        term.context.registered.get(BrokerId(sender)),
        _live_non_replicas(term.context, partition),
    )
    if registration is None or topic_id is None or (defect == _NON_REPLICA_IN_ISR and not non_replicas):
        return None
    isrs = {
        _NON_REPLICA_IN_ISR: (*now.isr, *non_replicas[:1]),
        "an empty ISR": (),
        _OTHER_LEADER: (BrokerId(sender),),
        "an old partition epoch": (*now.isr, now.leader),
        "an unknown recovery state": (*now.isr, now.leader),
        "a leader that sets itself to recovering": (now.leader,),
        "a recovering leader with a larger ISR": (now.leader, *now.isr),
    }
    recoveries = {"an unknown recovery state": _NO_RECOVERY}
    data = AlterPartitionRequestPartitionData(
        partition_index=_LARGE if defect == "an unknown partition" else p.partition,
        leader_epoch=now.leader_epoch + _epoch_offset(defect, "leader epoch"),
        partition_epoch=now.partition_epoch + _epoch_offset(defect, "partition epoch"),
        leader_recovery_state=recoveries.get(defect, int("recover" in defect)),
        new_isr_with_epochs=[BrokerState(broker_id=b, broker_epoch=-1) for b in isrs.get(defect, now.isr)],
    )
    unknown = UUID(int=_LARGE) if defect == "an unknown topic" else topic_id
    return AlterPartitionRequest(sender, registration.epoch, [AlterPartitionRequestTopicData(p.topic, unknown, [data])])


def _epoch_offset(defect: str, what: str) -> int:
    """1 if the defect is a future epoch of this kind, -1 if it is an old one, else 0."""
    return {f"a future {what}": 1, f"an old {what}": -1}.get(defect, 0)


def _live_non_replicas(context: ControllerContext, partition: Partition) -> list[int]:
    """Live brokers that are not replicas of the partition."""
    return sorted(b for b in context.live if b not in partition.replicas)
