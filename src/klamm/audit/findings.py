"""What is wrong with a cluster: a snapshot in, findings out. To add a check, write it here and add it to `CHECKS`.

A finding has a reason and a remedy: a command, or what to look at. Findings with the same kind, reason and remedy are
merged into one that lists all subjects.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from klamm.audit import remedies
from klamm.audit.snapshot import Snapshot
from klamm.config.dynamic_keys import THROTTLED_RATES, THROTTLED_REPLICAS
from klamm.controller.decisions.features import supports
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderRecoveryState
from klamm.zk import znodes

STALE_REQUEST_MS: Final = 60_000
"""A request or notification that is in ZooKeeper for longer than this is not being handled."""
MAX_IMBALANCE: Final = 0.10
"""`leader.imbalance.per.broker.percentage`: above this share the controller moves leaders back."""


class Severity(StrEnum):
    CRITICAL = "critical"  # data is unavailable or may be lost, or there is no controller
    WARNING = "warning"  # something is stuck, or the next failure makes it critical
    NOTICE = "notice"  # worth knowing; the cluster is healthy


class Finding(NamedTuple):
    severity: Severity
    kind: str
    why: str
    remedy: str
    subjects: tuple[str, ...]
    """Partitions, topics, brokers or znode paths."""


class SubjectFinding(NamedTuple):
    """A finding about one subject."""

    severity: Severity
    kind: str
    subject: str
    why: str
    remedy: str


Check = Callable[[Snapshot], Iterator[SubjectFinding]]


def findings(snapshot: Snapshot) -> list[Finding]:
    """All findings, the most severe first."""
    grouped: dict[tuple[Severity, str, str, str], list[str]] = {}
    for check in CHECKS:
        for finding in check(snapshot):
            grouped.setdefault((finding.severity, finding.kind, finding.why, finding.remedy), []).append(
                finding.subject
            )
    found = [Finding(*key, tuple(subjects)) for key, subjects in grouped.items()]
    return sorted(found, key=lambda f: list(Severity).index(f.severity))


def is_healthy(found: Iterable[Finding]) -> bool:
    return all(f.severity is Severity.NOTICE for f in found)


# ---- the controller


def controller(s: Snapshot) -> Iterator[SubjectFinding]:
    """There is a controller, it is registered, and one session owns both znodes."""
    kind, at = "controller", znodes.CONTROLLER
    if s.controller is None:
        if at not in s.malformed:
            why = "there is no controller: no leader is elected and no request is handled"
            remedy = "start a broker; if brokers are running, look at the logs to see why none becomes controller"
            yield _critical(kind, at, why, remedy)
    elif s.is_kraft:
        why = f"KRaft controller {s.controller} is active: the cluster is being migrated to KRaft"
        yield _notice(kind, at, why, remedies.NOTHING)
    elif s.controller_ownership.owner_session == 0:
        why = "the znode is not ephemeral: no broker owns it, and none can become controller"
        yield _critical(kind, at, why, remedies.reelect(s))
    elif s.controller not in s.broker_ownership:
        why = f"it names broker {s.controller}, which is not registered: brokers may not receive its requests"
        remedy = (
            f"restart broker {s.controller} if it is running: it registers at start; otherwise {remedies.reelect(s)}"
        )
        yield _critical(kind, at, why, remedy)
    elif s.broker_ownership[s.controller].owner_session != s.controller_ownership.owner_session:
        why = f"an earlier session of broker {s.controller} owns it: no controller is active (KAFKA-13407)"
        yield _critical(kind, at, why, remedies.reelect(s))


def controller_epoch(s: Snapshot) -> Iterator[SubjectFinding]:
    """It counts elections, as the version of its znode does, and no partition state has a higher one."""
    kind, at = "controller epoch", znodes.CONTROLLER_EPOCH
    if s.controller_epoch is None:
        if s.controller is not None and at not in s.malformed:
            why = "there is a controller, but no controller epoch that fences its writes"
            yield _critical(kind, at, why, remedies.new_epoch(s))
        return
    if s.controller_epoch != s.controller_epoch_version:
        why = (
            f"the epoch is {s.controller_epoch}, but its znode was written {s.controller_epoch_version} times: "
            "it was changed by hand, or ZooKeeper was restored from a backup"
        )
        yield _notice(kind, at, why, "nothing to do if it is higher than the controller epoch of every partition state")
    for p, state in s.states.items():
        if state.controller_epoch > s.controller_epoch:
            why = f"the state has a higher controller epoch than {s.controller_epoch}: no controller may change it"
            yield _critical("epoch gap", str(p), why, remedies.new_epoch(s))


# ---- brokers


def registrations(s: Snapshot) -> Iterator[SubjectFinding]:
    """Every registration is owned by a session."""
    for broker, ownership in s.broker_ownership.items():
        if ownership.owner_session == 0:
            path = znodes.broker_path(broker)
            why = "the znode is not ephemeral: the broker counts as alive even when it is not running"
            remedy = f"{remedies.delete(s, path)}; if broker {broker} is running, restart it"
            yield _critical("registration", path, why, remedy)
    for name in s.malformed_ids:
        path = f"{znodes.BROKER_IDS}/{name}"
        why = "this is not a broker id: Apache Kafka's brokers and controllers fail to read the list"
        yield _critical("registration", path, why, remedies.delete(s, path))


def features(s: Snapshot) -> Iterator[SubjectFinding]:
    """Every broker supports the finalized features; the controller ignores the others."""
    for broker in s.brokers:
        if lacking := _unsupported_features(s, broker):
            levels = ", ".join(f"{name} at level {s.features[name]}" for name in lacking)
            why = f"it does not support {levels}, finalized in {remedies.FEATURE}: the controller ignores the broker"
            yield _critical("features", f"broker {broker}", why, remedies.without_features(s, lacking))


def missing_brokers(s: Snapshot) -> Iterator[SubjectFinding]:
    """Brokers that have replicas and are not registered."""
    replicas: dict[BrokerId, int] = {}
    for assignment in s.assignments.values():
        for broker in assignment.replicas:
            if broker not in s.live:
                replicas[broker] = replicas.get(broker, 0) + 1
    for broker, count in sorted(replicas.items()):
        why = f"it is not registered and has {count:,} replica{'s' if count > 1 else ''}"
        yield _warning("broker gone", f"broker {broker}", why, remedies.restart_or_replace(s, broker))


# ---- partitions


def leaders(s: Snapshot) -> Iterator[SubjectFinding]:
    """Every partition has a live leader in its ISR."""
    live = s.live
    for p, assignment in s.assignments.items():
        state = s.states.get(p)
        if state is None:
            if znodes.state_path(p) not in s.malformed and p.topic not in s.deletions:
                there = [b for b in assignment.replicas if b in live]
                why = "it has no state znode: none was written, or it was deleted" + (
                    "" if there else f"; none of its replicas {_list(assignment.replicas)} is alive"
                )
                if not assignment.replicas:
                    continue
                remedy = remedies.first_state(s, p) if there else remedies.start_one_of(assignment.replicas)
                yield _critical("no leader", str(p), why, remedy)
        elif p.topic in s.deletions:
            continue
        elif state.leader == NO_BROKER or (state.leader not in live and live.isdisjoint(state.isr)):
            yield from _leaderless(s, p, state.isr)
        elif state.leader not in live:
            why = f"its leader {state.leader} is not registered, and no new leader was elected"
            yield _critical("no leader", str(p), why, remedies.reelect(s))
        elif assignment.replicas and state.leader not in assignment.replicas:
            why = f"its leader {state.leader} has no replica: the controller never sends it LeaderAndIsr"
            yield _critical("no leader", str(p), why, remedies.host_the_leader(s, p, state.leader))


def _leaderless(s: Snapshot, p: TopicPartition, isr: tuple[BrokerId, ...]) -> Iterator[SubjectFinding]:
    live = [b for b in isr if b in s.live]
    if live and all(_unsupported_features(s, b) for b in live):
        why = f"{_list(live)} of its ISR is alive, but does not support the finalized features"
        yield _critical("no leader", str(p), why, remedies.without_features(s, _unsupported_features(s, live[0])))
        return
    if live:
        why = f"{_list(live)} of its ISR is alive: its log directory failed there, or no election took place"
        yield _critical("no leader", str(p), why, remedies.lead_again(s, live))
        return
    assignment = s.assignments[p]
    others = [b for b in assignment.replicas if b in s.live]
    if not isr:
        remedy = remedies.elect_unclean(s, p, others) if others else remedies.start_one_of(assignment.replicas)
        yield _critical("no leader", str(p), "its ISR is empty: only an unclean election is possible", remedy)
        return
    remedy = remedies.start_one_of(isr)
    if others:
        remedy += f"; or accept the loss of records that only they have: {remedies.elect_unclean(s, p, others)}"
    elif len(assignment.replicas) == 1:
        remedy += "; it has the only replica: if its disk is lost, so are the records"
    yield _critical("no leader", str(p), f"no member of its ISR {_list(isr)} is alive", remedy)


def isrs(s: Snapshot) -> Iterator[SubjectFinding]:
    """The ISR contains the leader and only replicas."""
    for p, state in s.states.items():
        assignment = s.assignments.get(p)
        if assignment is None or p.topic in s.deletions:
            continue
        if state.leader in s.live and state.leader not in state.isr:
            why = f"leader {state.leader} is not in the ISR" if state.isr else "the ISR is empty"
            yield _critical("ISR", str(p), why, remedies.lead_with_isr(s, p, state))
        leading = state.leader if state.leader in s.live else NO_BROKER  # `leaders` reports one that has no replica
        if non_replicas := [b for b in state.isr if b not in {*assignment.replicas, leading}]:
            why = f"{_list(non_replicas)} in the ISR {'have' if len(non_replicas) > 1 else 'has'} no replica"
            yield _warning("ISR", str(p), why, remedies.lead_with_isr(s, p, state))
        if state.recovery is LeaderRecoveryState.RECOVERING:
            why = "its leader was elected from outside the ISR and is still recovering: records may be lost"
            yield _warning("unclean leader", str(p), why, "compare the replicas; the leader clears this by itself")


def replication(s: Snapshot) -> Iterator[SubjectFinding]:
    """All replicas are in sync, and at least `min.insync.replicas`."""
    for p, state in s.states.items():
        assignment = s.assignments.get(p)
        if assignment is None or p.topic in s.deletions or state.leader not in s.live:
            continue
        missing = [b for b in assignment.target if b not in state.isr]
        least = _min_insync(s, p.topic)
        if len(state.isr) < least:
            why = f"{len(state.isr)} in sync, min.insync.replicas is {least}: writes with acks=all are rejected"
            yield _critical("below min ISR", str(p), why, remedies.catch_up(s, missing))
        elif missing and not assignment.is_being_reassigned:
            at_least = len(state.isr) == least and least > 1
            why = f"{_list(missing)} not in sync" + (
                "; if one more falls out, writes with acks=all are rejected" if at_least else ""
            )
            yield _warning("under-replicated", str(p), why, remedies.catch_up(s, missing))


def preferred_leaders(s: Snapshot) -> Iterator[SubjectFinding]:
    """The preferred replicas lead, within Kafka's threshold."""
    led: dict[BrokerId, list[bool]] = {}
    for p, assignment in s.assignments.items():
        if (state := s.states.get(p)) is not None and assignment.replicas:
            led.setdefault(assignment.replicas[0], []).append(state.leader == assignment.replicas[0])
    for broker, there in sorted(led.items()):
        away = there.count(False)
        if away > MAX_IMBALANCE * len(there):
            why = f"it leads {len(there) - away:,} of the {len(there):,} partitions whose preferred leader it is"
            remedy = remedies.elect_preferred(s) if broker in s.live else remedies.start([broker])
            yield _notice("not preferred", f"broker {broker}", why, remedy)


