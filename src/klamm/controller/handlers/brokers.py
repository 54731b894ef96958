"""Handling of brokers that register, bounce, die, change or ask for a controlled shutdown.

Source: KafkaController.processBrokerChange, KafkaController.doControlledShutdown (3.9).
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence

from klamm.controller.decisions.changes import diff_brokers
from klamm.controller.decisions.controlled_shutdown import (
    ControlledShutdownPlan,
    check_controlled_shutdown,
    plan_controlled_shutdown,
    remaining_leaders,
)
from klamm.controller.decisions.elections import elect_for_controlled_shutdown
from klamm.controller.decisions.features import supports
from klamm.controller.events import BrokerChange, BrokerModifications, ControlledShutdown, ShutdownAnswer
from klamm.controller.handlers.partitions import bring_online, trigger_online
from klamm.controller.handlers.pending_deletions import send_pending_deletions
from klamm.controller.handlers.reassignment import advance_reassignments
from klamm.controller.handlers.replicas import Replicas, SentStates, replicas_offline, replicas_online
from klamm.controller.handlers.topic_deletion import deletions_on, fail_replica_deletions, resume_deletions
from klamm.controller.states import PartitionState
from klamm.controller.steps import SHUTDOWN_PARTITIONS
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.brokers import Broker
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.telemetry.journal import by_topic
from klamm.zk.store import Registrations
from klamm.zk.znodes import MalformedZnode


async def on_broker_change(term: TermContext, event: BrokerChange) -> None:
    """Handle new brokers, then bounced ones (first as dead, then as new), then dead ones.

    A bounced broker has no channel while the others are handled: the first LeaderAndIsr after its restart must have all
    of its partitions. If ZooKeeper fails, brokers that are not handled to the end are reported again at the retry.
    """
    found = await term.store.read_brokers(watch=True)
    current = usable_brokers(term, found) | _unreadable_since(term, found)
    changes = diff_brokers(term.context.registered, current, term.context.brokers_in_transition)
    if changes:
        gone = [*changes.dead, *(b.id for b in changes.bounced)]
        known = term.context.registered
        ends = await term.store.read_process_ends({b: known[b].epoch if b in known else 0 for b in gone})
        term.journal.found(
            term.cause,
            new=[b.id for b in changes.new],
            bounced=[b.id for b in changes.bounced],
            dead=changes.dead,
            ended=ends,
        )
    new = [b.id for b in changes.new]
    bounced = [b.id for b in changes.bounced]
    term.context.brokers_in_transition.update(dict.fromkeys((*new, *bounced, *changes.dead)))
    for broker in term.context.brokers_in_transition:
        term.channels.remove(broker)
    if changes.new:
        open_channels(term, changes.new)
        term.context.add_brokers(changes.new)
        await on_broker_startup(term, new)
    if changes.bounced:
        term.context.remove_brokers(bounced)
        await on_broker_failure(term, bounced)
        await term.slices.yield_now()  # requests list the brokers of the moment they are sent: these are not among them
        open_channels(term, changes.bounced)
        term.context.add_brokers(changes.bounced)
        await on_broker_startup(term, bounced)
    if changes.dead:
        term.context.remove_brokers(changes.dead)
        await on_broker_failure(term, changes.dead)
    term.context.brokers_in_transition.clear()


async def on_broker_startup(term: TermContext, brokers: Sequence[BrokerId]) -> None:
    """Send metadata, then all hosted replicas; then elect leaders, and resume reassignments and deletions."""
    context = term.context
    context.last_sent_assignments.clear()
    for broker in brokers:
        context.offline_dirs.pop(broker, None)
        context.gone_since.pop(broker, None)
        term.timers.cancel(("gone", broker))
    term.batch.add_metadata((b for b in context.registered if b not in brokers), ())
    await term.send_requests()
    async for chunk in term.slices.over(context.partitions()):
        term.batch.add_metadata(brokers, [p for p in chunk if not context.is_to_be_deleted(p)])
    term.batch.add_metadata(brokers, ())
    await term.send_requests()
    await _send_pending_deletions(term, brokers)
    hosted = not_to_be_deleted(term, await _hosted_by(term, brokers))
    await replicas_online(term, hosted, elections_follow=True)
    await trigger_online(term)
    arrived = frozenset(brokers)
    await advance_reassignments(term, [p for p in context.reassigning if not arrived.isdisjoint(p.assignment.target)])
    await resume_deletions(term, await deletions_on(term, brokers))


async def _send_pending_deletions(term: TermContext, brokers: Sequence[BrokerId]) -> None:
    """Delete replicas pending deletion, or close the channels: a broker's first LeaderAndIsr must be complete."""
    try:
        await send_pending_deletions(term, brokers)
    except KlammError:
        for broker in brokers:
            term.channels.remove(broker)
        raise


async def on_broker_failure(term: TermContext, brokers: Collection[BrokerId]) -> None:
    """Elect new leaders for the brokers' partitions, remove the brokers from ISRs, notify the live brokers."""
    context = term.context
    for broker in brokers:
        context.offline_dirs.pop(broker, None)
        context.gone_since[broker] = asyncio.get_running_loop().time()
    context.end_shutdown(brokers)
    await on_replicas_offline(term, await _hosted_by(term, brokers))


async def _hosted_by(term: TermContext, brokers: Iterable[BrokerId]) -> dict[BrokerId, list[Partition]]:
    """The partitions with a replica on each of these brokers."""
    hosted = {}
    for broker in brokers:
        replicas = term.context.replicas_on(broker)
        await term.slices.checkpoint(len(replicas))
        hosted[broker] = list(replicas)
    return hosted


