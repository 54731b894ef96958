"""Replica state changes: new, online, offline, deleted. Source: ReplicaStateMachine.scala (3.9).

`Replicas` maps a broker to partitions that it hosts. Each function sends its own requests.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from klamm.controller.decisions.plans import StatePlan, plan_isr_removal
from klamm.controller.handlers.state_changes import States, change_known_states
from klamm.controller.states import ReplicaState, can_all_move
from klamm.controller.steps import WRITE_PARTITIONS, gather_limited
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk.fenced import chunks

Replicas: TypeAlias = Mapping[BrokerId, Iterable[Partition]]
SentStates: TypeAlias = Mapping[Partition, LeaderAndIsr | None]
"""By partition, the state that was just sent to all of its replicas."""


async def replicas_new(term: TermContext, replicas: Replicas) -> None:
    """Move replicas to New; where a leader is known, send LeaderAndIsr so that they create their logs."""
    for broker in sorted(replicas):
        async for chunk in term.slices.over(replicas[broker]):
            leading = {p: "a new replica cannot be the leader already" for p in chunk if p.leader == broker}
            term.refuse("new replica", leading)
            for p in _move(term, broker, [p for p in chunk if p not in leading], ReplicaState.NEW):
                if p.leadership is not None:
                    term.batch.add_leader_and_isr([broker], p, is_new=True)
    await term.send_requests()


async def replicas_online(term: TermContext, replicas: Replicas, elections_follow: bool = False) -> None:
    """Move replicas to Online and send them LeaderAndIsr, except to New ones, which got it already.

    With `elections_follow` the requests are not sent yet: the elections' results go into the same requests.
    """
    for broker in sorted(replicas):
        async for chunk in term.slices.over(replicas[broker]):
            states = term.context.replicas_on(broker)
            sent = [p for p in chunk if p.leadership is not None]
            if ReplicaState.NEW in map(states.get, chunk):
                sent = [p for p in sent if states.get(p) is not ReplicaState.NEW]
            moved = _move(term, broker, chunk, ReplicaState.ONLINE)
            if len(moved) < len(chunk):
                legal = set(moved)
                sent = [p for p in sent if p in legal]
            term.batch.add_changes(sent, {broker: sent})
    await _send_requests(term, elections_follow)


async def replicas_offline(
    term: TermContext,
    replicas: Replicas,
    sent: SentStates = MappingProxyType({}),
    elections_follow: bool = False,
) -> None:
    """Stop replicas, remove them from ISRs and notify the other replicas, except of states in `sent`.

    With `elections_follow` the requests are not sent yet: the elections' results go into the same requests.
    """
    for broker in sorted(replicas):
        steps = (_take_offline(term, broker, chunk, sent) for chunk in chunks(replicas[broker], WRITE_PARTITIONS))
        await gather_limited(steps)
    await _send_requests(term, elections_follow)


async def remove_from_isrs(term: TermContext, replicas: Replicas) -> list[Partition]:
    """Remove replicas from their ISRs without notifying anyone; returns the partitions that were written."""
    changed: dict[Partition, None] = {}
    for broker in sorted(replicas):
        members = (p for p in replicas[broker] if p.leadership is not None and broker in p.leadership.isr)
        steps = (_remove_broker_from_isrs(term, broker, chunk) for chunk in chunks(members, WRITE_PARTITIONS))
        for left_isr in await gather_limited(steps):
            changed.update(dict.fromkeys(left_isr))
    return list(changed)


async def replicas_deleted(term: TermContext, replicas: Replicas) -> dict[Partition, str]:
    """Delete replicas without waiting for their brokers' responses: offline, deleted, forgotten.

    Returns the partitions that keep their replica because their ISR could not be written, with the reason.
    """
    await replicas_offline(term, replicas)
    kept: dict[Partition, str] = {}
    going: dict[BrokerId, list[Partition]] = {}
    for broker in sorted(replicas):
        states = term.context.replicas_on(broker)
        for p in replicas[broker]:
            if states.get(p) is ReplicaState.OFFLINE:
                going.setdefault(broker, []).append(p)
            elif states.get(p) is ReplicaState.NON_EXISTENT:
                term.context.forget_replica(broker, p)  # never started
            else:
                kept[p] = f"replica {broker} could not be taken out of the ISR"
    for broker, partitions in going.items():
        async for chunk in term.slices.over(partitions):
            for p in _move(term, broker, chunk, ReplicaState.DELETION_STARTED):
                term.batch.add_stop_replica([broker], p, delete=True)
    await term.send_requests()
    for broker, partitions in going.items():
        async for chunk in term.slices.over(partitions):
            for target in (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT):
                _move(term, broker, chunk, target)
            for p in chunk:
                term.context.forget_replica(broker, p)
    return kept


async def _send_requests(term: TermContext, elections_follow: bool) -> None:
    """Send the requests, unless elections follow whose results can go into the same requests."""
    if not (elections_follow and term.batch.coalesces_requests):
        await term.send_requests()


async def _take_offline(term: TermContext, broker: BrokerId, partitions: list[Partition], sent: SentStates) -> None:
    """Stop a broker's replicas, remove them from ISRs and move them to Offline."""
    context = term.context
    allowed = partitions
    if not can_all_move(map(context.replicas_on(broker).get, partitions), ReplicaState.OFFLINE):
        allowed = [p for p in partitions if context.can_replica_move(broker, p, ReplicaState.OFFLINE)]
    if broker in context.registered:
        for p in allowed:
            term.batch.add_stop_replica([broker], p, delete=False)
    led = [p for p in allowed if p.leadership is not None]
    leaderless = [p for p in allowed if p.leadership is None]
    left_isr = await _remove_broker_from_isrs(term, broker, led)
    changed = [p for p in left_isr if p not in sent or sent[p] != p.leadership] if sent else left_isr
    recipients: defaultdict[BrokerId, list[Partition]] = defaultdict(list)
    for p in changed:
        for other in p.announced.replicas:
            recipients[other].append(p)
    recipients.pop(broker, None)
    term.batch.add_changes(changed, recipients)
    context.move_replicas(broker, left_isr, ReplicaState.OFFLINE)
    if leaderless:
        term.batch.add_metadata(context.registered, leaderless)
        context.move_replicas(broker, leaderless, ReplicaState.OFFLINE)


async def _remove_broker_from_isrs(term: TermContext, broker: BrokerId, partitions: list[Partition]) -> list[Partition]:
    """Remove the broker from ISRs; returns the partitions whose stored ISR is without it now."""

    async def plan(stored: States) -> StatePlan:
        """Return the stored states without the broker in their ISR, to write."""
        return plan_isr_removal(broker, stored, term.context.epoch)

    def apply(_: StatePlan, written: States) -> None:
        """Put the written ISRs into the controller's memory."""
        term.apply_removals(broker, written)

    return list((await change_known_states(term, "ISR removal", partitions, plan, apply)).reached)


def _move(term: TermContext, broker: BrokerId, partitions: list[Partition], target: ReplicaState) -> list[Partition]:
    """Move replicas to `target`; returns those that changed. Invalid transitions are journalled."""
    refused = term.context.move_replicas(broker, partitions, target)
    term.refuse(
        f"move to {target}", dict.fromkeys(refused, "the replica is in a state from which this change is not valid")
    )
    if not refused:
        return partitions
    illegal = set(refused)
    return [p for p in partitions if p not in illegal]
