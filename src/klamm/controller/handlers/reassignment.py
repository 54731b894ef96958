"""Reassignment of partitions to other brokers. Source: KafkaController.onPartitionReassignment (3.9).

Each step is done for all partitions of a call before the next step begins; Kafka's names of the steps (U1, A1, B6) are
given. Step U1 writes the new assignment to the topic znode first, step B6 the bare target last: a controller that takes
over in between reads there what is in progress, and resumes it. Beyond Kafka, the leader moves before its replica is
dropped (KAFKA-14808), and no replica is dropped while none that stays can lead.
"""

from collections.abc import Collection, Iterable, Mapping

from klamm.controller.decisions.elections import elect_for_override, elect_for_reassignment, elect_offline
from klamm.controller.decisions.plans import StatePlan
from klamm.controller.decisions.reassignment import awaited, dropped_replicas, is_in_sync, plan_epochs
from klamm.controller.events import ZkPartitionReassignment
from klamm.controller.handlers.partitions import bring_online
from klamm.controller.handlers.pending_deletions import delete_earlier_logs, schedule_deletion_of_moved
from klamm.controller.handlers.replicas import remove_from_isrs, replicas_deleted, replicas_new, replicas_online
from klamm.controller.handlers.state_changes import States, change_states
from klamm.controller.handlers.tool_requests import remove_finished_entries
from klamm.controller.handlers.topic_deletion import resume_deletions
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.steps import WRITE_PARTITIONS, gather_limited
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.assignment import ReplicaAssignment
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk.fenced import chunks
from klamm.zk.partition_states import StatesRead

Assignments = Mapping[Partition, ReplicaAssignment]
Reasons = dict[Partition, str]
"""By partition, why its reassignment cannot begin or continue."""


async def begin_reassignments(term: TermContext, wanted: Assignments) -> Reasons:
    """Begin new assignments, override or cancel those in progress, and advance as far as possible.

    Returns the reasons of those that could not begin.
    """
    failed = await _move_leaders_first(term, wanted)
    dropped = await _dropped_replicas(term, {p: a for p, a in wanted.items() if p not in failed})
    touched = await _fence_leaders(term, dropped)
    touched |= dict.fromkeys(await remove_from_isrs(term, dropped))
    failed |= _why_not_droppable(term, dropped, touched)
    failed |= await schedule_deletion_of_moved(term, _created_replicas(term, dropped))
    staying = _stopped_staying_replicas(term, {p: a for p, a in wanted.items() if p not in failed})
    failed |= await _update_assignments(term, {p: a for p, a in wanted.items() if p not in failed})
    await _stop_dropped(term, dropped, failed)
    await replicas_online(term, {b: [p for p in stopped if p not in failed] for b, stopped in staying.items()})
    for p in touched:
        if p in failed:  # its state was written, its assignment was not: replicas need the state
            term.batch.add_leader_and_isr(p.replicas, p, is_new=False)
    await advance_reassignments(term, [p for p in wanted if p not in failed])
    term.refuse("reassignment", failed)
    return failed


async def advance_reassignments(term: TermContext, partitions: Collection[Partition], again: bool = False) -> None:
    """Complete partitions whose target is in sync (phase B), add replicas for the others (phase A).

    Also resumes after a failover. `again` marks a retry after a ZooKeeper failure: phase A is not repeated where its
    requests were sent.
    """
    new = [p for p in partitions if p.state is PartitionState.NEW]
    await _elect_first_leaders(
        term, [p for p in new if not term.context.is_to_be_deleted(p)]
    )  # its deletion may have begun
    waiting: dict[Partition, LeaderAndIsr] = {}
    complete = [p for p in partitions if not p.assignment.is_being_reassigned]
    stored = await _read_all(term, _being_reassigned(partitions))
    async for p, state in term.slices.each(stored.items()):
        if awaited(p.assignment, state.isr):
            waiting[p] = state
        else:
            complete.append(p)
    if again:
        waiting = {p: s for p, s in waiting.items() if not term.context.is_last_sent_assignment(p, p.assignment)}
    await _start_adding(term, waiting)
    await _complete(term, complete)


