"""What is wrong with a cluster: facts in, findings out. To add a check, write it here and put it into `CHECKS`.

A finding says why it is one and names what mends it: a command of klamm's or of Apache Kafka's tools, or what to look
at. Findings of one kind, reason and remedy are one, with everything they are about.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from klamm.cli.audit import remedies as mend
from klamm.cli.audit.snapshot import Snapshot
from klamm.cli.reassigning.throttles import RATES, REPLICAS
from klamm.controller.decisions.features import supports
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderRecoveryState
from klamm.zk import znodes

LEFT_OVER_MS: Final = 60_000
"""A request or notification that lies in ZooKeeper for longer than this: nobody takes it."""
IMBALANCE: Final = 0.10
"""`leader.imbalance.per.broker.percentage`: above this share Kafka moves leaders back by itself."""


class Severity(StrEnum):
    CRITICAL = "critical"  # data cannot be reached or may be lost, or nobody controls the cluster
    WARNING = "warning"  # something is stuck, or one failure away from that
    NOTICE = "notice"  # worth knowing; not unhealthy


class Finding(NamedTuple):
    severity: Severity
    kind: str
    why: str
    remedy: str
    subjects: tuple[str, ...]
    """Partitions, topics, brokers or paths, whatever the kind is about."""


class Said(NamedTuple):
    """A finding about one subject."""

    severity: Severity
    kind: str
    subject: str
    why: str
    remedy: str


Check = Callable[[Snapshot], Iterator[Said]]
_CRITICAL, _WARNING, _NOTICE = Severity


def findings(snapshot: Snapshot) -> list[Finding]:
    """Everything that is wrong, the worst first."""
    grouped: dict[tuple[Severity, str, str, str], list[str]] = {}
    for check in CHECKS:
        for said in check(snapshot):
            grouped.setdefault((said.severity, said.kind, said.why, said.remedy), []).append(said.subject)
    found = [Finding(*key, tuple(subjects)) for key, subjects in grouped.items()]
    return sorted(found, key=lambda f: list(Severity).index(f.severity))


def is_healthy(found: Iterable[Finding]) -> bool:
    return all(f.severity is _NOTICE for f in found)


# ---- who controls


def controller(s: Snapshot) -> Iterator[Said]:
    """There is a controller, it is registered, and the same session owns both znodes."""
    kind, at = "controller", znodes.CONTROLLER
    if s.controller is None:
        if at not in s.malformed:
            why = "there is no controller: no leader is elected, nothing that was asked for is done"
            remedy = "start brokers; of those that run look at the logs: any of them should become controller at once"
            yield Said(_CRITICAL, kind, at, why, remedy)
    elif s.is_kraft:
        why = f"KRaft controller {s.controller} is the controller: this cluster is being migrated"
        yield Said(_NOTICE, kind, at, why, mend.NOTHING)
    elif s.controller_held.owner_session == 0:
        why = "it is no ephemeral: nobody holds it, and nobody can win it"
        yield Said(_CRITICAL, kind, at, why, mend.reelect(s))
    elif s.controller not in s.broker_held:
        why = f"it names broker {s.controller}, which is not registered: it may be a controller that nobody hears"
        remedy = f"restart broker {s.controller}, if it runs: it registers when it starts; else {mend.reelect(s)}"
        yield Said(_CRITICAL, kind, at, why, remedy)
    elif s.broker_held[s.controller].owner_session != s.controller_held.owner_session:
        why = f"broker {s.controller} holds it by an earlier session than its registration: nobody acts (KAFKA-13407)"
        yield Said(_CRITICAL, kind, at, why, mend.reelect(s))


def controller_epoch(s: Snapshot) -> Iterator[Said]:
    """It counts elections, as the version of its znode does, and no state is newer."""
    kind, at = "controller epoch", znodes.CONTROLLER_EPOCH
    if s.controller_epoch is None:
        if s.controller is not None and at not in s.malformed:
            why = "there is a controller, but no epoch that binds its writes"
            yield Said(_CRITICAL, kind, at, why, mend.new_epoch(s))
        return
    if s.controller_epoch != s.controller_epoch_version:
        why = (
            f"it says {s.controller_epoch}, its znode was written {s.controller_epoch_version} times: "
            "somebody wrote it by hand, or the tree was restored"
        )
        yield Said(_NOTICE, kind, at, why, "nothing, if it is higher than any state's epoch")
    for p, state in s.states.items():
        if state.controller_epoch > s.controller_epoch:
            why = f"states of a later controller epoch than {s.controller_epoch}: no controller may write them"
            yield Said(_CRITICAL, "epoch gap", str(p), why, mend.new_epoch(s))


# ---- brokers


def registrations(s: Snapshot) -> Iterator[Said]:
    """Every registration is held by a session."""
    for broker, held in s.broker_held.items():
        if held.owner_session == 0:
            path = znodes.broker_path(broker)
            why = "it is no ephemeral: the broker counts as alive for ever, whether it runs or not"
            remedy = f"{mend.delete(s, path)}; if broker {broker} runs, restart it"
            yield Said(_CRITICAL, "registration", path, why, remedy)
    for name in s.strange_ids:
        path = f"{znodes.BROKER_IDS}/{name}"
        why = "no broker has such an id: Apache Kafka's brokers and controllers cannot read the list any more"
        yield Said(_CRITICAL, "registration", path, why, mend.delete(s, path))


def features(s: Snapshot) -> Iterator[Said]:
    """Every broker supports what is finalized; the others count as not there."""
    for broker in s.brokers:
        if lacking := _lacks(s, broker):
            levels = ", ".join(f"{name} at level {s.features[name]}" for name in lacking)
            why = f"it does not support {levels}, which {mend.FEATURE} finalizes: the controller leaves it out"
            yield Said(_CRITICAL, "features", f"broker {broker}", why, mend.without_features(s, lacking))


def unknown_replicas(s: Snapshot) -> Iterator[Said]:
    """Brokers that hold replicas and are not there."""
    held: dict[BrokerId, int] = {}
    for assignment in s.assignments.values():
        for broker in assignment.replicas:
            if broker not in s.live:
                held[broker] = held.get(broker, 0) + 1
    for broker, count in sorted(held.items()):
        why = f"not registered, and holds {count:,} replica{'s' if count > 1 else ''}"
        yield Said(_WARNING, "broker gone", f"broker {broker}", why, mend.come_back_or_leave(s, broker))


# ---- partitions


def leaders(s: Snapshot) -> Iterator[Said]:
    """Every partition has a leader that is alive and in its ISR."""
    live = s.live
    for p, assignment in s.assignments.items():
        state = s.states.get(p)
        if state is None:
            if znodes.state_path(p) not in s.malformed and p.topic not in s.deletions:
                there = [b for b in assignment.replicas if b in live]
                why = "no state was ever written, or it was deleted" + (
                    "" if there else f": none of its replicas {_list(assignment.replicas)} is alive"
                )
                if not assignment.replicas:
                    continue
                remedy = mend.first_state(s, p) if there else mend.start_one_of(assignment.replicas)
                yield Said(_CRITICAL, "no leader", str(p), why, remedy)
        elif p.topic in s.deletions:
            continue
        elif state.leader == NO_BROKER or (state.leader not in live and live.isdisjoint(state.isr)):
            yield from _leaderless(s, p, state.isr)
        elif state.leader not in live:
            why = f"its leader {state.leader} is not registered, and nobody was elected"
            yield Said(_CRITICAL, "no leader", str(p), why, mend.reelect(s))
        elif assignment.replicas and state.leader not in assignment.replicas:
            why = f"its leader {state.leader} holds no replica: brokers follow one that is never told to lead"
            yield Said(_CRITICAL, "no leader", str(p), why, mend.host_the_leader(s, p, state.leader))


def _leaderless(s: Snapshot, p: TopicPartition, isr: tuple[BrokerId, ...]) -> Iterator[Said]:
    live = [b for b in isr if b in s.live]
    if live and all(_lacks(s, b) for b in live):
        why = f"although {_list(live)} of its ISR is alive: finalized features are not supported there"
        yield Said(_CRITICAL, "no leader", str(p), why, mend.without_features(s, _lacks(s, live[0])))
        return
    if live:
        why = f"although {_list(live)} of its ISR is alive: its log directory there failed, or nobody was elected"
        yield Said(_CRITICAL, "no leader", str(p), why, mend.lead_again(s, live))
        return
    assignment = s.assignments[p]
    others = [b for b in assignment.replicas if b in s.live]
    if not isr:
        remedy = mend.elect_unclean(s, p, others) if others else mend.start_one_of(assignment.replicas)
        yield Said(_CRITICAL, "no leader", str(p), "its ISR is empty: no clean election is possible", remedy)
        return
    remedy = mend.start_one_of(isr)
    if others:
        remedy += f"; or lose what only they have: {mend.elect_unclean(s, p, others)}"
    elif len(assignment.replicas) == 1:
        remedy += "; its only replica is there: a disk that is lost takes the records along"
    yield Said(_CRITICAL, "no leader", str(p), f"no member of its ISR {_list(isr)} is alive", remedy)


def isrs(s: Snapshot) -> Iterator[Said]:
    """The ISR holds the leader, only replicas, and enough of them."""
    for p, state in s.states.items():
        assignment = s.assignments.get(p)
        if assignment is None or p.topic in s.deletions:
            continue
        if state.leader in s.live and state.leader not in state.isr:
            why = f"leader {state.leader} is not in it" if state.isr else "it is empty"
            yield Said(_CRITICAL, "ISR", str(p), why, mend.lead_with_isr(s, p, state))
        leading = state.leader if state.leader in s.live else NO_BROKER  # `leaders` tells of one that is a stranger
        if strangers := [b for b in state.isr if b not in {*assignment.replicas, leading}]:
            why = f"{_list(strangers)} in it, which hold{'' if len(strangers) > 1 else 's'} no replica"
            yield Said(_WARNING, "ISR", str(p), why, mend.lead_with_isr(s, p, state))
        if state.recovery is LeaderRecoveryState.RECOVERING:
            why = "its leader came from outside the ISR and is still recovering: records may be lost"
            yield Said(_WARNING, "unclean leader", str(p), why, "compare the replicas; the leader ends this by itself")


def replication(s: Snapshot) -> Iterator[Said]:
    """All replicas are in sync; at least enough to write."""
    for p, state in s.states.items():
        assignment = s.assignments.get(p)
        if assignment is None or p.topic in s.deletions or state.leader not in s.live:
            continue
        missing = [b for b in assignment.target if b not in state.isr]
        least = _min_insync(s, p.topic)
        if len(state.isr) < least:
            why = f"{len(state.isr)} in sync, min.insync.replicas is {least}: acks=all is refused"
            yield Said(_CRITICAL, "below min ISR", str(p), why, mend.catch_up(s, missing))
        elif missing and not assignment.is_being_reassigned:
            at_least = len(state.isr) == least and least > 1
            why = f"{_list(missing)} not in sync" + (": one more, and acks=all is refused" if at_least else "")
            yield Said(_WARNING, "under-replicated", str(p), why, mend.catch_up(s, missing))


def preferred_leaders(s: Snapshot) -> Iterator[Said]:
    """Leaders are where the assignment wants them, by Kafka's own threshold."""
    led: dict[BrokerId, list[bool]] = {}
    for p, assignment in s.assignments.items():
        if (state := s.states.get(p)) is not None and assignment.replicas:
            led.setdefault(assignment.replicas[0], []).append(state.leader == assignment.replicas[0])
    for broker, there in sorted(led.items()):
        away = there.count(False)
        if away > IMBALANCE * len(there):
            why = f"leads {len(there) - away:,} of the {len(there):,} partitions that prefer it"
            remedy = mend.elect_preferred(s) if broker in s.live else mend.start([broker])
            yield Said(_NOTICE, "not preferred", f"broker {broker}", why, remedy)


