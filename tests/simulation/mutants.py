"""Guards of the controller, each taken out by a function: the simulation must see every one missing.

What it cannot see missing, it does not prove. The numbers are those of the catalogue of historic bugs, `expected` those
of the invariants (`klamm.sim.invariants.table`) that should speak. A mutant patches like a test's `monkeypatch`; where
one guard hides behind another, both go.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from klamm.broker import zookeeper_sessions
from klamm.controller import controller, controller_election, event_queue, request_batch
from klamm.controller.context import ControllerContext
from klamm.controller.decisions import alter_partition, broker_changes, isr_removal
from klamm.controller.events import ControlledShutdown, Event, RegisterBrokerAndReelect
from klamm.controller.handlers import (
    brokers,
    failover,
    isr,
    partitions,
    reassignment,
    reassignment_requests,
    replicas,
    state_changes,
    topic_deletion,
    topics,
)
from klamm.controller.handlers import shutdown as shutdowns
from klamm.controller.states import ReplicaState
from klamm.controller.term_context import TermContext
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import NO_BROKER
from klamm.model.leader_and_isr import NO_EPOCH
from klamm.sim.replicas import Replicas
from klamm.zk import fenced, registrar, topic_assignments
from klamm.zk.operations import Check, Delete
from klamm.zk.session import Session
from klamm.zk.store import Store
from klamm.zk.znodes import CONTROLLER_EPOCH, REASSIGN_PARTITIONS

Patch = pytest.MonkeyPatch


class Mutant(NamedTuple):
    number: str
    ticket: str
    what: str
    """The mutation."""
    apply: Callable[[Patch], None]
    expected: tuple[int, ...]
    """Invariants that should speak."""


async def _nothing(*_: Any, **__: Any) -> Any:
    return None


# ---- who is controller, and what it may write


def together(*mutations: Callable[[Patch], None]) -> Callable[[Patch], None]:
    """Guards that stand in for each other, all out."""

    def apply(patch: Patch) -> None:
        for mutation in mutations:
            mutation(patch)

    return apply


def brokers_follow_anyone(patch: Patch) -> None:
    def refuse(self: Replicas, message_broker_epoch: int, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        is_stale = -1 < message_broker_epoch < broker_epoch
        self.controller_epoch = controller_epoch
        return ErrorCode.STALE_BROKER_EPOCH if is_stale else ErrorCode.NONE

    patch.setattr(Replicas, "refuse", refuse)


def epoch_read_before_each_write(patch: Patch) -> None:
    async def write(self: fenced.FencedWriter, ops: Any) -> Any:
        client: Any = self._client
        _, stat = await client.get(CONTROLLER_EPOCH)
        return await fenced.write_fenced(client, stat.version, ops) if ops else []

    patch.setattr(fenced.FencedWriter, "write", write)


def writes_unbound(patch: Patch) -> None:
    patch.setattr(fenced, "Check", lambda path, version: Check(path, -1))


def context_survives_the_term(patch: Patch) -> None:
    kept: dict[int, ControllerContext] = {}
    begin = controller_election.ControllerElection._begin

    def begin_with_the_old(self: Any, store: Any, epoch: Any, cause: str) -> None:
        def context(number: int) -> ControllerContext:
            found = kept.setdefault(id(self), ControllerContext(number))
            found.epoch = number
            return found

        patch.setattr(controller_election, "ControllerContext", context)
        begin(self, store, epoch, cause)

    patch.setattr(controller_election.ControllerElection, "_begin", begin_with_the_old)


def the_deposed_go_on(patch: Patch) -> None:
    handle = controller.Controller._handle
    last: dict[int, TermContext] = {}

    async def handle_anyway(self: Any, event: Event, cause: str) -> None:
        term = self._election.term
        if term is not None:
            last[id(self)] = term
        handler = controller.HANDLERS.get(type(event))
        if term is None and handler is not None and id(self) in last:
            await handler(last[id(self)], event)
        else:
            await handle(self, event, cause)

    patch.setattr(controller.Controller, "_handle", handle_anyway)


def callers_forgotten(patch: Patch) -> None:
    def preempt(self: event_queue.QueuedEvent) -> None:
        self.spent = True
        self.started.set()

    patch.setattr(event_queue.QueuedEvent, "preempt", preempt)


def elected_means_nothing_to_do(patch: Patch) -> None:
    elect = controller_election.ControllerElection.elect

    async def give_up_early(self: Any, cause: str) -> None:
        holder = await self._current_store().read_controller(watch=True)
        if holder is None:
            await elect(self, cause)

    async def keep(self: Any, cause: str, why: str) -> None:
        await self.resign(cause, why)

    patch.setattr(controller_election.ControllerElection, "elect", give_up_early)
    patch.setattr(controller_election.ControllerElection, "move", keep)


def resigned_without_a_watch(patch: Patch) -> None:
    read = Store.read_controller

    async def unwatched(self: Store, watch: bool = False) -> Any:
        return await read(self)

    patch.setattr(Store, "read_controller", unwatched)


def topics_unwatched(patch: Patch) -> None:
    listed = Store.list_topics

    async def unwatched(self: Store, watch: bool = False) -> Any:
        return await listed(self)

    patch.setattr(Store, "list_topics", unwatched)


def expiry_waits_for_its_turn(patch: Patch) -> None:
    async def wait(self: Any) -> None:
        """For an event that comes only once this has returned."""
        store = self._store
        await self._queue.clear_and_put(controller.events.Expire()).started.wait()
        while self._store is store:  # noqa: ASYNC110  # a mutant may be clumsy
            await asyncio.sleep(0.1)

    patch.setattr(controller.Controller, "session_expired", wait)


# ---- failover


def states_not_loaded(patch: Patch) -> None:
    patch.setattr(failover, "_read_states", _nothing)


def offline_replicas_left_alone(patch: Patch) -> None:
    patch.setattr(failover, "replicas_offline", _nothing)


def offline_replicas_left_to_nobody(patch: Patch) -> None:
    """Nor do leaders take them out."""
    offline_replicas_left_alone(patch)
    wanted = Replicas._wanted

    def grow_only(self: Replicas, p: Any, replica: Any, *facts: Any) -> Any:
        isr_ = wanted(self, p, replica, *facts)
        return None if isr_ is not None and len(isr_) < len(replica.isr) else isr_

    patch.setattr(Replicas, "_wanted", grow_only)


def orders_before_metadata(patch: Patch) -> None:
    add = request_batch.RequestBatch.add_metadata

    def only_with_partitions(self: Any, brokers: Any, partitions: Iterable[Any]) -> None:
        if told := list(partitions):
            add(self, brokers, told)

    patch.setattr(request_batch.RequestBatch, "add_metadata", only_with_partitions)


def deletions_forgotten_in_failover(patch: Patch) -> None:
    async def none(term: TermContext) -> list[str]:
        await term.store.topic_deletion.list_requests()
        return []

    patch.setattr(failover, "queue_deletions", none)


def reassignments_forgotten_in_failover(patch: Patch) -> None:
    """All but the watch on what the old tools ask for."""

    async def none(term: TermContext) -> None:
        await term.store.tool_requests.read(REASSIGN_PARTITIONS)

    patch.setattr(failover, "resume_reassignments", none)


# ---- brokers that come and go


def newcomers_told_half(patch: Patch) -> None:
    online = replicas.replicas_online

    async def half(term: TermContext, told: Any, **how: Any) -> None:
        await online(term, {b: [p for p in ps if p.partition % 2 == 0] for b, ps in told.items()}, **how)

    patch.setattr(brokers, "replicas_online", half)


def brokers_as_they_were(patch: Patch) -> None:
    """What was listed when the watch fired is handled later, perhaps after a newer list."""
    on_watch = controller.Controller.on_watch
    handle = controller.HANDLERS[controller.events.BrokerChange]
    listed: dict[int, Any] = {}

    def read_first(self: Any, watch: Any) -> None:
        if watch.path != "/brokers/ids" or self._store is None or not self.is_active:
            on_watch(self, watch)
            return
        event = controller.events.BrokerChange()

        async def read() -> None:
            try:
                listed[id(event)] = await self._store.read_brokers(watch=True)
            except KlammError:
                return
            await asyncio.sleep(0.2)
            self._queue.put(event)

        self._reading = asyncio.get_running_loop().create_task(read())

    async def on_change(term: TermContext, event: Any) -> None:
        found = listed.pop(id(event), None)
        if found is None:
            await handle(term, event)
            return
        read = term.store.read_brokers

        async def as_listed(watch: bool = False) -> Any:
            return found

        term.store.read_brokers = as_listed  # type: ignore[method-assign]
        try:
            await handle(term, event)
        finally:
            term.store.read_brokers = read  # type: ignore[method-assign]

    patch.setattr(controller.Controller, "on_watch", read_first)
    patch.setitem(controller.HANDLERS, controller.events.BrokerChange, on_change)


def bounces_unseen(patch: Patch) -> None:
    diff = broker_changes.diff_brokers

    def without_bounces(*seen: Any) -> Any:
        return diff(*seen)._replace(bounced=())

    patch.setattr(brokers, "diff_brokers", without_bounces)


def brokers_take_what_was_not_meant_for_them(patch: Patch) -> None:
    refuse = Replicas.refuse

    def any_run(self: Replicas, message_broker_epoch: int, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        return refuse(self, -1, broker_epoch, controller_epoch)

    patch.setattr(Replicas, "refuse", any_run)


def earlier_runs_may_ask(patch: Patch) -> None:
    patch.setattr(isr, "check_sender", lambda context, broker, epoch: ErrorCode.NONE)
    patch.setattr(shutdowns, "check_departure", lambda context, broker, epoch: ErrorCode.NONE)


def old_registration_is_fatal(patch: Patch) -> None:
    settle = registrar.BrokerRegistrar._settle

    async def of_this_session_only(self: Any, client: Any, path: str) -> Any:
        self._sessions.clear()
        self._payloads.clear()
        return await settle(self, client, path)

    patch.setattr(registrar.BrokerRegistrar, "_settle", of_this_session_only)


def only_learned_sessions_and_once(patch: Patch) -> None:
    only_the_last_session_counts(patch)
    _registered_once(patch)


def only_the_last_session_counts(patch: Patch) -> None:
    settle = registrar.BrokerRegistrar._settle

    async def of_known_sessions(self: Any, client: Any, path: str) -> Any:
        self._payloads.clear()
        return await settle(self, client, path)

    patch.setattr(registrar.BrokerRegistrar, "_settle", of_known_sessions)


def registered_once(patch: Patch) -> None:
    """A registration that is refused is not tried again, on top of knowing no earlier session."""
    old_registration_is_fatal(patch)
    _registered_once(patch)


def _registered_once(patch: Patch) -> None:
    async def once(self: Any, event: RegisterBrokerAndReelect, cause: str) -> None:
        if event.store is self._store:
            self._election.use(event.store)
            await self._register(event.store)
            await self._election.elect(cause)

    patch.setattr(controller.Controller, "_register_and_reelect", once)


def sessions_after_the_end(patch: Patch) -> None:
    changed = zookeeper_sessions.ZooKeeperSessions._state_changed

    def renew_anyway(self: Any, client: Any, state: Any) -> None:
        self._closed = False
        changed(self, client, state)

    patch.setattr(zookeeper_sessions.ZooKeeperSessions, "_state_changed", renew_anyway)


def closing_sessions_reconnect(patch: Patch) -> None:
    """A session that is being closed seeks another connection where it loses its own, and hears that it expired."""
    lose = Session._lose

    def lose_and_go_on(self: Session, reason: str, now: float, *, hung_up: bool = False) -> None:
        closing, self._closing = self._closing, False
        lose(self, reason, now, hung_up=hung_up)
        self._closing = closing

    patch.setattr(Session, "_lose", lose_and_go_on)


def renewal_outlives_the_end(patch: Patch) -> None:
    """A new session that is being sought when the node closes is found nevertheless."""
    close = zookeeper_sessions.ZooKeeperSessions.close

    async def close_and_go_on(self: Any) -> None:
        self._renewal = None
        await close(self)

    patch.setattr(zookeeper_sessions.ZooKeeperSessions, "close", close_and_go_on)


# ---- leaders and ISRs


def isr_emptied(patch: Patch) -> None:
    plan = isr_removal.plan_isr_removal

    def to_the_last(broker: Any, stored: Any, epoch: int) -> Any:
        made = plan(broker, stored, epoch)
        made.writes.update({p: s._replace(isr=tuple(b for b in s.isr if b != broker)) for p, s in made.writes.items()})
        return made

    patch.setattr(replicas, "plan_isr_removal", to_the_last)


def dead_leaders_stay(patch: Patch) -> None:
    plan = isr_removal.plan_isr_removal

    def leader_kept(broker: Any, stored: Any, epoch: int) -> Any:
        made = plan(broker, stored, epoch)
        made.writes.update(
            {p: s._replace(leader=stored[p].leader) for p, s in made.writes.items() if s.leader == NO_BROKER}
        )
        return made

    patch.setattr(replicas, "plan_isr_removal", leader_kept)


def own_lost_write_not_recognised(patch: Patch) -> None:
    patch.setattr(state_changes, "already_written", lambda attempted, stored: {})


def own_lost_isr_change_not_recognised(patch: Patch) -> None:
    write = isr._write

    async def unrecognised(term: TermContext, asked: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(state_changes, "already_written", lambda attempted, stored: {})
            return await write(term, asked)

    patch.setattr(isr, "_write", unrecognised)


def own_lost_creation_not_recognised(patch: Patch) -> None:
    async def stay_new(term: TermContext, wanted: Any) -> None:
        return None

    patch.setattr(partitions, "_adopt", stay_new)


def the_outdated_may_bring_back_the_removed(patch: Patch) -> None:
    """No leader by the book asks for that in its epoch: the fence of leader epochs goes, too."""
    judge = alter_partition.judge

    def any_member(context: Any, partition: Any, asked: Any, version: int) -> Any:
        verdict = judge(context, partition, asked, version)
        if verdict.error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INELIGIBLE_REPLICA):
            write = partition.leadership._replace(isr=asked.isr, controller_epoch=context.epoch)
            return alter_partition.Verdict(write=write)
        return verdict

    patch.setattr(isr, "judge", any_member)


def removed_replicas_may_return(patch: Patch) -> None:
    judge = alter_partition.judge

    def any_member(context: Any, partition: Any, asked: Any, version: int) -> Any:
        verdict = judge(context, partition, asked, version)
        if verdict.error is ErrorCode.INELIGIBLE_REPLICA and all(b in context.live for b in asked.isr):
            write = partition.leadership._replace(isr=asked.isr, controller_epoch=context.epoch)
            return alter_partition.Verdict(write=write)
        return verdict

    patch.setattr(isr, "judge", any_member)


def the_dead_may_enter(patch: Patch) -> None:
    judge = alter_partition.judge

    def any_member(context: Any, partition: Any, asked: Any, version: int) -> Any:
        verdict = judge(context, partition, asked, version)
        if verdict.error is ErrorCode.INELIGIBLE_REPLICA and all(b in partition.replicas for b in asked.isr):
            write = partition.leadership._replace(isr=asked.isr, controller_epoch=context.epoch)
            return alter_partition.Verdict(write=write)
        return verdict

    patch.setattr(isr, "judge", any_member)


def retries_are_fenced(patch: Patch) -> None:
    judge = alter_partition.judge

    def fence_first(context: Any, partition: Any, asked: Any, version: int) -> Any:
        now = partition.leadership if partition else None
        if now is not None and asked.leader_epoch == now.leader_epoch and asked.partition_epoch < now.partition_epoch:
            return alter_partition.Verdict(ErrorCode.INVALID_UPDATE_VERSION, "an older partition epoch")
        return judge(context, partition, asked, version)

    patch.setattr(isr, "judge", fence_first)


def zombies_say_no(patch: Patch) -> None:
    judge = alter_partition.judge

    def sure(context: Any, partition: Any, asked: Any, version: int) -> Any:
        verdict = judge(context, partition, asked, version)
        if verdict.error is ErrorCode.NOT_CONTROLLER:
            return alter_partition.Verdict(ErrorCode.INVALID_UPDATE_VERSION, "another partition epoch")
        return verdict

    patch.setattr(isr, "judge", sure)


def elected_in_isr_order(patch: Patch) -> None:
    elect = partitions.elect_offline

    def first_of_the_isr(facts: Any) -> Any:
        choice = elect(facts)
        first = next((b for b in facts.isr if b in facts.live), None)
        return choice if choice is None or choice.unclean or first is None else choice._replace(leader=first)

    for module in (partitions, topics, reassignment):
        patch.setattr(module, "elect_offline", replace(elect, elect=first_of_the_isr))


def preferred_without_being_in_sync(patch: Patch) -> None:
    from klamm.controller.decisions.elections import Choice
    from klamm.controller.handlers import elections

    def elect_preferred(facts: Any) -> Any:
        first = facts.replicas[0]
        isr_ = facts.isr if first in facts.isr else (*facts.isr, first)
        return Choice(first, isr_, recipients=facts.replicas) if first in facts.live else None

    patch.setattr(elections, "elect_preferred", replace(elections.elect_preferred, elect=elect_preferred))


def the_leaving_not_told(patch: Patch) -> None:
    def live_only(self: Any, brokers: Any) -> Any:
        return sorted(b for b in brokers if b in self._context.live)

    patch.setattr(request_batch.RequestBatch, "_registered", live_only)


def the_leaving_go_at_once(patch: Patch) -> None:
    async def let_go(term: TermContext, event: ControlledShutdown) -> None:
        from klamm.controller.events import ShutdownAnswer

        event.answer(ShutdownAnswer(ErrorCode.NONE))

    patch.setitem(controller.HANDLERS, ControlledShutdown, let_go)


def stops_without_epochs(patch: Patch) -> None:
    add = request_batch.RequestBatch.add_stop_replica

    def without(self: Any, brokers: Any, partition: Any, delete: bool) -> None:
        told = list(brokers)
        add(self, told, partition, delete)
        for broker in told:
            if (stop := self._stops.get(broker, {}).get(partition)) is not None:
                stop.leader_epoch = -1

    patch.setattr(request_batch.RequestBatch, "add_stop_replica", without)


# ---- brokers, in the stubs' book


def _forgetting(known: Any, take: Any, *order: Any) -> ErrorCode:
    """As if it had had no order for the partition yet; what it refuses for another reason changes nothing."""
    before = known.leader_epoch, known.partition_epoch
    known.leader_epoch, known.partition_epoch = NO_EPOCH, 0
    error: ErrorCode = take(*order)
    if error is not ErrorCode.NONE:
        known.leader_epoch, known.partition_epoch = before
    return error


def orders_of_old_leader_epochs_are_taken(patch: Patch) -> None:
    take = Replicas._take

    def any_older(self: Replicas, order: Any, now_s: float) -> ErrorCode:
        known = self.hosted.get(order.topic_partition)
        is_older = known is not None and order.state.leader_epoch < known.leader_epoch
        return _forgetting(known, take, self, order, now_s) if is_older else take(self, order, now_s)

    patch.setattr(Replicas, "_take", any_older)


def orders_are_taken_twice(patch: Patch) -> None:
    take = Replicas._take

    def equal_too(self: Replicas, order: Any, now_s: float) -> ErrorCode:
        known = self.hosted.get(order.topic_partition)
        is_same = known is not None and order.state.leader_epoch == known.leader_epoch
        return _forgetting(known, take, self, order, now_s) if is_same else take(self, order, now_s)

    patch.setattr(Replicas, "_take", equal_too)


def refused_for_good(patch: Patch) -> None:
    begin = Replicas._begin

    def still_refused(self: Replicas, replica: Any, order: Any, now_s: float) -> None:
        before = replica.is_refused
        begin(self, replica, order, now_s)
        replica.is_refused = before

    patch.setattr(Replicas, "_begin", still_refused)


def proposals_survive_orders(patch: Patch) -> None:
    begin = Replicas._begin

    def still_proposed(self: Replicas, replica: Any, order: Any, now_s: float) -> None:
        before = replica.proposal
        begin(self, replica, order, now_s)
        replica.proposal = before

    patch.setattr(Replicas, "_begin", still_proposed)


def epochs_remembered_before_the_work(patch: Patch) -> None:
    """The first order for a partition fails in the middle, once for each process, and its epoch is remembered."""
    begin = Replicas._begin

    def fails_once(self: Replicas, replica: Any, order: Any, now_s: float) -> None:
        if replica.leader_epoch == NO_EPOCH and order.state.leader_epoch > 0:
            replica.leader_epoch = order.state.leader_epoch
        else:
            begin(self, replica, order, now_s)

    patch.setattr(Replicas, "_begin", fails_once)


def no_replica_without_a_leader(patch: Patch) -> None:
    take = Replicas._take

    def of_leaders_alone(self: Replicas, order: Any, now_s: float) -> ErrorCode:
        if order.state.leader == NO_BROKER and order.topic_partition not in self.hosted:
            return ErrorCode.NONE
        return take(self, order, now_s)

    patch.setattr(Replicas, "_take", of_leaders_alone)


# ---- topics


def growth_while_dying(patch: Patch) -> None:
    async def grow(term: TermContext, topic: Any, added: Any) -> None:
        znode = (await term.store.read_topics([topic.name]))[0][topic.name]
        made = [term.context.add_partition(topic, n, znode.partitions[n]) for n in added]
        await topics.on_new_partitions(term, made)

    patch.setattr(topics, "_take_back", grow)


def deletions_do_not_wait(patch: Patch) -> None:
    def at_once(context: Any, topic: str, *facts: Any, **more: Any) -> Any:
        from klamm.controller.decisions.topic_deletion import Step, Verdict

        begun = topic in context.topics_with_deletion_started
        return Verdict(Step.COMPLETE if begun else Step.BEGIN)

    patch.setattr(topic_deletion, "decide", at_once)


def deletions_do_not_resume(patch: Patch) -> None:
    patch.setattr(brokers, "resume_deletions", _nothing)


def leaderless_replicas_stay_online(patch: Patch) -> None:
    """A replica without leadership information cannot go offline, so that its topic is never deleted."""
    move = ControllerContext.move_replicas

    def only_with_leadership(self: Any, broker: Any, moved: Any, target: Any) -> Any:
        listed = list(moved)
        if target is ReplicaState.OFFLINE:
            allowed = [p for p in listed if p.leadership is not None]
            return [*move(self, broker, allowed, target), *(p for p in listed if p.leadership is None)]
        return move(self, broker, listed, target)

    patch.setattr(ControllerContext, "move_replicas", only_with_leadership)


def ids_lost_when_rewritten(patch: Patch) -> None:
    change = topic_assignments.AssignmentStore._change

    async def without_ids(store: Any, changes: Any, ids: Any, failed: Any, is_first: bool) -> Any:
        encode = topic_assignments.znodes.encode_topic
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(topic_assignments.znodes, "encode_topic", lambda topic_id, ps: encode(None, ps))
            return await change(store, changes, ids, failed, is_first)

    patch.setattr(topic_assignments.AssignmentStore, "_change", without_ids)


# ---- reassignment


def memory_before_znode(patch: Patch) -> None:
    update = reassignment._update_assignments

    async def memory_first(term: TermContext, wanted: Any) -> Any:
        for p, assignment in wanted.items():
            term.context.put_assignment(p, assignment)
        return await update(term, wanted)

    patch.setattr(reassignment, "_update_assignments", memory_first)


def request_removed_at_once(patch: Patch) -> None:
    handle = reassignment_requests.on_zk_reassignment

    async def remove_first(term: TermContext, event: Any) -> None:
        await handle(term, event)
        await term.store.write([Delete(REASSIGN_PARTITIONS)])

    patch.setattr(reassignment_requests, "on_zk_reassignment", remove_first)
    patch.setitem(controller.HANDLERS, controller.events.ZkPartitionReassignment, remove_first)


def unknown_entries_stay(patch: Patch) -> None:
    patch.setattr(reassignment_requests, "remove_entries", _nothing)


def bumped_epoch_not_remembered(patch: Patch) -> None:
    patch.setattr(TermContext, "apply_epochs", lambda self, written: None)


def leader_dropped_by_override(patch: Patch) -> None:
    async def no_move(term: TermContext, wanted: Any) -> dict[Any, str]:
        return {}

    patch.setattr(reassignment, "_move_leaders_first", no_move)


def joined_is_enough(patch: Patch) -> None:
    """Replicas are dropped before the target is in sync."""
    patch.setattr(reassignment, "awaited", lambda assignment, isr: ())


def moved_replicas_not_written_down(patch: Patch) -> None:
    async def all_well(term: TermContext, replicas: Any) -> dict[Any, str]:
        return {}

    patch.setattr(reassignment, "schedule_deletion_of_moved", all_well)


def arrivals_unnoticed(patch: Patch) -> None:
    patch.setattr(brokers, "advance_reassignments", _nothing)


def isr_changes_unnoticed(patch: Patch) -> None:
    patch.setattr(isr, "complete_if_in_sync", _nothing)


def moves_to_the_absent_forgotten(patch: Patch) -> None:
    """Failover takes up only moves whose new replicas all live."""
    resume = failover.resume_reassignments

    async def of_the_living(term: TermContext) -> None:
        for p in list(term.context.reassigning):
            if not term.context.live.issuperset(p.assignment.adding):
                term.context.reassigning.pop(p)
        await resume(term)

    patch.setattr(failover, "resume_reassignments", of_the_living)


def stops_need_a_newer_epoch(patch: Patch) -> None:
    stop = Replicas._stop

    def strict(self: Replicas, order: Any) -> ErrorCode:
        known = self.hosted.get(order.topic_partition)
        if known is not None and order.leader_epoch >= 0 and order.leader_epoch <= known.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return stop(self, order)

    patch.setattr(Replicas, "_stop", strict)


MUTANTS = (
    Mutant("1", "KAFKA-532", "brokers follow any controller epoch", brokers_follow_anyone, (4, 5)),
    Mutant("2", "KAFKA-708", "the last member leaves the ISR", isr_emptied, (11,)),
    Mutant("3", "KAFKA-831", "a started broker is told half of its partitions", newcomers_told_half, (19, 30, 44)),
    Mutant("4", "KAFKA-849", "failover does not load the states", states_not_loaded, (34, 16, 19, 44)),
    Mutant("5", "KAFKA-992, 1387", "an own old registration is a foreign one, for good", registered_once, (36,)),
    Mutant("6", "KAFKA-1096", "the epoch is read anew before each write", epoch_read_before_each_write, (1, 3)),
    Mutant("7", "KAFKA-1097", "AlterPartition takes who is no replica", removed_replicas_may_return, (12, 31)),
    Mutant("7a", "KAFKA-1097", "the same, of outdated leaders, too", the_outdated_may_bring_back_the_removed, (12, 31)),
    Mutant(
        "8", "KAFKA-1188", "brokers take orders of older leader epochs", orders_of_old_leader_epochs_are_taken, (8, 44)
    ),
    Mutant("9", "KAFKA-1382", "own writes whose answer was lost are foreign", own_lost_write_not_recognised, (31, 42)),
    Mutant("9a", "KAFKA-1382", "the same, of ISR changes alone", own_lost_isr_change_not_recognised, (31, 42)),
    Mutant("9b", "KAFKA-1382", "the same, of first states", own_lost_creation_not_recognised, (34, 41, 19)),
    Mutant("10", "KAFKA-1647", "brokers make no replica without a leader", no_replica_without_a_leader, (44,)),
    Mutant("11", "KAFKA-1681", "failover forgets deletions", deletions_forgotten_in_failover, (43,)),
    Mutant("12", "KAFKA-2300, 5310", "the context survives the term", context_survives_the_term, (33,)),
    Mutant("13", "KAFKA-2721", "brokers take an order twice", orders_are_taken_twice, (60,)),
    Mutant("14", "KAFKA-3085, 5502", "brokers as listed when the watch fired", brokers_as_they_were, (34, 36)),
    Mutant("15", "KAFKA-3096", "a dead leader stays leader", dead_leaders_stay, (10, 41)),
    Mutant("16", "KAFKA-3143", "failover takes the dead out of no ISR", offline_replicas_left_alone, (42,)),
    Mutant("16a", "KAFKA-3143", "neither failover nor leaders do", offline_replicas_left_to_nobody, (42,)),
    Mutant("17", "KAFKA-4214", "moves do not resume when brokers come", arrivals_unnoticed, (43,)),
    Mutant("17a", "KAFKA-4214", "moves do not resume after failover", reassignments_forgotten_in_failover, (43,)),
    Mutant("17b", "KAFKA-4214", "failover drops moves to the absent", moves_to_the_absent_forgotten, (43,)),
    Mutant("17c", "KAFKA-4214", "moves do not go on when ISRs change", isr_changes_unnoticed, (43,)),
    Mutant(
        "17+17c",
        "KAFKA-4214",
        "neither of these sets moves going",
        together(arrivals_unnoticed, isr_changes_unnoticed),
        (43,),
    ),
    Mutant("18", "KAFKA-4229, 6879", "expiry waits for the next session", expiry_waits_for_its_turn, (45, 40, 36)),
    Mutant("19", "KAFKA-4443", "no broker list before the first orders", orders_before_metadata, (19,)),
    Mutant("20", "KAFKA-4447", "the deposed handle events", the_deposed_go_on, (33, 3)),
    Mutant("21", "KAFKA-6082", "writes are not bound to the epoch", writes_unbound, (3,)),
    Mutant("22", "KAFKA-6193", "the request to move goes when it is queued", request_removed_at_once, (28,)),
    Mutant("23", "KAFKA-6612", "a topic grows while it is deleted", growth_while_dying, (26,)),
    Mutant("23a", "KAFKA-6650", "leaderless replicas do not go offline", leaderless_replicas_stay_online, (43, 21)),
    Mutant("24", "KAFKA-7165", "an own old registration is waited for", old_registration_is_fatal, (36,)),
    Mutant("25", "KAFKA-14845", "only sessions that were learned count", only_the_last_session_counts, (36,)),
    Mutant("25a", "KAFKA-14845", "the same, and it is tried once", only_learned_sessions_and_once, (36,)),
    Mutant("26", "KAFKA-7235", "the controller sees no bounce", bounces_unseen, (34, 44)),
    Mutant("26a", "KAFKA-7235", "brokers take orders for earlier runs", brokers_take_what_was_not_meant_for_them, (6,)),
    Mutant("26b", "KAFKA-7235", "earlier runs of a broker may ask", earlier_runs_may_ask, (31, 30)),
    Mutant("27", "KAFKA-7482", "leaving brokers get no orders", the_leaving_not_told, (30, 44)),
    Mutant("28", "KAFKA-8121", "a session is sought after the end", sessions_after_the_end, (36,)),
    Mutant("28a", "KAFKA-8121", "a session that is being closed reconnects", closing_sessions_reconnect, (36,)),
    Mutant("28b", "KAFKA-8121", "who seeks a session when it ends finds it", renewal_outlives_the_end, (36,)),
    Mutant(
        "28+28a",
        "KAFKA-8121",
        "closed sessions hear that they expired, and another is sought",
        together(sessions_after_the_end, closing_sessions_reconnect),
        (36,),
    ),
    Mutant("29", "KAFKA-9089", "a move enters memory before ZooKeeper", memory_before_znode, (27, 34)),
    Mutant("30", "KAFKA-9212", "bumped epochs are not remembered", bumped_epoch_not_remembered, (34, 9)),
    Mutant(
        "31",
        "KAFKA-9307, 9769",
        "the epoch is remembered, the work failed",
        epochs_remembered_before_the_work,
        (42, 44),
    ),
    Mutant("32", "KAFKA-9478", "impossible entries stay in the list", unknown_entries_stay, (43,)),
    Mutant("33", "KAFKA-9539", "StopReplica without leader epoch", stops_without_epochs, (22, 18)),
    Mutant("34", "KAFKA-10193", "preempted callers are not answered", callers_forgotten, (33,)),
    Mutant("35", "KAFKA-12686", "what was refused once is never asked again", refused_for_good, (42,)),
    Mutant("35a", "KAFKA-12751", "a proposal survives newer orders", proposals_survive_orders, (62, 42, 31)),
    Mutant("36", "KAFKA-12835", "the id is lost when a topic is rewritten", ids_lost_when_rewritten, (25,)),
    Mutant(
        "37",
        "KAFKA-13407",
        "a controller znode without a term counts as an active controller",
        elected_means_nothing_to_do,
        (40,),
    ),
    Mutant("38", "KAFKA-13461", "nobody watches who is controller", resigned_without_a_watch, (35, 40)),
    Mutant("38a", "KAFKA-13461", "nobody watches the topics", topics_unwatched, (35,)),
    Mutant("39", "KAFKA-13972", "stops need a newer epoch", stops_need_a_newer_epoch, (29, 24)),
    Mutant("40", "KAFKA-14140", "the dead and the leaving may enter the ISR", the_dead_may_enter, (31, 30)),
    Mutant("41", "KAFKA-14144", "AlterPartition again is fenced", retries_are_fenced, (31,)),
    Mutant("41a", "KAFKA-14154", "a controller that knows less says no", zombies_say_no, (31,)),
    Mutant("42", "KAFKA-14808", "an override drops the leader", leader_dropped_by_override, (41, 29)),
    Mutant("a", "", "offline elections follow the order of the ISR", elected_in_isr_order, (15,)),
    Mutant("b", "", "preferred leaders need not be in sync", preferred_without_being_in_sync, (13, 15, 39)),
    Mutant("c", "", "a shutdown is answered before leaders move", the_leaving_go_at_once, (30,)),
    Mutant("d", "", "a topic goes before its replicas", deletions_do_not_wait, (23,)),
    Mutant("e", "", "deletions do not resume when brokers come", deletions_do_not_resume, (43,)),
    Mutant("f", "", "replicas go before the target is in sync", joined_is_enough, (28, 22)),
    Mutant("g", "", "nobody writes down what a move takes from a broker", moved_replicas_not_written_down, (24, 29)),
)


class Hiding(NamedTuple):
    """A guard that nobody misses as long as another one holds."""

    pair: str
    """The mutant that has both out: it must be caught."""
    behind: str


HIDING = {
    "17": Hiding("17+17c", "a leader that takes the newcomer into its ISR sets the move going, too"),
    "28": Hiding("28+28a", "a session that is being closed ends as closed, never as expired"),
    "28a": Hiding("28+28a", "sessions that expire after the end are not replaced"),
}
"""Those that may survive alone."""