async def _elect_first_leaders(term: TermContext, new: list[Partition]) -> None:
    """Elect first leaders of new partitions; an adding replica may lead."""
    await _start_replicas(term, new)
    await bring_online(term, new, elect_offline)


async def _start_replicas(term: TermContext, partitions: Iterable[Partition]) -> None:
    """Move the replicas that are being added to New; those on dead brokers to Offline.

    A replica on a dead broker is created when the broker starts.
    """
    new = _replicas_to_create(term, partitions)
    await replicas_new(term, new)
    for broker, its in new.items():
        if broker not in term.context.registered:
            term.context.move_replicas(broker, its, ReplicaState.OFFLINE)


def _replicas_to_create(term: TermContext, partitions: Iterable[Partition]) -> dict[BrokerId, list[Partition]]:
    """Adding replicas that are NonExistent, by broker. After a failover these replicas are Online or Offline."""
    found: dict[BrokerId, list[Partition]] = {}
    for p in partitions:
        for broker in p.assignment.adding:
            if term.context.can_replica_move(broker, p, ReplicaState.NEW):
                found.setdefault(broker, []).append(p)
    return found


async def complete_if_in_sync(term: TermContext, partitions: Iterable[Partition]) -> None:
    """Complete the reassignments whose targets are in sync, now that these ISRs changed."""
    arrived = [p for p in partitions if p in term.context.reassigning and is_in_sync(p)]
    if not arrived:
        return
    stored = await _read_all(term, arrived)
    await _complete(term, [p async for p, s in term.slices.each(stored.items()) if not awaited(p.assignment, s.isr)])


def _being_reassigned(partitions: Iterable[Partition]) -> Iterable[Partition]:
    """Those of these partitions that are being reassigned."""
    return (p for p in partitions if p.assignment.is_being_reassigned)


async def _read_chunk(term: TermContext, partitions: list[Partition]) -> dict[Partition, LeaderAndIsr]:
    """Read the states of these partitions; where leaders write their ISR themselves, also watch the znodes."""
    if term.owns_partition_state:
        read, _ = await term.known_states(partitions)
    else:
        read = await term.store.read_states(partitions, watch=True)
    term.refuse("reassignment", read.unreadable)
    return read.found


# ---- phase U: the new assignment


async def _move_leaders_first(term: TermContext, wanted: Assignments) -> Reasons:
    """Where the new reassignment drops the present leader, first elect a replica that stays.

    Returns the reasons of those that could not begin.
    """
    leaving = {
        p: a.replicas
        async for p, a in term.slices.each(wanted.items())
        if p.leader in dropped_replicas(p.assignment, a)
    }
    await bring_online(term, leaving, elect_for_override, leaving)
    why = "the reassignment removes the leader, and no remaining in-sync replica is live: start one of its brokers"
    return {p: why for p, staying in leaving.items() if p.leader not in staying}


async def _dropped_replicas(term: TermContext, wanted: Assignments) -> dict[BrokerId, list[Partition]]:
    """Replicas that an overridden reassignment was adding, by broker.

    They are removed from the ISR before the assignment is written. In the other order, a controller that dies in
    between would leave an ISR member that is not a replica, and that no later step removes.
    """
    dropped: dict[BrokerId, list[Partition]] = {}
    async for p, assignment in term.slices.each(wanted.items()):
        for broker in dropped_replicas(p.assignment, assignment):
            dropped.setdefault(broker, []).append(p)
    return dropped


def _created_replicas(
    term: TermContext, dropped: Mapping[BrokerId, list[Partition]]
) -> dict[BrokerId, list[Partition]]:
    """Those of the replicas that a broker may have; the others are NonExistent: no broker was asked to create them."""
    created: dict[BrokerId, list[Partition]] = {}
    for broker, partitions in dropped.items():
        states = term.context.replicas_on(broker)
        created[broker] = [p for p in partitions if states.get(p) is not ReplicaState.NON_EXISTENT]
    return created