def assignments(s: Snapshot) -> Iterator[SubjectFinding]:
    """Replica lists are valid, and there are no znodes of unassigned partitions."""
    for p, assignment in s.assignments.items():
        path = znodes.topic_path(p.topic)
        if not assignment.replicas:
            why = f"{path} assigns no replica to it"
            yield _critical("assignment", str(p), why, f"{remedies.assign(s, p)}, then {remedies.reelect(s)}")
        elif len(set(assignment.replicas)) < len(assignment.replicas):
            why = f"a broker is listed twice: {_list(assignment.replicas)}"
            yield _warning(
                "assignment", str(p), why, f"list each broker once: {remedies.reassign(s, p, assignment.replicas)}"
            )
    for p in s.stray_partitions:
        why = "it has a znode, but the topic does not have this partition"
        yield _warning("stray partition", str(p), why, remedies.delete(s, znodes.partition_path(p), recursive=True))


# ---- requests


def deletions(s: Snapshot) -> Iterator[SubjectFinding]:
    """Topics marked for deletion are deleted."""
    assigned: dict[str, list[ReplicaAssignment]] = {}
    for p, assignment in s.assignments.items() if s.deletions else ():
        assigned.setdefault(p.topic, []).append(assignment)
    for topic, requested_ms in s.deletions.items():
        path = znodes.delete_topic_path(topic)
        if topic not in s.topic_ids and znodes.topic_path(topic) not in s.malformed:
            why = "it is marked for deletion, but there is no such topic"
            yield _warning("orphaned deletion", topic, why, remedies.delete(s, path))
            continue
        waiting = _age(s, requested_ms)
        if waiting is None:
            continue
        partitions = assigned.get(topic, [])
        if znodes.topic_path(topic) in s.malformed:
            why = f"marked {waiting} ago; its assignment cannot be read"
            remedy = (
                f"repair {znodes.topic_path(topic)}; or delete it, and delete its directories on the brokers by hand"
            )
        elif dead := sorted({b for a in partitions for b in a.replicas if b not in s.live}):
            why, remedy = f"marked {waiting} ago; {_list(dead)} with its replicas not alive", remedies.start(dead)
        elif any(a.is_being_reassigned for a in partitions):
            why, remedy = f"marked {waiting} ago; the topic is being reassigned", remedies.cancel(s, topic)
        else:
            why, remedy = f"marked {waiting} ago, and nothing blocks it", remedies.reelect(s)
        yield _warning("stuck deletion", topic, why, remedy)


