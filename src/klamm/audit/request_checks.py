"""Checks of deletions, reassignments, requests and throttles."""

from collections.abc import Iterator

from klamm.audit import remedies
from klamm.audit.finding import SubjectFinding, age, notice, warning
from klamm.audit.snapshot import Snapshot
from klamm.config.dynamic_keys import THROTTLED_RATES, THROTTLED_REPLICAS
from klamm.model.assignment import ReplicaAssignment
from klamm.model.cluster import broker_names
from klamm.zk import znodes


def deletions(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report topics that are marked for deletion and not deleted."""
    assigned: dict[str, list[ReplicaAssignment]] = {}
    for p, assignment in s.assignments.items() if s.deletions else ():
        assigned.setdefault(p.topic, []).append(assignment)
    for topic, requested_ms in s.deletions.items():
        path = znodes.delete_topic_path(topic)
        if topic not in s.topic_ids and znodes.topic_path(topic) not in s.malformed:
            why = "it is marked for deletion, but there is no such topic"
            yield warning("orphaned deletion", topic, why, remedies.delete(s, path))
            continue
        waiting = age(s, requested_ms)
        if waiting is None:
            continue
        partitions = assigned.get(topic, [])
        if znodes.topic_path(topic) in s.malformed:
            why = f"marked {waiting} ago; its assignment cannot be read"
            remedy = (
                f"repair {znodes.topic_path(topic)}; or delete it, and delete its directories on the brokers by hand"
            )
        elif dead := sorted({b for a in partitions for b in a.replicas if b not in s.live}):
            why, remedy = (
                f"marked {waiting} ago; it has replicas on {broker_names(dead)}, not alive",
                remedies.start(dead),
            )
        elif any(a.is_being_reassigned for a in partitions):
            why, remedy = f"marked {waiting} ago; the topic is being reassigned", remedies.cancel_reassignment(s, topic)
        else:
            why, remedy = f"marked {waiting} ago, and nothing blocks it", remedies.reelect(s)
        yield warning("stuck deletion", topic, why, remedy)


def reassignments(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report reassignments that do not complete, and what they wait for."""
    for p, assignment in s.assignments.items():
        if not assignment.is_being_reassigned:
            continue
        state = s.states.get(p)
        missing = [b for b in assignment.target if state is None or b not in state.isr]
        dead = [b for b in missing if b not in s.live]
        if dead:
            why, remedy = (
                f"it waits for {broker_names(dead)}, not alive",
                f"{remedies.start(dead)}, or {remedies.cancel_reassignment(s, p.topic)}",
            )
            yield warning("stuck reassignment", str(p), why, remedy)
        elif missing and (state is None or state.leader not in s.live):
            why = f"it waits for {broker_names(missing)}, but has no leader to copy from"
            isr = state.isr if state is not None else ()
            remedy = (
                f"{remedies.start_one_of(isr)}, or {remedies.cancel_reassignment(s, p.topic)}"
                if isr
                else remedies.cancel_reassignment(s, p.topic)
            )
            yield warning("stuck reassignment", str(p), why, remedy)
        elif missing:
            yield notice("reassignment", str(p), f"it waits for {broker_names(missing)} to catch up", remedies.NOTHING)
        elif age(s, s.state_changed_ms.get(p, 0)) is None:
            yield notice("reassignment", str(p), "all its new replicas are in sync", remedies.NOTHING)
        else:
            why = "all its new replicas are in sync, but the controller does not complete it"
            yield warning("stuck reassignment", str(p), why, remedies.reelect(s))
    waiting = age(s, s.reassignment_requested_ms) if s.reassignment is not None else None
    if waiting is not None and s.reassignment is not None:
        moving = {p for p, a in s.assignments.items() if a.is_being_reassigned}
        if left := [p for p in s.reassignment if p not in moving]:
            why = f"requested {waiting} ago; {len(left):,} of its partitions are not being reassigned"
            yield warning("stuck reassignment", znodes.REASSIGN_PARTITIONS, why, remedies.reelect(s))


def stale_requests(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report requests and notifications that the controller does not handle, or cannot read."""
    if s.preferred_election is not None and (waiting := age(s, s.preferred_election_requested_ms)) is not None:
        yield warning("request left", znodes.PREFERRED_ELECTION, f"not handled for {waiting}", remedies.reelect(s))
    old = [n for n in s.notifications if age(s, n.created_ms) is not None]
    for notification in old:
        why = "not handled for more than a minute"
        yield warning("notification left", notification.path, why, remedies.reelect(s))


def throttles(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report throttles that are set while nothing is being reassigned.

    A broker that is dead when a reassignment ends keeps its throttle.
    """
    if s.reassignment is not None or any(a.is_being_reassigned for a in s.assignments.values()):
        return
    why = "replication is throttled, but nothing is being reassigned: lagging replicas catch up slowly"
    for broker, config in sorted(s.broker_configs.items()):
        if keys := [key for key in THROTTLED_RATES if key in config]:
            yield notice("throttle left", f"broker {broker}", why, remedies.unset_broker_configs(s, broker, keys))
    for topic, config in s.configs.items():
        if topic in s.topic_ids and (lists := [key for key in THROTTLED_REPLICAS if key in config]):
            yield notice("throttle left", topic, why, remedies.unset_topic_configs(s, topic, lists))