async def _fence_leaders(term: TermContext, dropped: Mapping[BrokerId, list[Partition]]) -> dict[Partition, None]:
    """Raise leader epochs so that leaders of old protocol versions cannot write ISRs while replicas are dropped.

    Such a leader could add a dropped replica to the ISR again, since it learns of the assignment last. With a new
    version of the state znode its writes fail. Returns the partitions whose leader is fenced; does nothing where only
    the controller writes states.
    """
    if term.owns_partition_state:
        return {}
    led = {p: None for partitions in dropped.values() for p in partitions if p.leadership is not None}
    return dict.fromkeys(await _raise_epochs(term, await _read_all(term, led)))


def _why_not_droppable(
    term: TermContext, dropped: Mapping[BrokerId, list[Partition]], touched: Mapping[Partition, None]
) -> Reasons:
    """The reasons for partitions whose dropped replica is still in the ISR, or whose leader could add it again."""
    reasons: Reasons = {}
    for broker, partitions in dropped.items():
        for p in partitions:
            if p.leadership is not None and broker in p.leadership.isr:
                reasons[p] = f"replica {broker} could not be taken out of the ISR"
            elif p.leadership is not None and p not in touched and not term.owns_partition_state:
                reasons[p] = f"the leader could not be kept from taking replica {broker} into the ISR"
    return reasons


def _stopped_staying_replicas(term: TermContext, wanted: Assignments) -> dict[BrokerId, list[Partition]]:
    """Replicas, by broker, that the present reassignment removes and the new assignments keep, and that are stopped.

    Phase B deleted them, and could not write the target to ZooKeeper.
    """
    stopped: dict[BrokerId, list[Partition]] = {}
    for p, assignment in wanted.items():
        for broker in p.assignment.removing:
            is_stopped = term.context.replicas_on(broker).get(p) is ReplicaState.OFFLINE
            if broker in assignment.target and is_stopped and term.context.is_online(broker, p):
                stopped.setdefault(broker, []).append(p)
    return stopped


async def _update_assignments(term: TermContext, wanted: Assignments) -> Reasons:
    """Write the assignments to ZooKeeper, then put them into memory.

    Returns the reasons of those that could not be written.
    """
    changed = {p: a for p, a in wanted.items() if p.assignment != a}
    failed = await _write_assignments(term, changed)  # U1
    async for p, assignment in term.slices.each(wanted.items()):
        if p not in failed:
            _journal(term, p, "begun", p.assignment, assignment)
            term.context.put_assignment(p, assignment)  # U2
    return failed


async def _stop_dropped(term: TermContext, dropped: Mapping[BrokerId, list[Partition]], failed: Reasons) -> None:
    """Delete the replicas that neither the old nor the new targets of a replaced reassignment need."""
    going = {b: kept for b, partitions in dropped.items() if (kept := [p for p in partitions if p not in failed])}
    if going:
        term.refuse("dropped replica", await replicas_deleted(term, going))


async def _write_assignments(term: TermContext, wanted: Assignments) -> Reasons:
    """Write the assignments to the topic znodes; returns why each refused one failed."""
    topics: dict[str, dict[int, ReplicaAssignment]] = {}
    for p, assignment in wanted.items():
        topics.setdefault(p.topic, {})[p.partition] = assignment
    if not topics:
        return {}
    failed = await term.store.assignments.change(topics, {t: term.context.topics[t].id for t in topics})
    written = {t: sorted(numbers) for t, numbers in topics.items() if t not in failed}
    if written:
        term.journal.write(term.cause, "assignments", written)
    return {p: failed[p.topic] for p in wanted if p.topic in failed}


# ---- phase A: the adding replicas begin to follow


async def _start_adding(term: TermContext, stored: Mapping[Partition, LeaderAndIsr]) -> None:
    """Send the assignment with a new leader epoch to the brokers, and create the replicas that are being added."""
    await delete_earlier_logs(term, stored)
    raised = await _raise_epochs(term, stored)
    async for p in term.slices.each(raised):
        term.batch.add_leader_and_isr(p.assignment.origin, p, is_new=False)
        term.batch.add_leader_and_isr(p.assignment.adding, p, is_new=True)
    term.context.record_sent_assignments(raised)
    await term.send_requests()
    async for p in term.slices.each(raised):
        _journal(term, p, "waiting", p.assignment, p.assignment)
    await _start_replicas(term, raised)