async def on_replicas_offline(term: TermContext, replicas: Replicas) -> None:
    """Handle replicas on dead brokers or failed log directories: elect leaders, then remove the replicas from ISRs."""
    context = term.context
    leaderless: list[Partition] = []
    async for chunk in term.slices.over(context.without_online_leader()):
        leaderless += chunk
        context.move([p for p in chunk if not context.is_to_be_deleted(p)], PartitionState.OFFLINE)
    elected = await trigger_online(term)
    kept = not_to_be_deleted(term, replicas)
    await replicas_offline(term, kept, await _states_sent_to_all(term, leaderless))
    if context.topics_to_be_deleted:
        going = {b: [p for p in held if context.is_to_be_deleted(p)] for b, held in replicas.items()}
        await fail_replica_deletions(term, going)
    if elected == 0 and not any(kept.values()):
        # no partition changed: the brokers need the new broker list nevertheless (KAFKA-13225)
        term.batch.add_metadata(context.registered, ())
        await term.send_requests()


async def _states_sent_to_all(term: TermContext, partitions: Iterable[Partition]) -> SentStates:
    """The states of partitions whose election was just sent to all replicas; these need no second LeaderAndIsr."""
    context = term.context
    sent: dict[Partition, LeaderAndIsr | None] = {}
    if context.offline_dirs or context.leaving or not term.batch.coalesces_requests:
        return sent
    async for chunk in term.slices.over(partitions):
        sent.update({p: p.leadership for p in chunk if p.state is PartitionState.ONLINE})
    return sent


def not_to_be_deleted(term: TermContext, replicas: Replicas) -> Replicas:
    """Return the replicas without those of topics queued for deletion, which get only StopReplica."""
    if not term.context.topics_to_be_deleted:
        return replicas
    return {b: [p for p in partitions if not term.context.is_to_be_deleted(p)] for b, partitions in replicas.items()}


async def on_broker_modifications(term: TermContext, event: BrokerModifications) -> None:
    """Notify all brokers of a live broker's new listeners."""
    known = term.context.registered.get(event.broker)
    try:
        read = await term.store.read_broker(event.broker, watch=True)
    except MalformedZnode as error:
        term.journal.refused(term.cause, "broker registration", str(error), broker=event.broker)
        return
    if known is None or read is None or read.broker.endpoints == known.endpoints:
        return
    if read.broker.epoch != known.epoch:
        return  # it bounced: with the new epoch in memory the handling of that would see nothing
    term.context.add_brokers([read.broker])
    term.batch.add_metadata(term.context.registered, ())
    await term.send_requests()


def usable_brokers(term: TermContext, found: Registrations) -> dict[BrokerId, Broker]:
    """Brokers whose registration is readable and supports the finalized features; the others are journalled."""
    for broker, unreadable in found.unreadable.items():
        term.journal.refused(term.cause, "broker registration", unreadable.why, broker=broker)
    finalized = term.context.finalized
    for broker, registration in found.brokers.items():
        if not supports(registration.features, finalized):
            why = f"it does not support the finalized features {dict(finalized)}"
            term.journal.refused(term.cause, "broker", why, broker=broker)
    return {b: r.broker for b, r in found.brokers.items() if supports(r.features, finalized)}


def _unreadable_since(term: TermContext, found: Registrations) -> dict[BrokerId, Broker]:
    """Known brokers whose registration became unreadable: they live as long as their session holds it."""
    known = term.context.registered
    return {b: known[b] for b, u in found.unreadable.items() if b in known and u.czxid in (None, known[b].epoch)}


def open_channels(term: TermContext, brokers: Iterable[Broker]) -> None:
    """Open a channel to each broker; a broker without the listener for control requests is journalled."""
    for broker in brokers:
        if (why := term.channels.add(broker)) is not None:
            term.journal.refused(term.cause, "channel", why, broker=broker.id)


async def on_controlled_shutdown(term: TermContext, event: ControlledShutdown) -> None:
    """Move the broker's leaders, stop its followers, and answer with the partitions that it still leads."""
    context, broker = term.context, event.broker
    error = check_controlled_shutdown(context, broker, event.broker_epoch)
    if error is not ErrorCode.NONE:
        event.refuse(error)
        return
    context.begin_shutdown(broker)
    if term.batch.coalesces_requests:
        term.batch.max_partitions = SHUTDOWN_PARTITIONS
    try:
        await _move_leaders_and_followers(term, broker)
    finally:
        term.batch.max_partitions = None
    remaining = remaining_leaders(context, broker)
    term.journal.line(term.cause, "controlled-shutdown", broker=broker, partitions=by_topic(remaining))
    event.answer(ShutdownAnswer(ErrorCode.NONE, tuple(p.key for p in remaining)))


async def _move_leaders_and_followers(term: TermContext, broker: BrokerId) -> None:
    """Elect new leaders for what the broker leads, and take it out of the ISRs of what it follows.

    A follower is stopped after its leader got the ISR without it: between the two, acks=all would wait for it. Kafka
    stops it first, and once more then.
    """
    plan = ControlledShutdownPlan([], [])
    async for chunk in term.slices.over(list(term.context.replicas_on(broker))):
        plan_controlled_shutdown(term.context, broker, chunk, plan)
    await bring_online(term, plan.led, elect_for_controlled_shutdown)
    if not term.batch.coalesces_requests:
        for p in plan.followed:
            term.batch.add_stop_replica([broker], p, delete=False)
        await term.send_requests()
    await replicas_offline(term, {broker: plan.followed})