def reassignments(s: Snapshot) -> Iterator[SubjectFinding]:
    """Reassignments complete."""
    for p, assignment in s.assignments.items():
        if not assignment.is_being_reassigned:
            continue
        state = s.states.get(p)
        missing = [b for b in assignment.target if state is None or b not in state.isr]
        dead = [b for b in missing if b not in s.live]
        if dead:
            why, remedy = (
                f"it waits for {_list(dead)}, not alive",
                f"{remedies.start(dead)}, or {remedies.cancel(s, p.topic)}",
            )
            yield _warning("stuck reassignment", str(p), why, remedy)
        elif missing and (state is None or state.leader not in s.live):
            why = f"it waits for {_list(missing)}, but has no leader to copy from"
            isr = state.isr if state is not None else ()
            remedy = (
                f"{remedies.start_one_of(isr)}, or {remedies.cancel(s, p.topic)}"
                if isr
                else remedies.cancel(s, p.topic)
            )
            yield _warning("stuck reassignment", str(p), why, remedy)
        elif missing:
            yield _notice("reassignment", str(p), f"it waits for {_list(missing)} to catch up", remedies.NOTHING)
        else:
            why = "all its new replicas are in sync, but the controller does not complete it"
            yield _warning("stuck reassignment", str(p), why, remedies.reelect(s))
    waiting = _age(s, s.reassignment_requested_ms) if s.reassignment is not None else None
    if waiting is not None and s.reassignment is not None:
        moving = {p for p, a in s.assignments.items() if a.is_being_reassigned}
        if left := [p for p in s.reassignment if p not in moving]:
            why = f"requested {waiting} ago; {len(left):,} of its partitions are not being reassigned"
            yield _warning("stuck reassignment", znodes.REASSIGN_PARTITIONS, why, remedies.reelect(s))