async def _raise_epochs(term: TermContext, stored: Mapping[Partition, LeaderAndIsr]) -> list[Partition]:
    """Raise leader epochs by one, with nothing else changed; returns the partitions that were written."""
    steps = (_raise_chunk(term, dict(chunk)) for chunk in chunks(stored.items(), WRITE_PARTITIONS))
    return [p for chunk in await gather_limited(steps) for p in chunk]


async def _raise_chunk(term: TermContext, stored: dict[Partition, LeaderAndIsr]) -> list[Partition]:
    """Raise the leader epochs of some of the partitions in ZooKeeper; return the partitions that were written."""

    async def plan(states: States) -> StatePlan:
        """Return the stored states with a higher leader epoch, to write."""
        return plan_epochs(states, term.context.epoch)

    def apply(_: StatePlan, written: States) -> None:
        """Put the written leader epochs into the controller's memory."""
        term.apply_epochs(written, "reassignment")

    return list((await change_states(term, "leader epoch", StatesRead(stored), plan, apply)).reached)


# ---- phase B: the target is in sync


async def _complete(term: TermContext, partitions: list[Partition]) -> None:
    """Phase B: make the target the assignment, delete removed replicas, and resume topic deletions."""
    if not partitions:
        return
    for broker, fresh in _replicas_to_create(term, partitions).items():  # in sync already; B3 sends LeaderAndIsr
        term.context.move_replicas(broker, fresh, ReplicaState.NEW)
    adding: dict[BrokerId, list[Partition]] = {}
    known: set[Partition] = set()
    async for p in term.slices.each(partitions):
        if term.context.is_last_sent_assignment(p, ReplicaAssignment(p.assignment.target)):
            known.add(p)
            continue
        for broker in p.assignment.adding:
            adding.setdefault(broker, []).append(p)
    await replicas_online(term, adding)  # B1
    before = {p: p.assignment for p in partitions}
    finished = await _reach_targets(term, before)
    term.context.to_complete.update((p, None) for p in partitions if not p.assignment.is_being_reassigned)
    async for p in term.slices.each(finished):
        _journal(term, p, "complete", before[p], p.assignment)
        term.context.last_sent_assignments.pop(p, None)
        term.context.to_complete.pop(p, None)
    if not finished and len(known) == len(partitions):
        return  # unchanged since the last attempt: there is nothing to send
    term.batch.add_metadata(term.context.registered, finished)
    try:
        await remove_finished_entries(term, finished)  # B7
    except KlammError:
        term.timers.put(ZkPartitionReassignment())  # or the list would be held till the next failover
        raise
    await term.send_requests()  # B8
    await resume_deletions(term, (p.topic for p in finished))


async def _reach_targets(term: TermContext, before: Assignments) -> list[Partition]:
    """Complete reassignments whose target replicas are all in sync.

    The brokers get the target assignment first; it enters memory once ZooKeeper has it.

    Returns the partitions that reached their target; the others keep their reassignment.
    """
    epochs = {p: p.leader_epoch for p in before}
    try:
        async for p in term.slices.each(before):
            term.context.begin_completing(p)  # B2
        finished = await _finish_reassignments(term, before)
    except BaseException:
        for p, assignment in before.items():
            _restore_assignment(term, p, assignment, epochs[p])
        raise
    done = set(finished)
    async for p, assignment in term.slices.each(before.items()):
        if p in done:
            term.context.put_assignment(p, ReplicaAssignment(assignment.target))
        else:
            _restore_assignment(term, p, assignment, epochs[p])
    return finished


def _restore_assignment(term: TermContext, p: Partition, assignment: ReplicaAssignment, leader_epoch: int) -> None:
    """Undo the start of phase B: return to the assignment and `leader_epoch` before it.

    The next trigger tries again. Replicas that were deleted are Offline: they belong to the assignment until then, so
    that a broker that starts is sent them, and are deleted once more.
    """
    deleted = [b for b in assignment.removing if p not in term.context.replicas_on(b)]
    term.context.put_assignment(p, assignment)  # lists replicas again that were forgotten
    for broker in deleted:
        term.context.move_replicas(broker, [p], ReplicaState.NEW)
        term.context.move_replicas(broker, [p], ReplicaState.OFFLINE)
    if p.leader_epoch != leader_epoch:
        _notify_staying_replicas(term, p)


