"""Deletion of topics: first the replicas, then the znodes. Source: TopicDeletionManager.scala (3.9).

Handlers that end what a deletion may wait for (a reassignment, a dead broker) call `resume_deletions`.
"""

import asyncio
from collections.abc import Collection, Iterable

from klamm.controller.decisions.pending_deletions import mark_answered
from klamm.controller.decisions.reassignment import is_in_sync
from klamm.controller.decisions.topic_deletion import Step, Survey, add_to_survey, decide_deletion_step
from klamm.controller.events import (
    DeadBrokerTimeout,
    TargetsInSync,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
    ZkPartitionReassignment,
)
from klamm.controller.handlers.pending_deletions import (
    on_replicas_deleted,
    schedule_replica_deletions,
)
from klamm.controller.handlers.replicas import Replicas
from klamm.controller.handlers.topics import on_topic_change, remove_deletion_requests
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.steps import DELETED_TOPICS
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId, TopicPartition
from klamm.telemetry.journal import by_topic
from klamm.zk.fenced import chunks


async def on_topic_deletion(term: TermContext, event: TopicDeletion) -> None:
    """Queue the topics in `/admin/delete_topics` for deletion, and begin."""
    await resume_deletions(term, await queue_deletions(term))


async def queue_deletions(term: TermContext) -> list[str]:
    """Queue the requested deletions; returns the new ones. Requests for topics that do not exist are removed."""
    requested = await term.store.topic_deletion.list_requests()
    if not term.settings.delete_topic_enable:
        if requested:
            term.journal.refused(term.cause, "topic deletion", "delete.topic.enable is false", topics=requested)
            await remove_deletion_requests(term, requested)
        return []
    unknown = [t for t in requested if t not in term.context.topics]
    if unknown:
        await _load_unknown_topics(term, unknown)
    new: list[str] = []
    for names in chunks(requested, DELETED_TOPICS):
        known = [term.context.topics[name] for name in names if name in term.context.topics]
        await term.slices.checkpoint(sum(len(topic.partitions) for topic in known))
        new += term.context.queue_deletion(names)
    if new:
        term.journal.found(term.cause, to_be_deleted=new)
    return new


async def _load_unknown_topics(term: TermContext, unknown: list[str]) -> None:
    """Load requested topics that are not known yet; requests for topics that do not exist are removed.

    A topic can be unknown because the event of its creation is still queued.
    """
    found, unreadable = await term.store.read_topics(unknown)
    missing = [t for t in unknown if t not in found and t not in unreadable]
    if missing:
        term.journal.refused(
            term.cause, "topic deletion", "the topic does not exist: the request is removed", topics=missing
        )
        await remove_deletion_requests(term, missing)
    if unreadable:
        why = "the topic's znode cannot be read, so the brokers that hold its replicas are unknown"
        term.journal.refused(term.cause, "topic deletion", why, topics=sorted(unreadable))
    if found:
        await on_topic_change(term, TopicChange())


async def resume_deletions(term: TermContext, topics: Iterable[str]) -> None:
    """Check again whether the deletion of these topics can continue; topics that are not queued are ignored."""
    queued = [t for t in dict.fromkeys(topics) if t in term.context.topics_to_be_deleted]
    for topic in queued:
        term.context.topics_ineligible_for_deletion.pop(topic, None)
    await _advance_deletions(term, queued)


async def deletions_on(term: TermContext, brokers: Collection[BrokerId]) -> list[str]:
    """Topics queued for deletion that have replicas on these brokers."""
    wanted = frozenset(brokers)
    found: dict[str, None] = {}
    queued = [term.context.topics[topic] for topic in term.context.topics_to_be_deleted]
    async for chunk in term.slices.over(p for t in queued for p in t.partitions.values()):
        found.update(dict.fromkeys(p.topic for p in chunk if not wanted.isdisjoint(p.replicas)))
    return list(found)


