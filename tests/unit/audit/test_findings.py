"""Each kind of damage in a snapshot: the finding, its reason and its remedy."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from klamm.audit.finding import Finding, Severity
from klamm.audit.findings import CHECKS, findings, is_healthy
from klamm.audit.snapshot import Age, OpenTransaction, Ownership, Snapshot
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr, LeaderRecoveryState
from klamm.zk.registrations import Registration

NOW_MS = 1_700_000_000_000
LONG_AGO_MS = NOW_MS - 7_200_000
P = TopicPartition("orders", 0)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def healthy() -> Snapshot:
    """Three brokers; orders-0 on all of them, led by 1."""
    s = Snapshot(NOW_MS, BrokerId(2), Ownership(0x22, 50), controller_epoch=4, controller_epoch_version=4)
    for broker in ids(1, 2, 3):
        at = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "one", 9092)
        s.brokers[broker] = Registration(Broker(broker, (at,)))
        s.broker_ownership[broker] = Ownership(0x20 + broker, broker)
    s.connect = "zk:2181/kafka"
    s.topic_ids["orders"] = uuid.UUID(int=7)
    s.configs["orders"] = {"min.insync.replicas": "2"}
    s.assignments[P] = ReplicaAssignment(ids(1, 2, 3))
    s.states[P] = LeaderAndIsr(BrokerId(1), 3, ids(1, 2, 3), 4)
    return s


def leads(s: Snapshot, leader: int, *isr: int, **facts: Any) -> None:
    """Set the leader and ISR of orders-0."""
    s.states[P] = s.states[P]._replace(leader=BrokerId(leader), isr=ids(*isr), **facts)


def dies(s: Snapshot, broker: int) -> None:
    """Remove the broker's registration."""
    del s.brokers[BrokerId(broker)], s.broker_ownership[BrokerId(broker)]


def all_of(*steps: Callable[[Snapshot], object]) -> Callable[[Snapshot], None]:
    """One damage from several steps."""

    def apply(s: Snapshot) -> None:
        for step in steps:
            step(s)

    return apply


def open_long_ago(has_coordinator: bool | None) -> Callable[[Snapshot], None]:
    """A transaction without a record for two hours."""
    return lambda s: s.open_transactions.append(OpenTransaction(P, 7, 41, LONG_AGO_MS, has_coordinator))


def has_transaction_log(s: Snapshot) -> None:
    """Add the topic of the transaction log to the snapshot."""
    s.topic_ids["__transaction_state"] = uuid.UUID(int=9)
    s.configs["__transaction_state"] = {}


def is_new(s: Snapshot) -> None:
    """No controller has written a znode of orders-0."""
    s.states.clear()
    s.new_partitions.add(P)