def _notify_staying_replicas(term: TermContext, p: Partition) -> None:
    """Send LeaderAndIsr to replicas that stay after all: they did not get the new leader, and one may have led."""
    staying = [b for b in p.assignment.removing if term.context.replicas_on(b).get(p) is ReplicaState.ONLINE]
    term.batch.add_leader_and_isr(staying, p, is_new=False)


async def _finish_reassignments(term: TermContext, before: Assignments) -> list[Partition]:
    """Put leaders in the target replicas, delete the removed ones, and write the target to the topic znode.

    Returns the partitions for which all steps succeeded.
    """
    led = await _ensure_leaders(term, before)
    removing: dict[BrokerId, list[Partition]] = {}
    for p in led:
        for broker in before[p].removing:
            removing.setdefault(broker, []).append(p)
    unwritten = await schedule_deletion_of_moved(term, removing)
    term.refuse("reassignment", unwritten)
    led = [p for p in led if p not in unwritten]
    going = {b: left for b, its in removing.items() if (left := [p for p in its if p not in unwritten])}
    kept = await replicas_deleted(term, going) if going else {}  # B4, B5
    term.refuse("removed replica", kept)
    failed = await _write_assignments(term, {p: p.announced for p in led if p not in kept})  # B6
    term.refuse("reassignment", failed)
    return [p for p in led if p not in kept and p not in failed]


async def _ensure_leaders(term: TermContext, before: Assignments) -> list[Partition]:
    """Make sure that a target replica leads: such a leader gets a new epoch, any other is replaced.

    A partition that no target replica can lead stops here and keeps its old replicas, which Kafka would delete; if no
    replica is to be removed, it continues. One whose new epoch is not written stops, too: its leader would ignore the
    assignment. At a retry, leaders that already got the assignment keep their epoch.
    Returns the partitions that can continue.
    """
    context = term.context
    steady = [p for p in before if _has_staying_leader(term, p)]
    informed = {p for p in steady if context.is_last_sent_assignment(p, p.announced)}
    uninformed = await _read_all(term, [p for p in steady if p not in informed])
    raised = await _raise_epochs(term, uninformed)
    async for p in term.slices.each(raised):
        term.batch.add_leader_and_isr(p.announced.replicas, p, is_new=False)
    await term.send_requests()
    staying = set(steady)
    moving = [p for p in before if p not in staying]
    await bring_online(term, moving, elect_for_reassignment)
    led = {*informed, *raised, *(p for p in moving if _has_staying_leader(term, p))}
    context.record_sent_assignments(led)
    stuck = {p: "no live in-sync replica of the target can lead" for p in before if p not in led and before[p].removing}
    why = "its leader is not sent the assignment, because no new leader epoch was written"
    stuck |= {p: why for p in uninformed if p not in led}
    term.refuse("reassignment", stuck)
    return [p for p in before if p not in stuck]


def _has_staying_leader(term: TermContext, p: Partition) -> bool:
    """Whether the leader is online and in the target assignment."""
    return p.leader in p.announced.replicas and term.context.is_online(p.leader, p)


async def _read_all(term: TermContext, partitions: Iterable[Partition]) -> dict[Partition, LeaderAndIsr]:
    """The states of these partitions from memory or ZooKeeper, read in chunks."""
    stored: dict[Partition, LeaderAndIsr] = {}
    for read in await gather_limited(_read_chunk(term, chunk) for chunk in chunks(partitions, WRITE_PARTITIONS)):
        stored |= read
    return stored


def _journal(term: TermContext, p: Partition, step: str, before: ReplicaAssignment, after: ReplicaAssignment) -> None:
    """Journal a reassignment step, with the replicas that it waits for."""
    waits = awaited(after, p.leadership.isr if p.leadership else ())
    facts = {"awaited": waits, "next": "complete once these are in the ISR"} if waits else {}
    term.journal.line(
        term.cause,
        "reassignment",
        step=step,
        topic=p.topic,
        partition=p.partition,
        replicas_from=before.replicas,
        replicas=after.replicas,
        adding=after.adding,
        removing=after.removing,
        **facts,
    )