async def on_replica_deletion_answer(term: TermContext, event: TopicDeletionStopReplicaResponseReceived) -> None:
    """Move replicas to Successful or Ineligible by the broker's response, and continue the deletions."""
    context, broker = term.context, event.broker
    registered = context.registered.get(broker)
    if registered is None or registered.epoch != event.broker_epoch:
        return  # from an earlier registration: the deletion has failed, and is retried
    states = context.replicas_on(broker)
    asked = {p: e for p, e in event.errors.items() if states.get(p) is ReplicaState.DELETION_STARTED}
    deleted = [p for p, error in asked.items() if not error]
    context.move_replicas(broker, deleted, ReplicaState.DELETION_SUCCESSFUL)
    failed = {p: error for p, error in asked.items() if error}
    context.move_replicas(broker, failed, ReplicaState.DELETION_INELIGIBLE)
    for error in sorted(set(failed.values())):
        if error is ErrorCode.NETWORK_EXCEPTION and broker not in context.brokers_in_transition:
            continue  # its channel was replaced before it answered, and it is the same broker: it is asked again
        partitions = [p for p, e in failed.items() if e is error]
        why = (
            f"broker {broker} answered {error.name} to StopReplica; the deletion continues when that broker is "
            f"restarted"
        )
        _suspend_deletions(term, partitions, why)
    mark_answered(context, broker, event.errors)
    await on_replicas_deleted(term, broker, [p for p, e in event.errors.items() if e is ErrorCode.NONE])
    await _advance_deletions(term, dict.fromkeys(p.topic for p in asked))


async def fail_replica_deletions(term: TermContext, replicas: Replicas) -> None:
    """Mark replicas of queued topics as ineligible, because their broker or log directory failed."""
    touched: dict[str, None] = {}
    for broker, partitions in replicas.items():
        async for chunk in term.slices.over(partitions):
            _mark_ineligible(term, broker, chunk)
            touched.update(dict.fromkeys(p.topic for p in chunk))
    await _advance_deletions(term, touched)


async def on_dead_broker_timeout(term: TermContext, event: DeadBrokerTimeout) -> None:
    """Continue the deletions that waited for this broker."""
    await _advance_deletions(term, await deletions_on(term, [event.broker]))


# ---- steps


async def _advance_deletions(term: TermContext, topics: Iterable[str]) -> None:
    """Take the next step of each topic; topics with unanswered StopReplica requests are skipped."""
    begin: dict[str, Survey] = {}
    complete: dict[str, Survey] = {}
    waiting: dict[str, list[str]] = {}
    in_sync: list[TopicPartition] = []
    timeout_s = term.settings.dead_broker_timeout_ms / 1000
    for topic in topics:
        if topic not in term.context.topics_to_be_deleted or term.context.started_deletions.get(topic):
            continue
        found = await _survey(term, topic)
        timed_out = _timed_out_brokers(term, found, timeout_s)
        verdict = decide_deletion_step(
            term.context, topic, found, timed_out, timeout_s, term.settings.requests_carry_topic_ids
        )
        if verdict.step is Step.BEGIN:
            begin[topic] = found
        elif verdict.step is Step.COMPLETE:
            complete[topic] = found
        elif term.context.topics_ineligible_for_deletion.get(topic) != verdict.why:
            waiting.setdefault(verdict.why, []).append(topic)
            in_sync += [p.key for p in found.moving if is_in_sync(p)]
    for why, held in waiting.items():
        _mark_waiting(term, held, why)
    if in_sync:
        term.timers.put(TargetsInSync(in_sync))
    for chunk in chunks(complete.items(), DELETED_TOPICS):
        await _complete_deletions(term, dict(chunk))
    if begin:
        await _begin_deletions(term, begin)
        await _advance_deletions(term, begin)


async def _survey(term: TermContext, topic: str) -> Survey:
    """Group the topic's replicas that are not deleted by what prevents their deletion."""
    found = Survey()
    async for chunk in term.slices.over(term.context.topics[topic].partitions.values()):
        add_to_survey(term.context, chunk, found)
    return found


def _timed_out_brokers(term: TermContext, found: Survey, timeout_s: float) -> set[BrokerId]:
    """The dead brokers whose timeout is over; a timer is set for the others."""
    now = asyncio.get_running_loop().time()
    timed_out = set()
    for broker in found.gone:
        left_s = term.context.gone_since.setdefault(broker, now) + timeout_s - now
        if left_s <= 0:
            timed_out.add(broker)
        else:
            term.timers.after(("gone", broker), left_s, DeadBrokerTimeout(broker))
    return timed_out


def _mark_waiting(term: TermContext, topics: list[str], why: str) -> None:
    """Mark the topics as ineligible for deletion for this reason, and journal it."""
    term.context.topics_ineligible_for_deletion.update(dict.fromkeys(topics, why))
    held = {t: sorted(term.context.topics[t].partitions) for t in topics}
    term.journal.notify(term.cause, "deletion", step="waits", why=why, partitions=held)


