"""Verbs that ask a controller for something other than moves, elections and topics."""

import asyncio
from typing import Final

from klamm.controller.context import ControllerContext, Partition
from klamm.controller.decisions.features import FeatureUpdate
from klamm.controller.states import ControllerState
from klamm.model.ids import TopicPartition
from klamm.sim.brokers import StubBroker
from klamm.sim.moving import acting_controller, ask_on_its_host
from klamm.sim.stage import Draw, Stage
from klamm.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)

_FEATURE: Final = "group.version"
_WITH_BROKER_EPOCHS: Final = 3
_LOOK_AGAIN_S: Final = 0.05
_A_STRANGER: Final = "a stranger in the ISR"
_ODDITIES: Final = (_A_STRANGER, "a partition epoch to come", "a leader epoch to come")


async def ask_around(stage: Stage, draw: Draw) -> None:
    """Somebody lists what moves, a broker wants producer ids, and an operator tries out a feature: in one go."""
    node = acting_controller(stage)
    number = draw("node", lambda dice: node.broker.number if node else None)
    level = draw("level", lambda dice: dice.randint(0, 2))
    if node is None or number is None:
        return
    stage.tell(f"node {number} is asked for moves, producer ids, and feature {_FEATURE} {level}")
    update = [FeatureUpdate(_FEATURE, level)]
    controller, broker = node.broker.controller, node.broker
    await asyncio.gather(
        ask_on_its_host(stage, node, controller.list_reassignments(None)),
        ask_on_its_host(stage, node, controller.allocate_producer_ids(broker.number, broker.broker_epoch)),
        ask_on_its_host(stage, node, controller.update_features(update, 1.0, validate_only=False)),
    )


async def allow_unclean_by_default(stage: Stage, draw: Draw) -> None:
    """The brokers' default for unclean elections changes at run time, on every node."""
    allowed = draw("allowed", lambda dice: dice.random() < 0.5)
    stage.tell(f"unclean.leader.election.enable={str(allowed).lower()} by default")
    for node in stage.nodes.values():
        if node.host.is_alive:
            change = node.broker.controller.allow_unclean_election
            stage.loop.call_on(node.host, stage.loop.time(), change, allowed)


async def ask_oddly(stage: Stage, draw: Draw) -> None:
    """An ISR change that no leader by the book asks for: with a stranger, or of an epoch that is still to come."""
    oddity = draw("oddity", lambda dice: dice.choice(_ODDITIES))
    led = sorted(f"{p.topic}-{p.partition}" for p, states in stage.history.states.items() if states[-1].has_leader)
    chosen = draw("partition", lambda dice: dice.choice(led) if led else "")
    node = acting_controller(stage)
    if not chosen or node is None:
        return
    topic, _, number = chosen.rpartition("-")
    broker = node.broker

    async def ask() -> None:
        """When nothing is under way: so what is odd now is odd when it is judged."""
        while broker.controller.queue_size or broker.controller.state is not ControllerState.IDLE:  # noqa: ASYNC110  # looks on from outside
            await asyncio.sleep(_LOOK_AGAIN_S)
        request = _odd_request(broker, TopicPartition(topic, int(number)), oddity)
        if request is not None:
            stage.tell(f"node {broker.number} is asked for {chosen} with {oddity}")
            answer = await broker.controller.alter_partition(request, _WITH_BROKER_EPOCHS)
            stage.tell(f"the answer to what is odd: {answer}")

    await ask_on_its_host(stage, node, ask())


def _odd_request(broker: StubBroker, p: TopicPartition, oddity: str) -> AlterPartitionRequest | None:
    """None where nothing of the kind can be asked of this controller."""
    bench = broker.controller.bench
    partition = bench.context.partition(p.topic, p.partition) if bench is not None else None
    if bench is None or partition is None or partition.leadership is None or not bench.settings.alone_writes_states:
        return None
    now, topic_id = partition.leadership, bench.context.topics[p.topic].id
    leader = bench.context.registered.get(now.leader)
    strangers = _strangers(bench.context, partition)
    if leader is None or topic_id is None or (oddity == _A_STRANGER and not strangers):
        return None
    isr = (*now.isr, strangers[0]) if oddity == _A_STRANGER else now.isr
    data = AlterPartitionRequestPartitionData(
        partition_index=p.partition,
        leader_epoch=now.leader_epoch + (oddity == "a leader epoch to come"),
        partition_epoch=now.partition_epoch + (oddity == "a partition epoch to come"),
        new_isr_with_epochs=[BrokerState(broker_id=b, broker_epoch=-1) for b in isr],
    )
    topics = [AlterPartitionRequestTopicData(p.topic, topic_id, [data])]
    return AlterPartitionRequest(now.leader, leader.epoch, topics)


def _strangers(context: ControllerContext, partition: Partition) -> list[int]:
    return sorted(b for b in context.live if b not in partition.replicas)
