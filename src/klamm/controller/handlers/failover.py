"""The failover of a new controller: what it reads, writes and sends, in Kafka's order.

Source: KafkaController.onControllerFailover, initializeControllerContext (3.9).
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from klamm.controller.context import ControllerContext
from klamm.controller.decisions.elections import elect_offline
from klamm.controller.decisions.plans import StatePlan, plan_unnoticed_restarts
from klamm.controller.events import ResumeAfterFailure
from klamm.controller.handlers.brokers import not_to_be_deleted, open_channels, usable_brokers
from klamm.controller.handlers.cluster_services import begin_expiring_tokens, set_up_features
from klamm.controller.handlers.elections import begin_rebalancing, on_listed_election
from klamm.controller.handlers.foreign_states import adopt_foreign_states
from klamm.controller.handlers.mirrored import take_mirror
from klamm.controller.handlers.partitions import bring_online, electable_partitions, trigger_online
from klamm.controller.handlers.pending_deletions import (
    load_pending_deletions,
    remove_finished_records,
    send_pending_deletions,
)
from klamm.controller.handlers.reassignment import advance_reassignments
from klamm.controller.handlers.reassignment_requests import resume_reassignments
from klamm.controller.handlers.replicas import Replicas, replicas_offline, replicas_online
from klamm.controller.handlers.state_changes import States, change_known_states
from klamm.controller.handlers.tool_requests import unless_hidden
from klamm.controller.handlers.topic_deletion import queue_deletions, resume_deletions
from klamm.controller.handlers.topics import load_topics
from klamm.controller.loading import put_states
from klamm.controller.states import INITIAL_REPLICA_STATE, PartitionState, ReplicaState
from klamm.controller.steps import READ_PARTITIONS, REQUEST_PARTITIONS, WRITE_PARTITIONS, gather_limited
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition, Topic
from klamm.controller.whole_topics import may_be_sent_whole, parts_of, sent_to_live_replicas
from klamm.model.ids import NO_BROKER, BrokerId
from klamm.zk.fenced import chunks
from klamm.zk.znodes import ISR_CHANGES, LOG_DIR_EVENTS, PREFERRED_ELECTION

_BEFORE_OFFLINE = (ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.DELETION_INELIGIBLE)
"""Replica states before OfflineReplica; a term begins with replicas of dead brokers in DeletionIneligible, and a
replica that a reassignment adds is New until it completes, also in the ISR."""
MAX_SENT_BY_PARTITION: Final = REQUEST_PARTITIONS
"""In a cluster with more partitions topics are sent as a whole where that is possible."""


async def on_controller_failover(term: TermContext) -> None:
    """Read all state from ZooKeeper, send the broker list, then start replicas, partitions and pending work.

    Notifications are deleted before the context is read, since reading it covers what they announce. The broker list is
    sent before any LeaderAndIsr, because a broker cannot follow a leader that it does not know (KAFKA-4443). Partitions
    with a live leader lose their dead ISR members after the elections: the others wait for a leader (decision 0022). So
    does the metadata of whole topics for brokers that had it before; the elections' results are in it.
    """
    await set_up_features(term)
    for parent in (LOG_DIR_EVENTS, ISR_CHANGES):
        await term.store.delete_notifications(parent, await term.store.list_notifications(parent))
    await _read_context(term)
    await _journal_ended_brokers(term)
    await load_pending_deletions(term)
    to_be_deleted = await queue_deletions(term)
    term.batch.add_metadata(term.context.registered, ())
    await term.send_requests()
    await send_pending_deletions(term, list(term.context.registered))
    await _replace_restarted_members(term)
    offline, later = await _start_live_replicas(term)
    await _start_partitions(term)
    for partitions in _election_chunks(await electable_partitions(term)):
        await replicas_offline(term, _dead_replicas(term, partitions), elections_follow=True)
        await bring_online(term, partitions, elect_offline)
    term.batch.add_metadata_of_whole_topics(later.brokers, later.topics)
    await term.send_requests()
    await replicas_offline(term, await _not_offline_yet(term, offline))
    await resume_reassignments(term)
    await resume_deletions(term, to_be_deleted)
    await unless_hidden(term, PREFERRED_ELECTION, on_listed_election(term))
    begin_rebalancing(term)
    begin_expiring_tokens(term)


async def _journal_ended_brokers(term: TermContext) -> None:
    """Journal how the processes of brokers ended that no controller has handled yet, where their guards recorded it.

    The end of a broker that an earlier controller has taken out of all ISRs is not what this event is about.
    """
    gone = dict.fromkeys((b for b in term.context.replica_states if b not in term.context.registered), 0)
    ends = await term.store.read_process_ends(gone)
    if unhandled := [b for b in sorted(ends) if await _is_in_use(term, b)]:
        term.journal.found(term.cause, dead=unhandled, ended={b: ends[b] for b in unhandled})


async def _is_in_use(term: TermContext, broker: BrokerId) -> bool:
    """Whether the broker leads a partition, or is in an ISR beside others."""
    if term.context.led_by.get(broker):
        return True
    async for chunk in term.slices.over(term.context.replicas_on(broker)):
        isrs = {p.leadership.isr for p in chunk if p.leadership is not None}
        if any(broker in isr and len(isr) > 1 for isr in isrs):
            return True
    return False


async def on_resume_after_failure(term: TermContext, event: ResumeAfterFailure) -> None:
    """Retry all work that waits in memory, as at the end of a failover.

    Brokers in transition are skipped: the BrokerChange event that handles them is retried, too.
    """
    await remove_finished_records(term)
    await adopt_foreign_states(term, ())
    await _retry_restarted_members(term)
    await trigger_online(term)
    await replicas_offline(term, not_to_be_deleted(term, await _offline_replicas_in_isrs(term)))
    to_complete = [p for p in term.context.to_complete if not term.context.is_to_be_deleted(p)]
    await advance_reassignments(term, [*term.context.reassigning, *to_complete], again=True)
    await resume_deletions(term, list(term.context.topics_to_be_deleted))


async def _offline_replicas_in_isrs(term: TermContext) -> dict[BrokerId, list[Partition]]:
    """Replicas on dead brokers or failed directories that could not be removed from their ISRs, by broker."""
    context = term.context
    left: dict[BrokerId, list[Partition]] = {}
    for broker, states in context.replica_states.items():
        if broker in context.brokers_in_transition:
            continue
        gone = context.offline_dirs.get(broker, {}) if broker in context.registered else states
        async for chunk in term.slices.over(list(gone)):
            left.setdefault(broker, []).extend(p for p in chunk if states.get(p) in _BEFORE_OFFLINE)
    return left


async def _read_context(term: TermContext) -> None:
    """Read brokers, topics and partition states into the context, and open channels to the brokers."""
    context, since = term.context, term.store.seen_zxid
    brokers = usable_brokers(term, await term.store.read_brokers(watch=True))
    context.add_brokers(brokers.values())
    unread = await take_mirror(term, since, await term.store.list_topics(watch=True))
    partitions = list(unread.partitions)
    await load_topics(term, unread.topics, partitions, INITIAL_REPLICA_STATE)
    await gather_limited(_read_states(term, chunk) for chunk in chunks(partitions, READ_PARTITIONS))
    if context.observer is not None:
        context.observer.on_context_read(since)
    open_channels(term, brokers.values())


async def _read_states(term: TermContext, partitions: list[Partition]) -> None:
    """Read the state znodes of these partitions into the context."""
    read = await term.store.read_states(partitions)
    await put_states(term.context, term.slices, read)
    for p in read.unreadable:
        term.context.forget_leadership(p)
        p.state = PartitionState.NON_EXISTENT
    term.refuse("state", {p: why for p, why in read.unreadable.items() if p not in read.missing})


async def _replace_restarted_members(term: TermContext) -> None:
    """Remove brokers from ISRs that restarted while there was no controller, before they are told that they lead.

    They may have lost records in a power loss. Without a new leader epoch, a leader would write others in their place,
    and followers would not notice. What ZooKeeper refuses is tried again by ResumeAfterFailure.
    """
    if term.settings.replaces_restarted_replicas:
        term.context.restarted_members = await _members_restarted_unnoticed(term)
        await _remove_restarted_members(term)


async def _remove_restarted_members(term: TermContext) -> list[Partition]:
    """Remove `restarted_members` from their ISRs; returns the partitions that were written."""
    restarted, changed = term.context.restarted_members, list[Partition]()

    async def plan(stored: States) -> StatePlan:
        """Return the stored states without restarted members, to write."""
        return plan_unnoticed_restarts(restarted, stored, term.context.live, term.context.epoch)

    def apply(_: StatePlan, written: States) -> None:
        """Put the written states into the controller's memory."""
        term.apply_restarts(restarted, written)
        changed.extend(written)

    steps = (change_known_states(term, "restart", chunk, plan, apply) for chunk in chunks(restarted, WRITE_PARTITIONS))
    reached = [p for done in await gather_limited(steps) for p in done.reached]
    for p in reached:
        del restarted[p]
    return changed