# damage -> severity, kind, subject, a part of the reason, a part of the remedy
CASES: dict[str, tuple[Callable[[Snapshot], object], tuple[str, str, str, str, str]]] = {
    "a transaction that its coordinator did not end": (
        all_of(has_transaction_log, open_long_ago(has_coordinator=False)),
        (
            "warning",
            "open transaction",
            "orders-0",
            "producer 7 has a transaction open from offset 41: its last record is 2 h old, and no coordinator has it;",
            "klamm transactions abort -b one:9092 --topic orders --partition 0 --start-offset 41",
        ),
    ),
    "a transaction whose coordinator could not be asked": (
        all_of(has_transaction_log, open_long_ago(has_coordinator=None)),
        (
            "warning",
            "open transaction",
            "orders-0",
            "no coordinator has it, but not all coordinators could be asked",
            "repeat the audit: the coordinator may still commit it",
        ),
    ),
    "a transaction where there is no coordinator": (
        lambda s: s.open_transactions.append(OpenTransaction(P, 7, 41, NOW_MS)),
        (
            "warning",
            "open transaction",
            "orders-0",
            "there is no topic __transaction_state, so no coordinator ends it",
            "klamm transactions abort -b one:9092 --topic orders --partition 0 --start-offset 41",
        ),
    ),
    "no controller": (
        lambda s: setattr(s, "controller", None),
        ("critical", "controller", "/controller", "no leader is elected", "look at the logs"),
    ),
    "a controller that is not registered": (
        lambda s: setattr(s, "controller", BrokerId(9)),
        ("critical", "controller", "/controller", "broker 9, which is not registered", "restart broker 9"),
    ),
    "the controller znode belongs to an earlier session": (
        lambda s: setattr(s, "controller_ownership", Ownership(0x99, 1)),
        ("critical", "controller", "/controller", "an earlier session", "reelect --zookeeper zk:2181/kafka"),
    ),
    "a controller znode that is not ephemeral": (
        lambda s: setattr(s, "controller_ownership", Ownership(0, 1)),
        ("critical", "controller", "/controller", "not ephemeral", "klamm controller reelect"),
    ),
    "a migration to KRaft": (
        lambda s: setattr(s, "is_kraft", True),
        ("notice", "controller", "/controller", "being migrated", "nothing"),
    ),
    "no controller epoch": (
        lambda s: setattr(s, "controller_epoch", None),
        ("critical", "controller epoch", "/controller_epoch", "no controller", "klamm zk set /controller_epoch '4'"),
    ),
    "an epoch that was changed by hand": (
        lambda s: setattr(s, "controller_epoch_version", 3),
        ("notice", "controller epoch", "/controller_epoch", "written 3 times", "nothing"),
    ),
    "an epoch lower than that of a state": (
        lambda s: leads(s, 1, 1, 2, 3, controller_epoch=6),
        ("critical", "epoch gap", "orders-0", "a higher controller epoch than 4", "klamm zk set /controller_epoch '6'"),
    ),
    "a registration that is not ephemeral": (
        lambda s: s.broker_ownership.__setitem__(BrokerId(3), Ownership(0, 3)),
        ("critical", "registration", "/brokers/ids/3", "counts as alive", "klamm zk delete /brokers/ids/3"),
    ),
    "a broker throttle left behind": (
        lambda s: s.broker_configs.update({"3": {"leader.replication.throttled.rate": "1000"}}),
        ("notice", "throttle left", "broker 3", "nothing is being", "--broker 3 leader.replication.throttled.rate -b"),
    ),
    "a throttle of a dead broker left behind": (
        lambda s: s.broker_configs.update({"7": {"follower.replication.throttled.rate": "1000"}}),
        ("notice", "throttle left", "broker 7", "nothing is being", "when broker 7 is back: klamm config unset"),
    ),
    "throttled replicas left behind": (
        lambda s: s.configs["orders"].update({"leader.replication.throttled.replicas": "0:1"}),
        ("notice", "throttle left", "orders", "nothing is being", "--topic orders leader.replication.throttled.repl"),
    ),
    "a broker is gone": (
        lambda s: dies(s, 3),
        ("warning", "broker gone", "broker 3", "has 1 replica", "no other broker could take all its replicas"),
    ),
    "a broker is gone that others can replace": (
        lambda s: setattr(s, "assignments", {P: ReplicaAssignment(ids(1, 2, 9))}),
        ("warning", "broker gone", "broker 9", "has 1 replica", "reassign plan --remove-broker 9 --out plan-without"),
    ),
    "the leader is gone and no leader was elected": (
        lambda s: dies(s, 1),
        ("critical", "no leader", "orders-0", "leader 1 is not registered", "reelect"),
    ),
    "no leader, although a member of the ISR is alive": (
        lambda s: leads(s, -1, 2),
        ("critical", "no leader", "orders-0", "broker 2 of its ISR is alive", "klamm brokers --log-dirs -b"),
    ),
    "no leader, and only replicas outside the ISR are alive": (
        all_of(lambda s: leads(s, -1, 1), lambda s: dies(s, 1)),
        ("critical", "no leader", "orders-0", "no member of its ISR 1 is alive", "start broker 1; or accept"),
    ),
    "a topic that is being created": (
        all_of(is_new, lambda s: s.topic_changed_ms.__setitem__("orders", NOW_MS - 1_000)),
        ("notice", "new partition", "orders-0", "it has no state znode yet", "nothing"),
    ),
    "a topic whose creation no controller notices": (
        all_of(is_new, lambda s: s.topic_changed_ms.__setitem__("orders", LONG_AGO_MS)),
        ("critical", "no leader", "orders-0", "it has no state znode", "reelect"),
    ),
    "no state znode": (
        lambda s: s.states.clear(),
        ("critical", "no leader", "orders-0", "it has no state znode", "klamm explain orders-0 --zookeeper zk"),
    ),
    "an empty ISR and no leader": (
        lambda s: leads(s, -1),
        ("critical", "no leader", "orders-0", "ISR is empty", "unclean --topic orders --partition 0 -b one:9092 (new"),
    ),
    "an empty ISR": (
        lambda s: leads(s, 1),
        ("critical", "ISR", "orders-0", "the ISR is empty", '"leader":1,"version":1,"leader_epoch":4,"isr":[1]}'),
    ),
    "a leader outside its ISR": (
        lambda s: leads(s, 1, 2, 3),
        ("critical", "ISR", "orders-0", "leader 1 is not in the ISR", '"leader_epoch":4,"isr":[1,2,3]}'),
    ),
    "a malformed broker id": (
        lambda s: s.malformed_ids.append("x"),
        ("critical", "registration", "/brokers/ids/x", "not a broker id", "klamm zk delete /brokers/ids/x"),
    ),
    "a required znode is missing": (
        lambda s: s.missing.append("/isr_change_notification"),
        ("warning", "missing znode", "/isr_change_notification", "not exist", "klamm zk set /isr_change_notification"),
    ),
    "a broker without a replica in the ISR": (
        lambda s: leads(s, 1, 1, 2, 3, 8),
        ("warning", "ISR", "orders-0", "among the replicas", '"leader":1,"version":1,"leader_epoch":4,"isr":[1,2,3]'),
    ),
    "a broker without a replica leads": (
        lambda s: leads(s, 8, 8, 3),
        ("warning", "ISR", "orders-0", "not among the replicas", '"leader":3,"version":1,"leader_epoch":4,"isr":[3]'),
    ),
    "only brokers without a replica in the ISR": (
        lambda s: leads(s, -1, 8),
        ("warning", "ISR", "orders-0", "broker 8 is in the ISR, but", "klamm elect --election-type unclean"),
    ),
    "a broker without a replica leads alone": (
        lambda s: leads(s, 8, 8),
        ("critical", "no leader", "orders-0", "no member of its ISR 8 is alive", "start broker 8; or accept"),
    ),
    "a live leader without a replica": (
        all_of(lambda s: s.assignments.update({P: ReplicaAssignment(ids(1, 2))}), lambda s: leads(s, 3, 3)),
        ("critical", "no leader", "orders-0", "leader 3 is not one of its replicas", '"replicas":[1,2,3]}'),
    ),
    "a feature that a broker lacks": (
        lambda s: s.features.update(new=2),
        ("critical", "features", "broker 1", "new at level 2", """klamm zk set /feature '{"version":2,"status":1,"""),
    ),
    "no leader, because all brokers lack a feature": (
        all_of(lambda s: s.features.update(new=2), lambda s: leads(s, -1, 1, 2, 3)),
        ("critical", "no leader", "orders-0", "without support for the finalized features", '"features":{}}'),
    ),
    "an unclean leader": (
        lambda s: leads(s, 1, 1, recovery=LeaderRecoveryState.RECOVERING),
        ("warning", "unclean leader", "orders-0", "records may be lost", "compare"),
    ),
    "below min ISR": (
        lambda s: leads(s, 1, 1),
        ("critical", "below min ISR", "orders-0", "1 in sync, min.insync.replicas is 2", "catch up"),
    ),
    "at min ISR": (
        lambda s: leads(s, 1, 1, 2),
        ("warning", "under-replicated", "orders-0", "broker 3 not in sync; if one more leaves the ISR", "catch up"),
    ),
    "min ISR set for all brokers": (
        all_of(
            lambda s: s.configs.clear(),
            lambda s: s.default_config.update({"min.insync.replicas": "3"}),
            lambda s: leads(s, 1, 1, 2),
        ),
        ("critical", "below min ISR", "orders-0", "2 in sync, min.insync.replicas is 3", "catch up"),
    ),
    "leaders are not preferred": (
        lambda s: leads(s, 2, 1, 2, 3),
        ("notice", "not preferred", "broker 1", "leads 0 of the 1", "klamm elect --election-type preferred"),
    ),
    "no replica": (
        all_of(lambda s: s.states.clear(), lambda s: s.assignments.__setitem__(P, ReplicaAssignment(()))),
        ("critical", "assignment", "orders-0", "assigns no replica", '"partitions":{"0":[1]}'),
    ),
    "a broker twice": (
        lambda s: s.assignments.__setitem__(P, ReplicaAssignment(ids(1, 2, 3, 3))),
        ("warning", "assignment", "orders-0", "twice: 1, 2, 3, 3", '"replicas":[1,2,3]'),
    ),
    "a stray partition znode": (
        lambda s: s.stray_partitions.append(TopicPartition("orders", 8)),
        ("warning", "stray partition", "orders-8", "does not have this partition", "/partitions/8"),
    ),
    "an orphaned deletion": (
        lambda s: s.deletions.update(gone=NOW_MS),
        ("warning", "orphaned deletion", "gone", "no such topic", "klamm zk delete /admin/delete_topics/gone"),
    ),
    "a deletion that waits for a dead broker": (
        all_of(lambda s: s.deletions.update(orders=LONG_AGO_MS), lambda s: dies(s, 3)),
        ("warning", "stuck deletion", "orders", "it has replicas on broker 3, not alive", "start broker 3"),
    ),
    "a deletion that is not handled": (
        lambda s: s.deletions.update(orders=LONG_AGO_MS),
        ("warning", "stuck deletion", "orders", "nothing blocks it", "reelect"),
    ),
    "a deletion of a malformed topic": (
        all_of(
            lambda s: s.deletions.update(x=LONG_AGO_MS), lambda s: s.malformed.update({"/brokers/topics/x": "no JSON"})
        ),
        ("warning", "stuck deletion", "x", "its assignment cannot be read", "repair /brokers/topics/x"),
    ),
    "a reassignment to a dead broker": (
        lambda s: s.assignments.__setitem__(P, ReplicaAssignment(ids(1, 2, 3, 4), adding=ids(4))),
        ("warning", "stuck reassignment", "orders-0", "waits for broker 4, not alive", "klamm reassign cancel"),
    ),
    "a reassignment without a leader": (
        all_of(
            lambda s: s.assignments.__setitem__(P, ReplicaAssignment(ids(2, 1), adding=ids(2), removing=ids(1))),
            lambda s: leads(s, -1, 1),
            lambda s: dies(s, 1),
        ),
        ("warning", "stuck reassignment", "orders-0", "no leader to copy from", "start broker 1, or klamm reassign"),
    ),
    "a reassignment that is not completed": (
        lambda s: s.assignments.__setitem__(P, ReplicaAssignment(ids(1, 2, 3), removing=ids(3))),
        ("warning", "stuck reassignment", "orders-0", "does not complete it", "reelect"),
    ),
    "a reassignment that is being completed": (
        all_of(
            lambda s: s.assignments.__setitem__(P, ReplicaAssignment(ids(1, 2, 3), removing=ids(3))),
            lambda s: s.state_changed_ms.__setitem__(P, NOW_MS - 1_000),
        ),
        ("notice", "reassignment", "orders-0", "all its new replicas are in sync", "nothing"),
    ),
    "a reassignment under way": (
        all_of(
            lambda s: s.assignments.__setitem__(P, ReplicaAssignment(ids(1, 2, 3), adding=ids(3))),
            lambda s: leads(s, 1, 1, 2),
        ),
        ("notice", "reassignment", "orders-0", "waits for broker 3 to catch up", "nothing"),
    ),
    "a reassignment request that is not handled": (
        all_of(
            lambda s: setattr(s, "reassignment", {P: ids(3, 2, 1)}),
            lambda s: setattr(s, "reassignment_requested_ms", LONG_AGO_MS),
        ),
        ("warning", "stuck reassignment", "/admin/reassign_partitions", "1 of its partitions are not", "reelect"),
    ),
    "an election request that is not handled": (
        all_of(
            lambda s: setattr(s, "preferred_election", [P]),
            lambda s: setattr(s, "preferred_election_requested_ms", LONG_AGO_MS),
        ),
        ("warning", "request left", "/admin/preferred_replica_election", "not handled for 2 h", "reelect"),
    ),
    "a notification that is not handled": (
        lambda s: s.notifications.append(Age("/isr_change_notification/isr_change_1", LONG_AGO_MS)),
        ("warning", "notification left", "/isr_change_notification/isr_change_1", "not handled", "reelect"),
    ),
    "a topic that cannot be read": (
        lambda s: s.malformed.update({"/brokers/topics/x": "no JSON"}),
        ("critical", "malformed znode", "/brokers/topics/x", "no JSON", "klamm topics describe --topic x --json -b"),
    ),
    "a state that cannot be read": (
        lambda s: s.malformed.update({"/brokers/topics/x/partitions/0/state": "no JSON"}),
        ("critical", "malformed znode", "/brokers/topics/x/partitions/0/state", "no JSON", "Never delete the znode"),
    ),
    "an epoch that cannot be read": (
        all_of(
            lambda s: s.malformed.update({"/controller_epoch": "?"}),
            lambda s: setattr(s, "controller_epoch", None),
        ),
        ("critical", "malformed znode", "/controller_epoch", "?", "klamm zk set /controller_epoch '4'"),
    ),
    "a controller that cannot be read": (
        all_of(lambda s: s.malformed.update({"/controller": "?"}), lambda s: setattr(s, "controller", None)),
        ("critical", "malformed znode", "/controller", "?", "klamm controller reelect"),
    ),
    "a config that cannot be read": (
        lambda s: s.malformed.update({"/config/brokers/<default>": "?"}),
        ("critical", "malformed znode", "/config/brokers/<default>", "?", "klamm zk set '/config/brokers/<default>'"),
    ),
    "features that cannot be read": (
        lambda s: s.malformed.update({"/feature": "?"}),
        ("critical", "malformed znode", "/feature", "?", "klamm zk delete /feature --zookeeper zk:2181/kafka, then"),
    ),
    "producer ids that cannot be read": (
        lambda s: s.malformed.update({"/latest_producer_id_block": "?"}),
        ("critical", "malformed znode", "/latest_producer_id_block", "?", "never delete this znode"),
    ),
    "a request that cannot be read": (
        lambda s: s.malformed.update({"/admin/reassign_partitions": "?"}),
        ("critical", "malformed znode", "/admin/reassign_partitions", "?", "klamm zk delete /admin/reassign"),
    ),
    "a znode without read permission": (
        lambda s: s.unreadable.update({"/config/topics/x": "NO_AUTH"}),
        ("warning", "unreadable znode", "/config/topics/x", "NO_AUTH", "--auth"),
    ),
    "a topic without an id": (
        lambda s: s.topic_ids.update(orders=None),
        ("notice", "topic id", "orders", "no topic id", "nothing"),
    ),
    "two topics with one id": (
        lambda s: s.topic_ids.update(copy=uuid.UUID(int=7)),
        ("critical", "topic id", "copy", "the same topic id as orders", "create a new topic"),
    ),
    "a config of a missing topic": (
        lambda s: s.configs.update(gone={}),
        ("notice", "orphaned config", "gone", "does not exist", "klamm zk delete /config/topics/gone"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("broken", "expected"), CASES.values(), ids=CASES)
def test_the_audit_reports_each_kind_of_inconsistent_znode_with_reason_and_remedy(
    broken: Callable[[Snapshot], object], expected: tuple[str, ...]
) -> None:
    s = healthy()
    broken(s)
    severity, kind, subject, why, remedy = expected

    found = [f for f in findings(s) if f.kind == kind and subject in f.subjects and why in f.why]

    assert [f.severity for f in found] == [severity], findings(s)
    assert remedy in found[0].remedy
    assert is_healthy(findings(s)) is all(f.severity == "notice" for f in findings(s))


def test_the_audit_of_a_healthy_cluster_has_no_findings() -> None:
    assert findings(healthy()) == []


def test_every_check_of_the_znode_audit_has_a_test_case() -> None:
    damaged = []
    for broken, _ in CASES.values():
        damaged.append(healthy())
        broken(damaged[-1])

    assert [check.__name__ for check in CHECKS if not any(list(check(s)) for s in damaged)] == []


def test_the_audit_does_not_report_request_znodes_younger_than_a_minute() -> None:
    s = healthy()
    s.deletions["orders"] = NOW_MS - 1_000
    s.preferred_election, s.preferred_election_requested_ms = [P], NOW_MS - 1_000
    s.notifications.append(Age("/isr_change_notification/isr_change_1", NOW_MS - 1_000))

    assert findings(s) == []


def test_the_audit_groups_partitions_by_reason_and_sorts_findings_by_severity() -> None:
    s = healthy()
    for number in range(1, 1_000):
        p = TopicPartition("orders", number)
        s.assignments[p] = ReplicaAssignment(ids(1, 2, 3))
        s.states[p] = LeaderAndIsr(BrokerId(1), 3, ids(1, 2), 4)
    leads(s, -1, 2)

    found = findings(s)

    assert [(f.severity, f.kind, len(f.subjects)) for f in found] == [
        (Severity.CRITICAL, "no leader", 1),
        (Severity.WARNING, "under-replicated", 999),
    ]
    assert isinstance(found[0], Finding)


def test_the_audit_does_not_report_throttle_configs_during_a_reassignment() -> None:
    s = healthy()
    s.broker_configs["3"] = {"leader.replication.throttled.rate": "1000"}
    s.assignments[P] = ReplicaAssignment(ids(1, 2, 3), adding=ids(3))

    assert "throttle left" not in {f.kind for f in findings(s)}


def test_the_audit_does_not_report_a_transaction_within_the_transaction_timeout_or_with_a_coordinator() -> None:
    s = healthy()
    has_transaction_log(s)
    open_long_ago(has_coordinator=True)(s)
    s.open_transactions.append(OpenTransaction(P, 7, 41, NOW_MS - 19 * 60_000))

    assert [f.kind for f in findings(s) if f.kind == "open transaction"] == []


def test_the_audit_reports_no_partition_for_having_fewer_replicas_than_min_insync_replicas() -> None:
    s = healthy()
    s.assignments[P] = ReplicaAssignment(ids(1))
    leads(s, 1, 1)

    assert findings(s) == []