def assignments(s: Snapshot) -> Iterator[Said]:
    """Lists of replicas that make sense, and no znodes of partitions that are not assigned."""
    for p, assignment in s.assignments.items():
        path = znodes.topic_path(p.topic)
        if not assignment.replicas:
            why = f"it has no replica: {path} assigns it to nobody"
            yield Said(_CRITICAL, "assignment", str(p), why, f"{mend.assign(s, p)}, then {mend.reelect(s)}")
        elif len(set(assignment.replicas)) < len(assignment.replicas):
            why = f"a broker twice in {_list(assignment.replicas)}"
            yield Said(
                _WARNING, "assignment", str(p), why, f"name each once: {mend.reassign(s, p, assignment.replicas)}"
            )
    for p in s.stray_partitions:
        why = "there is a znode for it, but the topic does not have this partition"
        yield Said(_WARNING, "stray partition", str(p), why, mend.delete(s, znodes.partition_path(p), recursive=True))


# ---- what was asked for


def deletions(s: Snapshot) -> Iterator[Said]:
    """What was asked to go goes."""
    assigned: dict[str, list[ReplicaAssignment]] = {}
    for p, assignment in s.assignments.items() if s.deletions else ():
        assigned.setdefault(p.topic, []).append(assignment)
    for topic, asked_ms in s.deletions.items():
        path = znodes.delete_topic_path(topic)
        if topic not in s.topic_ids and znodes.topic_path(topic) not in s.malformed:
            why = "its deletion is asked for, but there is no such topic"
            yield Said(_WARNING, "orphaned deletion", topic, why, mend.delete(s, path))
            continue
        waiting = _age(s, asked_ms)
        if waiting is None:
            continue
        partitions = assigned.get(topic, [])
        if znodes.topic_path(topic) in s.malformed:
            why = f"asked {waiting} ago; nobody can read who holds replicas of it"
            remedy = f"put {znodes.topic_path(topic)} right; or delete it, and by hand what the brokers hold of it"
        elif dead := sorted({b for a in partitions for b in a.replicas if b not in s.live}):
            why, remedy = f"asked {waiting} ago; {_list(dead)} with replicas of it not alive", mend.start(dead)
        elif any(a.is_being_reassigned for a in partitions):
            why, remedy = f"asked {waiting} ago; a reassignment of it is under way", mend.cancel(s, topic)
        else:
            why, remedy = f"asked {waiting} ago, and nothing that could hold it up", mend.reelect(s)
        yield Said(_WARNING, "stuck deletion", topic, why, remedy)