def stale_requests(s: Snapshot) -> Iterator[SubjectFinding]:
    """Requests and notifications that the controller does not handle, or cannot read."""
    if s.preferred_election is not None and (waiting := _age(s, s.preferred_election_requested_ms)) is not None:
        yield _warning("request left", znodes.PREFERRED_ELECTION, f"not handled for {waiting}", remedies.reelect(s))
    old = [n for n in s.notifications if _age(s, n.created_ms) is not None]
    for age in old:
        why = "not handled for more than a minute"
        yield _warning("notification left", age.path, why, remedies.reelect(s))


def throttles(s: Snapshot) -> Iterator[SubjectFinding]:
    """Without a reassignment no throttle is needed. A broker that was away when one ended keeps its throttle."""
    if s.reassignment is not None or any(a.is_being_reassigned for a in s.assignments.values()):
        return
    why = "replication is throttled, but nothing is being reassigned: lagging replicas catch up slowly"
    for broker, config in sorted(s.broker_configs.items()):
        if keys := [key for key in THROTTLED_RATES if key in config]:
            yield _notice("throttle left", f"broker {broker}", why, remedies.unset_of_broker(s, broker, keys))
    for topic, config in s.configs.items():
        if topic in s.topic_ids and (lists := [key for key in THROTTLED_REPLICAS if key in config]):
            yield _notice("throttle left", topic, why, remedies.unset_of_topic(s, topic, lists))


