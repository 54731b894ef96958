"""What the controller does when brokers come, go and bounce. Source: KafkaController.processBrokerChange (3.9)."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from klamm.controller.context import Partition
from klamm.controller.decisions.broker_changes import diff_brokers
from klamm.controller.decisions.features import supports
from klamm.controller.events import BrokerChange, BrokerModifications
from klamm.controller.handlers.condemned import on_brokers_return
from klamm.controller.handlers.partitions import trigger_online
from klamm.controller.handlers.reassignment import proceed
from klamm.controller.handlers.replicas import Replicas, Told, replicas_offline, replicas_online
from klamm.controller.handlers.topic_deletion import deletions_on, replicas_failed, resume_deletions
from klamm.controller.request_batch import METADATA_CHUNK
from klamm.controller.states import PartitionState
from klamm.controller.workbench import Workbench
from klamm.model.brokers import Broker
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk.store import Registrations
from klamm.zk.znodes import MalformedZnode

MOVE_CHUNK: Final = 5_000


async def on_broker_change(bench: Workbench, event: BrokerChange) -> None:
    """New brokers first, then those that bounced (as dead, then new), then the dead.

    What is decided on the way finds a bounced broker without a channel, as if it were dead: the first thing that its
    new run hears of leaders must be all of its partitions. Where ZooKeeper fails on the way, whoever is not settled yet
    is new, bounced or dead once more.
    """
    found = await bench.store.read_brokers(watch=True)
    changes = diff_brokers(bench.context.registered, usable_brokers(bench, found), bench.context.unsettled)
    if changes:
        bench.journal.found(
            bench.cause,
            new=[b.id for b in changes.new],
            bounced=[b.id for b in changes.bounced],
            dead=changes.dead,
        )
    new = [b.id for b in changes.new]
    bounced = [b.id for b in changes.bounced]
    bench.context.unsettled.update(dict.fromkeys((*new, *bounced, *changes.dead)))
    for broker in bench.context.unsettled:
        bench.channels.remove(broker)
    if changes.new:
        open_channels(bench, changes.new)
        bench.context.add_brokers(changes.new)
        await on_broker_startup(bench, new)
    if changes.bounced:
        bench.context.remove_brokers(bounced)
        await on_broker_failure(bench, bounced)
        open_channels(bench, changes.bounced)
        bench.context.add_brokers(changes.bounced)
        await on_broker_startup(bench, bounced)
    if changes.dead:
        bench.context.remove_brokers(changes.dead)
        await on_broker_failure(bench, changes.dead)
    bench.context.unsettled.clear()


async def on_broker_startup(bench: Workbench, brokers: Sequence[BrokerId]) -> None:
    """Metadata before anything else, then everything that they host, then elections they may help with."""
    context = bench.context
    context.told_of_moves.clear()
    for broker in brokers:
        context.offline_dirs.pop(broker, None)
        context.gone_since.pop(broker, None)
        bench.timers.cancel(("gone", broker))
    bench.batch.add_metadata((b for b in context.registered if b not in brokers), ())
    await bench.send_requests()
    async for chunk in bench.turns.over(context.partitions(), METADATA_CHUNK):
        bench.batch.add_metadata(brokers, [p for p in chunk if not context.is_to_be_deleted(p)])
    bench.batch.add_metadata(brokers, ())
    await bench.send_requests()
    await _delete_condemned(bench, brokers)
    hosted = not_to_be_deleted(bench, await _hosted_by(bench, brokers))
    await replicas_online(bench, hosted, elections_follow=True)
    await trigger_online(bench)
    arrived = frozenset(brokers)
    await proceed(bench, [p for p in context.reassigning if not arrived.isdisjoint(p.assignment.target)])
    await resume_deletions(bench, await deletions_on(bench, brokers))


async def _delete_condemned(bench: Workbench, brokers: Sequence[BrokerId]) -> None:
    """Without it they hear nothing until it is tried again: their first LeaderAndIsr has to be whole."""
    try:
        await on_brokers_return(bench, brokers)
    except KlammError:
        for broker in brokers:
            bench.channels.remove(broker)
        raise


async def on_broker_failure(bench: Workbench, brokers: Collection[BrokerId]) -> None:
    """Find new leaders for what they led, take them out of the ISRs, tell the survivors."""
    context = bench.context
    for broker in brokers:
        context.offline_dirs.pop(broker, None)
        context.gone_since[broker] = asyncio.get_running_loop().time()
    context.end_shutdown(brokers)
    await on_replicas_offline(bench, await _hosted_by(bench, brokers))


async def _hosted_by(bench: Workbench, brokers: Iterable[BrokerId]) -> dict[BrokerId, list[Partition]]:
    hosted = {}
    for broker in brokers:
        replicas = bench.context.replicas_on(broker)
        await bench.turns.take_for(len(replicas))
        hosted[broker] = list(replicas)
    return hosted


async def on_replicas_offline(bench: Workbench, replicas: Replicas) -> None:
    """Dead brokers' replicas, or those on a failed log directory; the election comes before the ISR shrinks."""
    context = bench.context
    leaderless: list[Partition] = []
    async for chunk in bench.turns.over(context.led_by_nobody_online(), MOVE_CHUNK):
        leaderless += chunk
        context.move([p for p in chunk if not context.is_to_be_deleted(p)], PartitionState.OFFLINE)
    elected = await trigger_online(bench)
    kept = not_to_be_deleted(bench, replicas)
    await replicas_offline(bench, kept, await _told_to_all(bench, leaderless))
    if context.topics_to_be_deleted:
        condemned = {b: [p for p in partitions if context.is_to_be_deleted(p)] for b, partitions in replicas.items()}
        await replicas_failed(bench, condemned)
    if elected == 0 and not any(kept.values()):
        # nothing changed for any partition: the brokers still must learn the new broker list (KAFKA-13225)
        bench.batch.add_metadata(context.registered, ())
        await bench.send_requests()