def reassignments(s: Snapshot) -> Iterator[Said]:
    """What moves arrives."""
    for p, assignment in s.assignments.items():
        if not assignment.is_being_reassigned:
            continue
        state = s.states.get(p)
        missing = [b for b in assignment.target if state is None or b not in state.isr]
        dead = [b for b in missing if b not in s.live]
        if dead:
            why, remedy = f"waits for {_list(dead)}, not alive", f"{mend.start(dead)}, or {mend.cancel(s, p.topic)}"
            yield Said(_WARNING, "stuck reassignment", str(p), why, remedy)
        elif missing and (state is None or state.leader not in s.live):
            why = f"waits for {_list(missing)}, and nobody leads it: there is nobody to copy from"
            isr = state.isr if state is not None else ()
            remedy = f"{mend.start_one_of(isr)}, or {mend.cancel(s, p.topic)}" if isr else mend.cancel(s, p.topic)
            yield Said(_WARNING, "stuck reassignment", str(p), why, remedy)
        elif missing:
            yield Said(_NOTICE, "reassignment", str(p), f"waits for {_list(missing)} to catch up", mend.NOTHING)
        else:
            why = "all its new replicas are in sync, and nobody ends it"
            yield Said(_WARNING, "stuck reassignment", str(p), why, mend.reelect(s))
    waiting = _age(s, s.reassignment_asked_ms) if s.reassignment is not None else None
    if waiting is not None and s.reassignment is not None:
        moving = {p for p, a in s.assignments.items() if a.is_being_reassigned}
        if left := [p for p in s.reassignment if p not in moving]:
            why = f"asked {waiting} ago; {len(left):,} of its partitions do not move"
            yield Said(_WARNING, "stuck reassignment", znodes.REASSIGN_PARTITIONS, why, mend.reelect(s))