# ---- malformed and unreadable znodes


def malformed(s: Snapshot) -> Iterator[SubjectFinding]:
    for path, why in s.malformed.items():
        yield _critical("malformed znode", path, why, remedies.of_malformed(s, path))
    for path in s.missing:
        why = "it does not exist, but brokers and the controller need it: ZooKeeper was partly restored"
        yield _warning("missing znode", path, why, remedies.put(s, path, ""))
    for path, why in s.unreadable.items():
        remedy = "run the audit with credentials that may read it, for example --auth digest:USER:PASSWORD"
        yield _warning("unreadable znode", path, why, remedy)


def topic_ids(s: Snapshot) -> Iterator[SubjectFinding]:
    seen: dict[object, str] = {}
    for topic, topic_id in s.topic_ids.items():
        if topic_id is None:
            why = "it has no topic id: the next controller assigns one (inter.broker.protocol.version 2.8 and newer)"
            remedy = (
                f"{remedies.NOTHING}; but if its partition.metadata files on the brokers contain an id (after a "
                "restore from an older backup), write that id into its znode first, or brokers reject its replicas"
            )
            yield _notice("topic id", topic, why, remedy)
        elif (other := seen.setdefault(topic_id, topic)) != topic:
            why = f"it has the same topic id as {other}: brokers confuse the two"
            yield _critical("topic id", topic, why, "create a new topic and copy its records")


def orphaned_configs(s: Snapshot) -> Iterator[SubjectFinding]:
    for topic in s.configs:
        if topic not in s.topic_ids and znodes.topic_path(topic) not in s.malformed:
            why = "the topic does not exist; a new topic with this name would inherit the config"
            path = znodes.topic_config_path(topic)
            yield _notice(
                "orphaned config",
                topic,
                why,
                f"{remedies.delete(s, path)}, unless the topic is being created right now",
            )


CHECKS: Final[tuple[Check, ...]] = (
    controller,
    controller_epoch,
    registrations,
    features,
    missing_brokers,
    leaders,
    isrs,
    replication,
    preferred_leaders,
    assignments,
    deletions,
    reassignments,
    stale_requests,
    throttles,
    malformed,
    topic_ids,
    orphaned_configs,
)


# ---- shared by the checks


def _critical(kind: str, subject: str, why: str, remedy: str) -> SubjectFinding:
    return SubjectFinding(Severity.CRITICAL, kind, subject, why, remedy)


def _warning(kind: str, subject: str, why: str, remedy: str) -> SubjectFinding:
    return SubjectFinding(Severity.WARNING, kind, subject, why, remedy)


def _notice(kind: str, subject: str, why: str, remedy: str) -> SubjectFinding:
    return SubjectFinding(Severity.NOTICE, kind, subject, why, remedy)


def _age(s: Snapshot, since_ms: int) -> str | None:
    """For example `2 h`; None when it is too recent for a finding."""
    seconds = (s.taken_ms - since_ms) // 1000
    if seconds * 1000 < STALE_REQUEST_MS:
        return None
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _min_insync(s: Snapshot, topic: str) -> int:
    text = s.configs.get(topic, {}).get("min.insync.replicas") or s.default_config.get("min.insync.replicas") or "1"
    return int(text) if text.isdigit() else 1


def _unsupported_features(s: Snapshot, broker: BrokerId) -> list[str]:
    """Finalized features that a registered broker does not support."""
    supported = s.brokers[broker].features
    return [name for name, level in s.features.items() if not supports(supported, {name: level})]


def _list(brokers: Iterable[BrokerId]) -> str:
    return ", ".join(map(str, brokers))
