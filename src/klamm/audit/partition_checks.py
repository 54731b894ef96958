"""Checks of partitions: leaders, ISRs, assignments."""

from collections.abc import Iterator
from typing import Final

from klamm.audit import remedies
from klamm.audit.cluster_checks import unsupported_features
from klamm.audit.finding import SubjectFinding, age, critical, listed, notice, warning
from klamm.audit.snapshot import Snapshot
from klamm.audit.transactions import TRANSACTION_LOG, is_old
from klamm.model.cluster import broker_names
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderRecoveryState
from klamm.zk import znodes

MAX_IMBALANCE: Final = 0.10
"""`leader.imbalance.per.broker.percentage`: above this share the controller moves leaders back."""


def open_transactions(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report transactions that no coordinator ends, and those of which that is not known."""
    for transaction in s.open_transactions:
        remedy = remedies.abort_transaction(s, transaction)
        if TRANSACTION_LOG not in s.topic_ids:
            reason = f"there is no topic {TRANSACTION_LOG}, so no coordinator ends it"
        elif not is_old(s, transaction) or transaction.has_coordinator:
            continue
        else:
            reason = f"its last record is {age(s, transaction.last_append_ms)} old, and no coordinator has it"
            if transaction.has_coordinator is None:
                reason += ", but not all coordinators could be asked"
                remedy = remedies.repair_coordinators()
        yield warning(
            "open transaction",
            str(transaction.partition),
            f"producer {transaction.producer_id} has a transaction open from offset {transaction.start_offset}: "
            f"{reason}; read_committed consumers wait there",
            remedy,
        )


def leaders(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report partitions without a live leader in their assignment."""
    live = s.live
    for p, assignment in s.assignments.items():
        state = s.states.get(p)
        if state is None:
            if znodes.state_path(p) not in s.malformed and p.topic not in s.deletions:
                if p in s.new_partitions and age(s, s.topic_changed_ms[p.topic]) is None:
                    why = "it has no state znode yet: its topic was created, or got partitions, just now"
                    yield notice("new partition", str(p), why, remedies.NOTHING)
                    continue
                there = [b for b in assignment.replicas if b in live]
                why = "it has no state znode: none was written, or it was deleted" + (
                    "" if there else f"; none of its replicas {listed(assignment.replicas)} is alive"
                )
                if not assignment.replicas:
                    continue
                remedy = remedies.first_state(s, p) if there else remedies.start_one_of(assignment.replicas)
                yield critical("no leader", str(p), why, remedy)
        elif p.topic in s.deletions:
            continue
        elif state.leader == NO_BROKER or (state.leader not in live and live.isdisjoint(state.isr)):
            yield from _leaderless(s, p, state.isr)
        elif state.leader not in live:
            why = f"its leader {state.leader} is not registered, and no new leader was elected"
            yield critical("no leader", str(p), why, remedies.reelect(s))
        elif assignment.replicas and state.leader not in assignment.replicas:
            why = f"its leader {state.leader} is not one of its replicas: the controller never sends it LeaderAndIsr"
            yield critical("no leader", str(p), why, remedies.add_leader_to_replicas(s, p, state.leader))


def _leaderless(s: Snapshot, p: TopicPartition, isr: tuple[BrokerId, ...]) -> Iterator[SubjectFinding]:
    """The finding for a partition none of whose ISR can lead now."""
    live = [b for b in isr if b in s.live]
    alive = f"{broker_names(live)} of its ISR {'are' if len(live) > 1 else 'is'} alive"
    if live and all(unsupported_features(s, b) for b in live):
        why = f"{alive}, but without support for the finalized features"
        yield critical("no leader", str(p), why, remedies.remove_features(s, unsupported_features(s, live[0])))
        return
    if live:
        why = f"{alive}, but its log directory failed, or no election took place"
        yield critical("no leader", str(p), why, remedies.lead_again(s, live))
        return
    assignment = s.assignments[p]
    others = [b for b in assignment.replicas if b in s.live]
    if not isr:
        remedy = remedies.elect_unclean(s, p, others) if others else remedies.start_one_of(assignment.replicas)
        yield critical("no leader", str(p), "its ISR is empty: only an unclean election is possible", remedy)
        return
    remedy = remedies.start_one_of(isr)
    if others:
        remedy += f"; or accept the loss of records that only they have: {remedies.elect_unclean(s, p, others)}"
    elif len(assignment.replicas) == 1:
        remedy += "; it has the only replica: if its disk is lost, so are the records"
    yield critical("no leader", str(p), f"no member of its ISR {listed(isr)} is alive", remedy)


def isrs(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report ISRs without their leader, or with brokers that have no replica."""
    for p, state in s.states.items():
        assignment = s.assignments.get(p)
        if assignment is None or p.topic in s.deletions:
            continue
        if state.leader in s.live and state.leader not in state.isr:
            why = f"leader {state.leader} is not in the ISR" if state.isr else "the ISR is empty"
            yield critical("ISR", str(p), why, remedies.write_valid_isr(s, p, state))
        leading = state.leader if state.leader in s.live else NO_BROKER  # `leaders` reports one that has no replica
        if non_replicas := [b for b in state.isr if b not in {*assignment.replicas, leading}]:
            why = (
                f"{broker_names(non_replicas)} {'are' if len(non_replicas) > 1 else 'is'} in the ISR, but not among "
                "the replicas"
            )
            yield warning("ISR", str(p), why, remedies.write_valid_isr(s, p, state))
        if state.recovery is LeaderRecoveryState.RECOVERING:
            why = "its leader was elected from outside the ISR and is still recovering: records may be lost"
            yield warning(
                "unclean leader",
                str(p),
                why,
                "compare the records of the replicas; the leader ends its recovery by itself",
            )


def replication(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report partitions with replicas out of sync, or below `min.insync.replicas`."""
    for p, state in s.states.items():
        assignment = s.assignments.get(p)
        if assignment is None or p.topic in s.deletions or state.leader not in s.live:
            continue
        missing = [b for b in assignment.target if b not in state.isr]
        least = min(_min_isr(s, p.topic), len(assignment.replicas))  # as leaders count it
        if len(state.isr) < least:
            why = f"{len(state.isr)} in sync, min.insync.replicas is {least}: writes with acks=all are rejected"
            yield critical("below min ISR", str(p), why, remedies.catch_up(s, missing))
        elif missing and not assignment.is_being_reassigned:
            at_least = len(state.isr) == least and least > 1
            why = f"{broker_names(missing)} not in sync" + (
                "; if one more leaves the ISR, writes with acks=all are rejected" if at_least else ""
            )
            yield warning("under-replicated", str(p), why, remedies.catch_up(s, missing))


def preferred_leaders(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report brokers that lead too few of the partitions for which they are preferred, by Kafka's threshold."""
    led: dict[BrokerId, list[bool]] = {}
    for p, assignment in s.assignments.items():
        if (state := s.states.get(p)) is not None and assignment.replicas:
            led.setdefault(assignment.replicas[0], []).append(state.leader == assignment.replicas[0])
    for broker, there in sorted(led.items()):
        away = there.count(False)
        if away > MAX_IMBALANCE * len(there):
            why = (
                f"it leads {len(there) - away:,} of the {len(there):,} partitions for which it is the preferred leader"
            )
            remedy = remedies.elect_preferred(s) if broker in s.live else remedies.start([broker])
            yield notice("not preferred", f"broker {broker}", why, remedy)


def assignments(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report invalid replica lists, and znodes of partitions that their topic does not have."""
    for p, assignment in s.assignments.items():
        path = znodes.topic_path(p.topic)
        if not assignment.replicas:
            why = f"{path} assigns no replica to it"
            yield critical(
                "assignment", str(p), why, f"{remedies.restore_assignment(s, p)}, then {remedies.reelect(s)}"
            )
        elif len(set(assignment.replicas)) < len(assignment.replicas):
            why = f"a broker is listed twice: {listed(assignment.replicas)}"
            yield warning(
                "assignment", str(p), why, f"list each broker once: {remedies.reassign(s, p, assignment.replicas)}"
            )
    for p in s.stray_partitions:
        why = "it has a znode, but the topic does not have this partition"
        yield warning("stray partition", str(p), why, remedies.delete(s, znodes.partition_path(p), recursive=True))


def _min_isr(s: Snapshot, topic: str) -> int:
    """Return `min.insync.replicas` in force for the topic; 1 where it is not a number."""
    text = s.configs.get(topic, {}).get("min.insync.replicas") or s.default_config.get("min.insync.replicas") or "1"
    return int(text) if text.isdigit() else 1