def left_over_requests(s: Snapshot) -> Iterator[Said]:
    """Requests and notifications that nobody takes: the controller does not act, or cannot read them."""
    if s.preferred_election is not None and (waiting := _age(s, s.preferred_election_asked_ms)) is not None:
        yield Said(_WARNING, "request left", znodes.PREFERRED_ELECTION, f"lies there for {waiting}", mend.reelect(s))
    old = [n for n in s.notifications if _age(s, n.created_ms) is not None]
    for age in old:
        why = "lies there for more than a minute: the controller does not take it"
        yield Said(_WARNING, "notification left", age.path, why, mend.reelect(s))


def throttles(s: Snapshot) -> Iterator[Said]:
    """Where nothing moves, nothing needs to move slowly: what a broker that was away then kept, nobody took away."""
    if s.reassignment is not None or any(a.is_being_reassigned for a in s.assignments.values()):
        return
    why = "replication is throttled, and nothing moves: replicas that lag catch up no faster either"
    for broker, config in sorted(s.broker_configs.items()):
        if keys := [key for key in RATES if key in config]:
            yield Said(_NOTICE, "throttle left", f"broker {broker}", why, mend.unset_of_broker(s, broker, keys))
    for topic, config in s.configs.items():
        if topic in s.topic_ids and (lists := [key for key in REPLICAS if key in config]):
            yield Said(_NOTICE, "throttle left", topic, why, mend.unset_of_topic(s, topic, lists))