async def _told_to_all(bench: Workbench, partitions: Iterable[Partition]) -> Told:
    """What an election just told to every replica whose broker is registered: none of these is passed over by it."""
    context = bench.context
    told: dict[Partition, LeaderAndIsr | None] = {}
    if context.offline_dirs or context.leaving or not bench.batch.joins_steps:
        return told
    async for chunk in bench.turns.over(partitions, MOVE_CHUNK):
        told.update({p: p.leadership for p in chunk if p.state is PartitionState.ONLINE})
    return told


def not_to_be_deleted(bench: Workbench, replicas: Replicas) -> Replicas:
    """Without those of topics that are queued for deletion: these are asked for nothing but to go."""
    if not bench.context.topics_to_be_deleted:
        return replicas
    return {b: [p for p in partitions if not bench.context.is_to_be_deleted(p)] for b, partitions in replicas.items()}


async def on_broker_modifications(bench: Workbench, event: BrokerModifications) -> None:
    """A live broker changed its listeners: everyone is told."""
    known = bench.context.registered.get(event.broker)
    try:
        read = await bench.store.read_broker(event.broker, watch=True)
    except MalformedZnode as error:
        bench.journal.refused(bench.cause, "broker registration", str(error), broker=event.broker)
        return
    if known is None or read is None or read.broker.endpoints == known.endpoints:
        return
    if read.broker.epoch != known.epoch:
        return  # it bounced: with the new epoch in memory the handling of that would see nothing
    bench.context.add_brokers([read.broker])
    bench.batch.add_metadata(bench.context.registered, ())
    await bench.send_requests()


def usable_brokers(bench: Workbench, found: Registrations) -> dict[BrokerId, Broker]:
    """Those with a readable registration and what is finalized; a bad one must not stop the handling of all others."""
    for broker, why in found.unreadable.items():
        bench.journal.refused(bench.cause, "broker registration", why, broker=broker)
    finalized = bench.context.finalized
    for broker, registration in found.brokers.items():
        if not supports(registration.features, finalized):
            why = f"it does not support the finalized features {dict(finalized)}"
            bench.journal.refused(bench.cause, "broker", why, broker=broker)
    return {b: r.broker for b, r in found.brokers.items() if supports(r.features, finalized)}


def open_channels(bench: Workbench, brokers: Iterable[Broker]) -> None:
    for broker in brokers:
        if (why := bench.channels.add(broker)) is not None:
            bench.journal.refused(bench.cause, "channel", why, broker=broker.id)