async def _begin_deletions(term: TermContext, found: dict[str, Survey]) -> None:
    """Tell all brokers that the topics are deleted, and send StopReplica to their live replicas."""
    await term.store.confirm_controllership()  # the next controller may have called the deletion off
    context = term.context
    topics = list(found)
    under_way = len(context.reassigning)
    async for chunk in term.slices.over(p for t in topics for p in context.topics[t].partitions.values()):
        unseen = [p for p in chunk if p.topic not in context.topics_with_deletion_started]
        context.move(unseen, PartitionState.OFFLINE)
        context.move(unseen, PartitionState.NON_EXISTENT)
        for p in unseen:
            context.reassigning.pop(p, None)
        term.batch.add_metadata(context.registered, chunk)
    if len(context.reassigning) < under_way:
        term.timers.put(ZkPartitionReassignment())  # entries of the old tools' list for these topics are removed
    context.topics_with_deletion_started.update(topics)
    for topic in topics:
        for broker, partitions in (*found[topic].gone.items(), *found[topic].unreachable.items()):
            _mark_ineligible(term, broker, partitions)
    by_broker: dict[BrokerId, list[Partition]] = {}
    for topic in topics:
        for broker, partitions in found[topic].reachable.items():
            by_broker.setdefault(broker, []).extend(partitions)
    for broker, partitions in sorted(by_broker.items()):
        async for chunk in term.slices.over(partitions):
            _move_to_offline(term, broker, chunk)
            refused = context.move_replicas(broker, chunk, ReplicaState.DELETION_STARTED)
            for p in chunk:
                term.batch.add_stop_replica([broker], p, delete=True)
            if refused:
                _suspend_deletions(
                    term, refused, f"replicas on broker {broker} are in a state from which none is deleted"
                )
    held = {t: sorted(context.topics[t].partitions) for t in topics}
    term.journal.line(term.cause, "deletion", step="begins", brokers=sorted(by_broker), partitions=held)
    await term.send_requests()


def _mark_ineligible(term: TermContext, broker: BrokerId, partitions: Iterable[Partition]) -> None:
    """Move replicas to ReplicaDeletionIneligible from any state."""
    states = term.context.replicas_on(broker)
    aside = (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE)
    failing = [p for p in partitions if states.get(p) not in aside]
    resting = [p for p in failing if states.get(p) is not ReplicaState.DELETION_STARTED]
    _move_to_offline(term, broker, resting)
    term.context.move_replicas(broker, failing, ReplicaState.DELETION_INELIGIBLE)


def _move_to_offline(term: TermContext, broker: BrokerId, partitions: Collection[Partition]) -> None:
    """Move replicas to OfflineReplica; those still NonExistent, as a reassignment adds them, by way of NewReplica."""
    states = term.context.replicas_on(broker)
    nonexistent = [p for p in partitions if states.get(p, ReplicaState.NON_EXISTENT) is ReplicaState.NON_EXISTENT]
    term.context.move_replicas(broker, nonexistent, ReplicaState.NEW)
    term.context.move_replicas(broker, partitions, ReplicaState.OFFLINE)


def _suspend_deletions(term: TermContext, partitions: Collection[Partition], why: str) -> None:
    """Mark the topics of these partitions as ineligible for deletion, until a later event resumes them."""
    topics = dict.fromkeys(p.topic for p in partitions)
    term.context.topics_ineligible_for_deletion.update(dict.fromkeys(topics, why))
    term.journal.line(term.cause, "deletion", step="held back", why=why, partitions=by_topic(partitions))


async def _complete_deletions(term: TermContext, found: dict[str, Survey]) -> None:
    """Record replicas on dead brokers as pending deletions, delete the znodes, then remove the topics from memory."""
    context = term.context
    refused = await schedule_replica_deletions(term, {t: s.gone for t, s in found.items() if s.gone})
    for topic, why in {topic: why for (topic, _), why in refused.items()}.items():
        _mark_waiting(
            term,
            [topic],
            f"{why}; the replicas on dead brokers must be recorded as pending deletions first; this is retried",
        )
    unwritten = {topic for topic, _ in refused}
    found = {t: s for t, s in found.items() if t not in unwritten}
    failed = await term.store.topic_deletion.delete_topics(list(found))
    for topic, why in failed.items():
        _mark_waiting(term, [topic], f"{why}; this is retried")
    await remove_deletion_requests(term, [t for t in found if t not in failed])
    for topic, survey in found.items():
        if topic in failed:
            continue
        numbers = {topic: sorted(context.topics[topic].partitions)}
        facts = {"replicas_pending_on": sorted(survey.gone)} if survey.gone else {}
        term.journal.line(term.cause, "deletion", step="completed", partitions=numbers, **facts)
        async for chunk in term.slices.over(list(context.topics[topic].partitions.values())):
            context.remove_partitions(chunk)
        context.remove_topic(topic)