# ---- what cannot be read


def malformed(s: Snapshot) -> Iterator[Said]:
    for path, why in s.malformed.items():
        yield Said(_CRITICAL, "malformed znode", path, why, mend.of_malformed(s, path))
    for path in s.missing:
        why = "it is not there, and brokers and controller expect it: a tree that was restored by half"
        yield Said(_WARNING, "missing znode", path, why, mend.put(s, path, ""))
    for path, why in s.unreadable.items():
        remedy = "run the audit with credentials that may read it (zookeeper digest: --auth digest:USER:PASSWORD)"
        yield Said(_WARNING, "unreadable znode", path, why, remedy)


def topic_ids(s: Snapshot) -> Iterator[Said]:
    seen: dict[object, str] = {}
    for topic, topic_id in s.topic_ids.items():
        if topic_id is None:
            why = "it has no id: the controller gives it one when it becomes active (protocol 2.8 and newer)"
            remedy = (
                f"{mend.NOTHING}; unless its partition.metadata files on brokers name one (a tree restored from before "
                "it had it): write that into its znode first, or brokers refuse its replicas"
            )
            yield Said(_NOTICE, "topic id", topic, why, remedy)
        elif (other := seen.setdefault(topic_id, topic)) != topic:
            why = f"the same id as {other}: brokers take one for the other"
            yield Said(_CRITICAL, "topic id", topic, why, "create it anew under another id, and copy its records")


def orphaned_configs(s: Snapshot) -> Iterator[Said]:
    for topic in s.configs:
        if topic not in s.topic_ids and znodes.topic_path(topic) not in s.malformed:
            why = "it configures a topic that does not exist; one of that name would inherit it"
            path = znodes.topic_config_path(topic)
            yield Said(
                _NOTICE, "orphaned config", topic, why, f"{mend.delete(s, path)}, unless it is being created just now"
            )


CHECKS: Final[tuple[Check, ...]] = (
    controller,
    controller_epoch,
    registrations,
    features,
    unknown_replicas,
    leaders,
    isrs,
    replication,
    preferred_leaders,
    assignments,
    deletions,
    reassignments,
    left_over_requests,
    throttles,
    malformed,
    topic_ids,
    orphaned_configs,
)


# ---- words


def _age(s: Snapshot, since_ms: int) -> str | None:
    """In words; None where it is too young to be a finding."""
    seconds = (s.taken_ms - since_ms) // 1000
    if seconds * 1000 < LEFT_OVER_MS:
        return None
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _min_insync(s: Snapshot, topic: str) -> int:
    text = s.configs.get(topic, {}).get("min.insync.replicas") or s.default_config.get("min.insync.replicas") or "1"
    return int(text) if text.isdigit() else 1


def _lacks(s: Snapshot, broker: BrokerId) -> list[str]:
    """The finalized features that a registered broker does not support."""
    supported = s.brokers[broker].features
    return [name for name, level in s.features.items() if not supports(supported, {name: level})]


def _list(brokers: Iterable[BrokerId]) -> str:
    return ", ".join(map(str, brokers))