async def _retry_restarted_members(term: TermContext) -> None:
    """Remove restarted members that ZooKeeper refused to remove at the failover, and tell the others.

    A member that left the ISR since, or whose topic is to be deleted, needs nothing any more.
    """
    context = term.context
    for p, members in list(context.restarted_members.items()):
        left = tuple(b for b in members if p.leadership is not None and b in p.leadership.isr)
        if left and not context.is_to_be_deleted(p):
            context.restarted_members[p] = left
        else:
            del context.restarted_members[p]
    changed = await _remove_restarted_members(term)
    context.move([p for p in changed if p.leader == NO_BROKER], PartitionState.OFFLINE)
    for p in changed:
        if p.leader != NO_BROKER:
            term.batch.add_leader_and_isr(p.replicas, p, is_new=False)


async def _members_restarted_unnoticed(term: TermContext) -> dict[Partition, tuple[BrokerId, ...]]:
    """By partition, the ISR members that registered after its state was written.

    A partition with one replica has none, because nobody else has its records; one that is to be deleted needs none.
    """
    context = term.context
    restarted: dict[Partition, tuple[BrokerId, ...]] = {}
    registered_at = {broker: known.epoch for broker, known in context.registered.items()}
    newest = _NewestRegistration(registered_at)
    async for chunk in term.slices.over(context.partitions()):
        for p in [p for p in chunk if (state := p.leadership) is not None and p.written_at < newest[state.isr]]:
            assert p.leadership is not None
            if len(p.replicas) > 1 and not context.is_to_be_deleted(p):
                members = [b for b in p.leadership.isr if registered_at.get(b, 0) > p.written_at]
                restarted[p] = tuple(sorted(members))
    return restarted


