"""What is wrong with a cluster: facts in, findings out. To add a check, write it here and put it into `CHECKS`.

A finding says why it is one and names what mends it: a command of klamm's or of Apache Kafka's tools, or what to look
at. Findings of one kind, reason and remedy are one, with everything they are about.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from klamm.cli.audit.snapshot import Snapshot
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderRecoveryState
from klamm.zk import znodes

LEFT_OVER_MS: Final = 60_000
"""A request or notification that lies in ZooKeeper for longer than this: nobody takes it."""
IMBALANCE: Final = 0.10
"""`leader.imbalance.per.broker.percentage`: above this share Kafka moves leaders back by itself."""

NO_ACTION: Final = "nothing: it mends itself"
LOOK_AT_LEADER: Final = "look why those brokers do not catch up: their logs, their network, their disks"
REELECT: Final = "klamm controller reelect --zookeeper (or delete /controller): the next one takes everything up anew"


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
    """Somebody holds the office, is registered, and the same session holds both."""
    kind, at = "controller", znodes.CONTROLLER
    if s.controller is None:
        why = "there is no controller: no leader is elected, nothing that was asked for is done"
        yield Said(_CRITICAL, kind, at, why, "look at the brokers' logs: any of them should take the office at once")
    elif s.is_kraft:
        why = f"KRaft controller {s.controller} holds the office: this cluster is being migrated"
        yield Said(_NOTICE, kind, at, why, NO_ACTION)
    elif s.controller_held.owner_session == 0:
        yield Said(_CRITICAL, kind, at, "it is no ephemeral: nobody holds it, and nobody can win it", REELECT)
    elif s.controller not in s.broker_held:
        why = f"it names broker {s.controller}, which is not registered: it may be a controller that nobody hears"
        yield Said(_CRITICAL, kind, at, why, REELECT)
    elif s.broker_held[s.controller].owner_session != s.controller_held.owner_session:
        why = f"broker {s.controller} holds it by an earlier session than its registration: nobody acts (KAFKA-13407)"
        yield Said(_CRITICAL, kind, at, why, REELECT)


def controller_epoch(s: Snapshot) -> Iterator[Said]:
    """It counts elections, as the version of its znode does, and no state is newer."""
    kind, at = "controller epoch", znodes.CONTROLLER_EPOCH
    if s.controller_epoch is None:
        if s.controller is not None and at not in s.malformed:
            yield Said(_CRITICAL, kind, at, "there is a controller, but no epoch that binds its writes", REELECT)
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
            remedy = f"set {at} to the highest of their epochs, then: {REELECT}"
            yield Said(_CRITICAL, "epoch gap", str(p), why, remedy)


# ---- brokers


def registrations(s: Snapshot) -> Iterator[Said]:
    """Every registration is held by a session."""
    for broker, held in s.broker_held.items():
        if held.owner_session == 0:
            path = znodes.broker_path(broker)
            why = "it is no ephemeral: the broker counts as alive for ever, whether it runs or not"
            yield Said(_CRITICAL, "registration", path, why, f"delete {path}; a broker that runs registers again")


def unknown_replicas(s: Snapshot) -> Iterator[Said]:
    """Brokers that hold replicas and are not there."""
    held: dict[BrokerId, int] = {}
    for assignment in s.assignments.values():
        for broker in assignment.replicas:
            if broker not in s.live:
                held[broker] = held.get(broker, 0) + 1
    for broker, count in sorted(held.items()):
        why = f"not registered, and holds {count:,} replica{'s' if count > 1 else ''}"
        remedy = f"{_start([broker])}, or move its replicas away: klamm reassign plan --remove-broker {broker}"
        yield Said(_WARNING, "broker gone", f"broker {broker}", why, remedy)


# ---- partitions


def leaders(s: Snapshot) -> Iterator[Said]:
    """Every partition has a leader that is alive and in its ISR."""
    for p, assignment in s.assignments.items():
        state = s.states.get(p)
        if state is None:
            if znodes.state_path(p) not in s.malformed and p.topic not in s.deletions:
                live = [b for b in assignment.replicas if b in s.live]
                why = "no state was ever written" + (
                    "" if live else f": none of its replicas {_list(assignment.replicas)} is alive"
                )
                yield Said(_CRITICAL, "no leader", str(p), why, REELECT if live else _start_one_of(assignment.replicas))
        elif p.topic in s.deletions:
            continue
        elif state.leader == NO_BROKER:
            yield from _leaderless(s, p, state.isr)
        elif state.leader not in s.live:
            why = f"its leader {state.leader} is not registered, and nobody was elected"
            yield Said(_CRITICAL, "no leader", str(p), why, REELECT)


def _leaderless(s: Snapshot, p: TopicPartition, isr: tuple[BrokerId, ...]) -> Iterator[Said]:
    if live := [b for b in isr if b in s.live]:
        why = f"no leader, although {_list(live)} of its ISR is alive"
        yield Said(_CRITICAL, "no leader", str(p), why, REELECT)
        return
    others = [b for b in s.assignments[p].replicas if b in s.live]
    remedy = _start_one_of(isr)
    if others:
        unclean = f"klamm elect --election-type unclean --topic {p.topic} ({_list(others)} would lead)"
        remedy += f"; or lose what only they have: {unclean}"
    yield Said(_CRITICAL, "no leader", str(p), f"no member of its ISR {_list(isr)} is alive", remedy)


def isrs(s: Snapshot) -> Iterator[Said]:
    """The ISR holds the leader, only replicas, and enough of them."""
    for p, state in s.states.items():
        assignment = s.assignments.get(p)
        if assignment is None or p.topic in s.deletions:
            continue
        if not state.isr:
            yield Said(_CRITICAL, "ISR", str(p), "it is empty: no clean election is possible any more", REELECT)
        if state.leader != NO_BROKER and state.leader not in state.isr:
            yield Said(_CRITICAL, "ISR", str(p), f"leader {state.leader} is not in it", REELECT)
        if strangers := [b for b in state.isr if b not in assignment.replicas]:
            why = f"{_list(strangers)} in it, which hold{'' if len(strangers) > 1 else 's'} no replica"
            yield Said(_WARNING, "ISR", str(p), why, REELECT)
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
            yield Said(_CRITICAL, "below min ISR", str(p), why, _bring_back(s, missing))
        elif missing and not assignment.is_being_reassigned:
            at_least = len(state.isr) == least and least > 1
            why = f"{_list(missing)} not in sync" + (": one more, and acks=all is refused" if at_least else "")
            yield Said(_WARNING, "under-replicated", str(p), why, _bring_back(s, missing))


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
            remedy = (
                "klamm elect --election-type preferred --all-topic-partitions" if broker in s.live else _start([broker])
            )
            yield Said(_NOTICE, "not preferred", f"broker {broker}", why, remedy)


def assignments(s: Snapshot) -> Iterator[Said]:
    """Lists of replicas that make sense, and no znodes of partitions that are not assigned."""
    for p, assignment in s.assignments.items():
        path = znodes.topic_path(p.topic)
        if not assignment.replicas:
            yield Said(_CRITICAL, "assignment", str(p), "it has no replica", f"mend {path} by hand")
        elif len(set(assignment.replicas)) < len(assignment.replicas):
            why = f"a broker twice in {_list(assignment.replicas)}"
            yield Said(_WARNING, "assignment", str(p), why, "klamm reassign apply, with a file that names each once")
    for p in s.stray_partitions:
        why = "there is a znode for it, but the topic does not have this partition"
        yield Said(_WARNING, "stray partition", str(p), why, f"delete {znodes.partition_path(p)} and what is below it")


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
            yield Said(_WARNING, "orphaned deletion", topic, why, f"delete {path}")
            continue
        waiting = _age(s, asked_ms)
        if waiting is None:
            continue
        partitions = assigned.get(topic, [])
        if dead := sorted({b for a in partitions for b in a.replicas if b not in s.live}):
            why, remedy = f"asked {waiting} ago; {_list(dead)} with replicas of it not alive", _start(dead)
        elif any(a.is_being_reassigned for a in partitions):
            why, remedy = f"asked {waiting} ago; a reassignment of it is under way", _cancel(topic)
        else:
            why, remedy = f"asked {waiting} ago, and nothing that could hold it up", REELECT
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
            why, remedy = f"waits for {_list(dead)}, not alive", f"{_start(dead)}, or {_cancel(p.topic)}"
            yield Said(_WARNING, "stuck reassignment", str(p), why, remedy)
        elif missing:
            yield Said(_NOTICE, "reassignment", str(p), f"waits for {_list(missing)} to catch up", NO_ACTION)
        else:
            why = "all its new replicas are in sync, and nobody ends it"
            yield Said(_WARNING, "stuck reassignment", str(p), why, REELECT)
    waiting = _age(s, s.reassignment_asked_ms) if s.reassignment is not None else None
    if waiting is not None and s.reassignment is not None:
        moving = {p for p, a in s.assignments.items() if a.is_being_reassigned}
        if left := [p for p in s.reassignment if p not in moving]:
            why = f"asked {waiting} ago; {len(left):,} of its partitions do not move"
            yield Said(_WARNING, "stuck reassignment", znodes.REASSIGN_PARTITIONS, why, REELECT)


def left_over_requests(s: Snapshot) -> Iterator[Said]:
    """Requests and notifications that nobody takes: the controller does not act, or cannot read them."""
    if s.preferred_election is not None and (waiting := _age(s, s.preferred_election_asked_ms)) is not None:
        yield Said(_WARNING, "request left", znodes.PREFERRED_ELECTION, f"lies there for {waiting}", REELECT)
    old = [n for n in s.notifications if _age(s, n.created_ms) is not None]
    for age in old:
        why = "lies there for more than a minute: the controller does not take it"
        yield Said(_WARNING, "notification left", age.path, why, REELECT)


# ---- what cannot be read


def malformed(s: Snapshot) -> Iterator[Said]:
    for path, why in s.malformed.items():
        remedy = f"klamm zk get {path} shows it; put back what a backup has, or delete it"
        yield Said(_CRITICAL, "malformed znode", path, why, remedy)
    for path, why in s.unreadable.items():
        remedy = "run the audit with credentials that may read it (zookeeper digest: --auth digest:USER:PASSWORD)"
        yield Said(_WARNING, "unreadable znode", path, why, remedy)


def topic_ids(s: Snapshot) -> Iterator[Said]:
    seen: dict[object, str] = {}
    for topic, topic_id in s.topic_ids.items():
        if topic_id is None:
            why = "it has no id: the controller gives it one when it takes office (protocol 2.8 and newer)"
            yield Said(_NOTICE, "topic id", topic, why, NO_ACTION)
        elif (other := seen.setdefault(topic_id, topic)) != topic:
            why = f"the same id as {other}: brokers take one for the other"
            yield Said(_CRITICAL, "topic id", topic, why, "create it anew under another id, and copy its records")


def orphaned_configs(s: Snapshot) -> Iterator[Said]:
    for topic in s.configs:
        if topic not in s.topic_ids and znodes.topic_path(topic) not in s.malformed:
            why = "it configures a topic that does not exist; one of that name would inherit it"
            path = znodes.topic_config_path(topic)
            yield Said(_NOTICE, "orphaned config", topic, why, f"delete {path}, unless it is being created just now")


CHECKS: Final[tuple[Check, ...]] = (
    controller,
    controller_epoch,
    registrations,
    unknown_replicas,
    leaders,
    isrs,
    replication,
    preferred_leaders,
    assignments,
    deletions,
    reassignments,
    left_over_requests,
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


def _bring_back(s: Snapshot, missing: list[BrokerId]) -> str:
    dead = [b for b in missing if b not in s.live]
    return _start(dead) if dead else LOOK_AT_LEADER


def _cancel(topic: str) -> str:
    return f"klamm reassign cancel --topic {topic}"


def _start(brokers: Iterable[BrokerId]) -> str:
    return "start " + " and ".join(f"broker {b}" for b in brokers)


def _start_one_of(brokers: Iterable[BrokerId]) -> str:
    return "start " + " or ".join(f"broker {b}" for b in brokers)


def _list(brokers: Iterable[BrokerId]) -> str:
    return ", ".join(map(str, brokers))