class _NewestRegistration(dict[tuple[BrokerId, ...], int]):
    """By ISR, the epoch of the member that registered last; looked up when it is first asked for."""

    def __init__(self, registered_at: Mapping[BrokerId, int]) -> None:
        super().__init__()
        self._registered_at = registered_at

    def __missing__(self, isr: tuple[BrokerId, ...]) -> int:
        newest = self[isr] = max((self._registered_at.get(b, 0) for b in isr), default=0)
        return newest


class LaterMetadata(NamedTuple):
    """The metadata that a new controller sends after the elections."""

    brokers: list[BrokerId]
    topics: list[Topic]


async def _start_live_replicas(term: TermContext) -> tuple[Replicas, LaterMetadata]:
    """Replicas on live brokers become Online and get LeaderAndIsr.

    Returns the others, which are to become Offline, and the metadata that is not sent yet.
    """
    context = term.context
    whole = await _add_whole_topics(term)
    offline: dict[BrokerId, list[Partition]] = {}
    for broker in [b for b in context.replica_states if b not in context.live]:
        states = context.replica_states[broker]
        await term.slices.checkpoint(len(states))
        offline[broker] = list(states)
        async for chunk in term.slices.over(offline[broker]):
            states.update(dict.fromkeys(chunk, ReplicaState.DELETION_INELIGIBLE))
    if whole:
        _notify_observer(context)
        online = await _replicas_of_other_topics(term, whole)
    else:
        online = {b: list(states) for b, states in context.replica_states.items() if b in context.live}
    await replicas_online(term, not_to_be_deleted(term, online))
    later = await _send_first_metadata(term, [context.topics[name] for name in whole])
    return not_to_be_deleted(term, offline), later


async def _send_first_metadata(term: TermContext, topics: list[Topic]) -> LaterMetadata:
    """Send the metadata of whole topics to brokers that may have had none since they registered.

    A transaction coordinator of Apache Kafka takes partitions for deleted that are not in its metadata, and writes no
    markers into them. Returns what is left; this node asks ZooKeeper instead.
    """
    first, later = list[BrokerId](), list[BrokerId]()
    for broker in term.context.registered if topics else ():
        had_metadata = broker == term.settings.broker_id or await _had_metadata(term, broker)
        (later if had_metadata else first).append(broker)
    term.batch.add_metadata_of_whole_topics(first, topics)
    await term.send_requests()
    return LaterMetadata(later, topics)


async def _had_metadata(term: TermContext, broker: BrokerId) -> bool:
    """Whether a partition shows that a controller has sent metadata to the broker since it registered.

    A follower is in an ISR that was written since. It was removed from that when it died, and is added again once it
    fetches, which it does after a LeaderAndIsr, which follows the metadata.
    """
    registered_at = term.context.registered[broker].epoch
    async for chunk in term.slices.over(term.context.replicas_on(broker)):
        for p in [p for p in chunk if p.written_at > registered_at]:
            if p.leadership is not None and p.leader != broker and broker in p.leadership.isr:
                return True
    return False


def _election_chunks(partitions: list[Partition]) -> Iterator[list[Partition]]:
    """The partitions for one round of elections each: a few first, so that they have their leaders soon."""
    yield from chunks(partitions[:WRITE_PARTITIONS], WRITE_PARTITIONS)
    yield from chunks(partitions[WRITE_PARTITIONS:], REQUEST_PARTITIONS)


def _dead_replicas(term: TermContext, partitions: list[Partition]) -> Replicas:
    """The replicas of these partitions on brokers that are not live."""
    live, found = term.context.live, dict[BrokerId, list[Partition]]()
    for p in partitions:
        for broker in p.replicas:
            if broker not in live:
                found.setdefault(broker, []).append(p)
    return found


async def _not_offline_yet(term: TermContext, offline: Replicas) -> Replicas:
    """Those of the offline replicas that are not in state Offline."""
    found = dict[BrokerId, list[Partition]]()
    for broker, replicas in offline.items():
        states = term.context.replicas_on(broker)
        async for chunk in term.slices.over(replicas):
            found.setdefault(broker, []).extend(p for p in chunk if states.get(p) is not ReplicaState.OFFLINE)
    return found


async def _add_whole_topics(term: TermContext) -> dict[str, None]:
    """Add the topics to the batch that are sent as a whole; returns their names, in order. Small clusters have none.

    It costs less than a request for each replica, and leaves the same states with the brokers.
    """
    context, whole = term.context, dict[str, None]()
    if context.partition_count <= MAX_SENT_BY_PARTITION or not term.batch.takes_whole_topics:
        return whole
    for topic in context.topics.values():
        if topic.name in context.pending_by_topic:
            continue  # some of its states may be in the batch already
        if may_be_sent_whole(context, topic) and await _all_sent_to_live_replicas(term, topic):
            term.batch.add_whole_topic(topic)
            whole[topic.name] = None
    return whole


async def _all_sent_to_live_replicas(term: TermContext, topic: Topic) -> bool:
    """Whether all partitions of the topic have a state and a live replica."""
    for partitions in parts_of(topic):
        await term.slices.checkpoint(len(partitions))
        if not sent_to_live_replicas(term.context, partitions):
            return False
    return True


def _notify_observer(context: ControllerContext) -> None:
    """Notify the observer, if there is one, that replicas on live brokers are Online, which they are already."""
    if context.observer is not None:
        for broker in [b for b in context.replica_states if b in context.live]:
            context.move_replicas(broker, list(context.replicas_on(broker)), ReplicaState.ONLINE)


async def _replicas_of_other_topics(term: TermContext, whole: Collection[str]) -> dict[BrokerId, list[Partition]]:
    """By live broker, the partitions with a replica on it whose topics are not sent as a whole."""
    live = term.context.live
    held: dict[BrokerId, list[Partition]] = {}
    others = (t.partitions.values() for name, t in term.context.topics.items() if name not in whole)
    async for chunk in term.slices.over(chain.from_iterable(others)):
        for p in chunk:
            for broker in live.intersection(p.replicas):
                held.setdefault(broker, []).append(p)
    return held


async def _start_partitions(term: TermContext) -> None:
    """Set each partition's state: New without a state znode, Offline without a live leader. The others are Online."""
    context = term.context
    for led in [led for leader, led in context.led_by.items() if leader not in context.live]:
        async for p in term.slices.each(led):
            context.start(p, PartitionState.OFFLINE)
    if sum(map(len, context.led_by.values())) == context.partition_count:
        return
    async for chunk in term.slices.over(context.partitions()):
        for p in [p for p in chunk if p.leadership is None]:
            context.start(p, PartitionState.NEW)
            if context.is_to_be_deleted(p):
                context.half_deleted[p] = None
